"""Solvers against POT, a plain float64 loop, geomloss and closed forms."""

import math
import warnings

import numpy as np
import oracles
import ot as pot
import pytest
import torch
from covering import examples
from hypothesis import given, strategies as st

import advect as ad
from advect.ot import divergence


def problem(n=40, m=50, d=3, seed=0, dtype=torch.float64, zeros=False):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, d, generator=generator, dtype=torch.float64)
    y = torch.rand(m, d, generator=generator, dtype=torch.float64) + 0.3
    a, b = (torch.rand(k, generator=generator, dtype=torch.float64) + 0.1 for k in (n, m))
    if zeros:
        a[: n // 3], b[-m // 4 :] = 0, 0
    cost = torch.as_tensor(oracles.half_squared(x, y))
    return cost.to(dtype), a / a.sum(), b / b.sum(), x, y


class TestExact:
    @pytest.mark.parametrize("zeros", [False, True])
    def test_value_plan_and_potentials_against_pot(self, zeros):
        cost, a, b, *_ = problem(zeros=zeros)
        solution = ad.ExactOT().solve(cost, a, b)
        assert solution.value == pytest.approx(
            pot.emd2(a.numpy(), b.numpy(), cost.numpy()), abs=1e-9
        )
        f, g = solution.potentials
        assert float(a @ f + b @ g) == pytest.approx(solution.value, abs=1e-9)  # strong duality
        slack = cost - f[:, None] - g[None, :]
        assert float(slack[a > 0][:, b > 0].min()) > -1e-9  # dual feasible
        assert float((solution.plan() * cost).sum()) == pytest.approx(solution.value, abs=1e-9)
        torch.testing.assert_close(solution.plan().sum(1), a, atol=1e-12, rtol=0)
        assert solution.converged and solution.marginal_error < 1e-12 and solution.epsilon == 0

    def test_one_dimension_is_sorting(self):
        x, y = torch.rand(200, dtype=torch.float64), torch.rand(200, dtype=torch.float64)
        cost = (x[:, None] - y[None, :]).square() / 2
        assert ad.ExactOT().solve(cost).value == pytest.approx(
            float((x.sort()[0] - y.sort()[0]).square().mean() / 2), abs=1e-12
        )

    def test_self_problem_is_free_only_when_staying_is(self):
        cost, a, *_ = problem(30, 30)
        square = torch.as_tensor(oracles.half_squared(cost, cost))
        assert ad.ExactOT().solve_self(square, a).value == 0
        assert ad.ExactOT().solve_self(square + 1, a).value == pytest.approx(1, abs=1e-12)

    def test_says_when_it_gives_up(self):
        cost, a, b, *_ = problem(200, 200)
        with pytest.warns(ad.ConvergenceWarning, match="Raise max_iter"):
            assert not ad.ExactOT(max_iter=5).solve(cost, a, b).converged


class TestSinkhorn:
    @pytest.mark.parametrize("zeros", [False, True])
    @pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01, 0.002])
    def test_against_a_plain_loop(self, epsilon, zeros):
        cost, a, b, *_ = problem(zeros=zeros)
        value, f, g, plan = oracles.sinkhorn_loop(cost, a, b, epsilon)
        solution = ad.Sinkhorn(epsilon=epsilon).solve(cost, a, b)
        assert solution.converged and solution.marginal_error <= 1e-8
        assert solution.value == pytest.approx(value, abs=1e-7 * float(cost.mean()))
        np.testing.assert_allclose(solution.plan(), plan, atol=1e-7)
        # potentials are unique up to a constant, zero weights included
        assert np.ptp(solution.potentials[0].numpy() - f) < 1e-5
        assert np.ptp(solution.potentials[1].numpy() - g) < 1e-5
        assert solution.value == pytest.approx(
            oracles.primal_value(solution.plan(), cost, a, b, epsilon), abs=1e-6
        )

    def test_plan_against_pot(self):
        cost, a, b, *_ = problem()
        options = {"method": "sinkhorn_log", "numItermax": 100_000, "stopThr": 1e-13}
        expected = pot.sinkhorn(a.numpy(), b.numpy(), cost.numpy(), 0.05, **options)
        found = ad.Sinkhorn(epsilon=0.05).solve(cost, a, b).plan()
        np.testing.assert_allclose(found, expected, atol=1e-9)

    @pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01])
    def test_float32(self, epsilon):
        cost, a, b, *_ = problem()
        value = oracles.sinkhorn_loop(cost, a, b, epsilon)[0]
        solution = ad.Sinkhorn(epsilon=epsilon).solve(cost.float(), a, b)
        assert solution.converged
        assert solution.value == pytest.approx(value, rel=1e-4)
        assert solution.plan().dtype == torch.float32

    def test_tends_to_exact_transport(self):
        cost, a, b, *_ = problem()
        exact = ad.ExactOT().solve(cost, a, b).value
        gaps = [
            ad.Sinkhorn(epsilon=e, tol=1e-6, max_iter=50_000).solve(cost, a, b).value - exact
            for e in (1e-1, 1e-2, 1e-3)
        ]
        assert gaps[0] > gaps[1] > gaps[2] > 0
        assert gaps[2] < 0.02 * exact

    def test_tends_to_independence(self):
        cost, a, b, *_ = problem()
        assert ad.Sinkhorn(epsilon=1e6).solve(cost, a, b).value == pytest.approx(
            float(a @ cost @ b), rel=1e-5
        )

    def test_small_epsilon_needs_absorption_and_survives(self):
        generator = torch.Generator().manual_seed(1)
        x, y = (torch.rand(60, 2, generator=generator, dtype=torch.float64) for _ in range(2))
        # C/ε ~ 1e7: the plain kernel underflows everywhere
        cost = torch.as_tensor(oracles.half_squared(x, y + 100))
        solution = ad.Sinkhorn(epsilon=1e-3, tol=1e-6, max_iter=100_000).solve(cost)
        expected = ad.ExactOT().solve(cost).value
        assert solution.converged and math.isfinite(solution.value)
        assert solution.value == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_scales_with_the_cost(self, scale, dtype):
        cost, a, b, *_ = problem()
        reference = ad.Sinkhorn(epsilon=ad.Relative(0.02)).solve(cost, a, b).value
        solution = ad.Sinkhorn(epsilon=ad.Relative(0.02)).solve((cost * scale).to(dtype), a, b)
        assert solution.converged
        assert solution.value == pytest.approx(
            reference * scale, rel=1e-4 if dtype == torch.float32 else 1e-9
        )

    def test_groups_that_float32_cannot_connect(self):
        """Two far groups whose masses differ a little: the surplus has to cross where exp(−C/ε)
        underflows in float32.
        """
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(600, 2, generator=generator) for _ in range(2))
        x[:300, 0] += 60
        y[:310, 0] += 60
        cost = torch.as_tensor(oracles.half_squared(x, y)).float()
        solution = ad.Sinkhorn(epsilon=1.0).solve(cost)
        assert solution.converged
        assert solution.value == pytest.approx(
            ad.Sinkhorn(epsilon=1.0).solve(cost.double()).value, rel=1e-5
        )

    def test_zero_cost_and_single_points(self):
        assert ad.Sinkhorn().solve(torch.zeros(3, 4)).value == pytest.approx(0, abs=1e-25)
        assert ad.Sinkhorn().solve(torch.zeros(3, 3)).converged
        assert ad.Sinkhorn(epsilon=0.1).solve(torch.tensor([[2.0]])).value == pytest.approx(2.0)
        assert ad.Sinkhorn(epsilon=0.1).solve(torch.tensor([[1.0, 3.0]])).value == pytest.approx(
            2.0
        )

    @pytest.mark.slow
    def test_self_problem_has_one_potential(self):
        _, a, _, x, _ = problem()
        cost = torch.as_tensor(oracles.half_squared(x, x))
        solution = ad.Sinkhorn(epsilon=0.01).solve_self(cost, a)
        value, *_ = oracles.sinkhorn_loop(cost, a, a, 0.01)
        assert solution.value == pytest.approx(value, abs=1e-9)
        assert solution.potentials[0] is solution.potentials[1]
        assert solution.n_iter < 60  # errors at least halve


class TestWarmStart:
    @pytest.mark.parametrize("share", [0.05, 0.02, 0.005])
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
    def test_changes_the_work_and_not_the_value(self, dtype, tolerance, share):
        cost, a, b, x, y = problem(200, 200)
        epsilon = share * float(a @ cost @ b)
        for tol, factor in ((1e-3, 3), (None, 1)):  # a third of the iterations after a small move
            solver = ad.Sinkhorn(epsilon, tol=tol)
            start = solver.solve(cost.to(dtype), a, b)
            step = 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).double()
            moved = torch.as_tensor(oracles.half_squared(x + step, y)).to(dtype)
            cold, warm = solver.solve(moved, a, b), solver.solve(moved, a, b, init=start.potentials)
            assert warm.converged and warm.n_iter * factor <= cold.n_iter
            assert tol or warm.value == pytest.approx(cold.value, rel=tolerance)

    def test_from_the_solution_takes_one_iteration(self):
        cost, a, b, *_ = problem()
        first = ad.Sinkhorn(epsilon=0.02).solve(cost, a, b)
        assert ad.Sinkhorn(epsilon=0.02).solve(cost, a, b, init=first.potentials).n_iter <= 2

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(3))
    def test_a_tiny_epsilon_is_reached_by_slower_annealing(self, seed):
        # Once: annealing by fifths left potentials from which 10,000 iterations led nowhere.
        generator = torch.Generator().manual_seed(seed)
        y, start = (
            torch.randn(500, 2, generator=generator),
            torch.randn(500, 2, generator=generator),
        )
        x = (start + y[torch.randperm(500, generator=generator)]) / 2
        cost = torch.as_tensor(oracles.half_squared(x.double(), y.double())).float()
        solver = ad.Sinkhorn(epsilon=2e-4, tol=1e-3)
        solved = solver.solve(cost)
        assert solved.converged and solved.n_iter < 3000
        plan = solved.plan().double()
        assert (
            float((plan.sum(dim=0) - 1 / 500).abs().sum() + (plan.sum(dim=1) - 1 / 500).abs().sum())
            < 2e-3
        )
        junk = (torch.zeros(500, dtype=torch.float64), torch.zeros(500, dtype=torch.float64))
        assert solver.solve(cost, init=junk).value == pytest.approx(solved.value, rel=1e-3)

    @pytest.mark.parametrize("size", [1e3, 1e8])
    def test_a_useless_start_still_ends_right(self, size):
        cost, a, b, *_ = problem()
        junk = (
            size * torch.randn(40, dtype=torch.float64),
            size * torch.randn(50, dtype=torch.float64),
        )
        expected = ad.Sinkhorn(epsilon=0.1).solve(cost, a, b).value
        assert ad.Sinkhorn(epsilon=0.1).solve(cost, a, b, init=junk).value == pytest.approx(
            expected, rel=1e-7
        )


class TestDivergence:
    @pytest.mark.parametrize("epsilon", [1.0, 0.05])
    def test_against_plain_loops_and_geomloss(self, epsilon):
        cost, a, b, x, y = problem()
        xx, yy = (torch.as_tensor(oracles.half_squared(z, z)) for z in (x, y))
        expected = oracles.divergence_loop(cost, xx, yy, a, b, epsilon)
        solved = divergence(cost, xx, yy, a, b, solver=ad.Sinkhorn(epsilon=epsilon))
        assert solved.value == pytest.approx(expected, abs=1e-7)
        single = divergence(
            cost.float(), xx.float(), yy.float(), a, b, solver=ad.Sinkhorn(epsilon=epsilon)
        )
        assert single.value == pytest.approx(expected, rel=1e-4)

        from geomloss import SamplesLoss

        options = {"scaling": 0.99, "debias": True, "backend": "tensorized"}
        loss = SamplesLoss("sinkhorn", p=2, blur=math.sqrt(epsilon), **options)
        # its own stopping is no closer
        assert solved.value == pytest.approx(float(loss(a, x, b, y)), rel=1e-3)

    def test_contributions_sum_to_the_value_in_halves(self):
        cost, a, b, x, y = problem()
        xx, yy = (torch.as_tensor(oracles.half_squared(z, z)) for z in (x, y))
        solved = divergence(cost, xx, yy, a, b, solver=ad.Sinkhorn(epsilon=0.05))
        assert float(solved.contributions[0].sum()) == pytest.approx(solved.value / 2)
        assert float(solved.contributions[1].sum()) == pytest.approx(solved.value / 2)

    @examples(25)
    @given(
        seed=st.integers(0, 10**6),
        share=st.sampled_from([0.3, 0.05, 0.01]),
        dtype=st.sampled_from([torch.float32, torch.float64]),
    )
    def test_vanishes_on_equal_measures_in_any_order(self, seed, share, dtype):
        _, a, _, x, _ = problem(25, 25, seed=seed)
        order = torch.randperm(25, generator=torch.Generator().manual_seed(seed))
        costs = (
            torch.as_tensor(oracles.half_squared(p, q)).to(dtype)
            for p, q in ((x, x[order]), (x, x), (x[order], x[order]))
        )
        assert (
            divergence(*costs, a, a[order], solver=ad.Sinkhorn(epsilon=ad.Relative(share))).value
            == 0
        )

    def test_gaussians_in_closed_form(self):
        """S_ε between N(μ, σ²) and N(μ', σ²) is ½(μ − μ')² for every ε: a translation."""
        x = torch.randn(300, 1, dtype=torch.float64)
        costs = [
            torch.as_tensor(oracles.half_squared(p, q)) for p, q in ((x, x + 3), (x, x), (x, x))
        ]
        for epsilon in (0.05, 1.0, 20.0):
            assert divergence(*costs, solver=ad.Sinkhorn(epsilon=epsilon)).value == pytest.approx(
                4.5, abs=1e-6
            )


def test_potentials_that_meet_one_marginal_are_not_certified():
    """f = T(g) meets the rows whatever g is; the columns decide."""
    x = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
    cost, a = (x - x.T - 0.3).square() / 2, torch.full((12,), 1 / 12, dtype=torch.float64)
    solver, g = ad.Sinkhorn(epsilon=0.05), torch.zeros(12, dtype=torch.float64)
    solved = solver.solve(cost)
    f = -0.05 * torch.logsumexp((g - cost) / 0.05 + a.log(), dim=1)
    assert solver.certify(cost, a, a, (f, g)) is None
    assert solver.certify(cost, a, a, solved.potentials, slack=1e-7) is not None


class TestMisuse:
    @pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "big", None, True])
    def test_epsilon(self, epsilon):
        with pytest.raises(ad.InputError, match="epsilon must be"):
            ad.Sinkhorn(epsilon=epsilon)

    @pytest.mark.parametrize("solver", [ad.Sinkhorn(), ad.ExactOT()])
    def test_problems(self, solver):
        with pytest.raises(ad.InputError, match="matrix"):
            solver.solve(torch.zeros(3))
        with pytest.raises(ad.InputError, match="finite"):
            solver.solve(torch.tensor([[math.nan]]))
        with pytest.raises(ad.InputError, match="each of the 2"):
            solver.solve(torch.zeros(2, 2), torch.ones(3))
        with pytest.raises(ad.InputError, match="negative"):
            solver.solve(torch.zeros(2, 2), torch.tensor([1.0, -1.0]))
        with pytest.raises(ad.InputError, match="all be zero"):
            solver.solve(torch.zeros(2, 2), torch.zeros(2))

    def test_one_warning_with_the_error_and_the_remedy(self):
        cost, a, b, *_ = problem()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = ad.Sinkhorn(epsilon=1e-3, max_iter=20).solve(cost, a, b)
        assert not solution.converged and solution.marginal_error > 1e-8
        assert [warning.category for warning in caught] == [ad.ConvergenceWarning]
        assert f"{solution.marginal_error:.2e}" in str(caught[0].message)


class TestOwnSolver:
    def test_two_methods_are_enough(self):
        """A class that knows nothing of the package but ``Solution`` works in distances, flows and parts."""

        class Plain:
            def solve(self, cost, a=None, b=None, init=None):
                found = ad.ExactOT().solve(cost, a, b)
                assert isinstance(cost, torch.Tensor)
                return ad.ot.Solution(
                    found.value, found.potentials, 0.0, True, 0, 0.0, found.plan(), 1e-12
                )

            def solve_self(self, cost, a=None, init=None):
                return self.solve(cost, a, a)

        generator = torch.Generator().manual_seed(0)
        source = ad.datasets.gaussians(30, generator=generator)
        target = ad.datasets.gaussians(30, shift=(5.0, 0.0), generator=generator)
        exact = ad.otdd(source, target, solver=ad.ExactOT())
        for solver in (Plain(), ad.MiniBatch(Plain(), size=50)):
            assert ad.otdd(source, target, solver=solver).value == pytest.approx(exact.value)
        energy = ad.OTDD(target, solver=Plain())
        result = ad.flow(source, energy, integrator=ad.Euler(1.0), n_steps=1)
        assert result.values[1] < 0.1 * result.values[0]

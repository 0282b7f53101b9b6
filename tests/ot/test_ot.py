"""Solvers against POT, a plain float64 loop, geomloss and closed forms."""

import math

import numpy as np
import oracles
import ot as pot
import pytest
import torch
from oracles import cost as cost_of, weighted_points

import advect as ad
from advect.ot import divergence
from advect.ot.cost import BlockedCost


def problem(n=40, m=50, zeros=False):
    x, y, a, b = weighted_points(n, m, zeros=zeros)
    return cost_of(x, y), a, b, x, y


class TestExact:
    @pytest.mark.parametrize("zeros", [False, True])
    def test_value_plan_and_potentials_against_pot(self, zeros):
        cost, a, b, *_ = problem(zeros=zeros)
        found = ad.ExactOT().solve(cost, a, b)
        assert found.value == pytest.approx(pot.emd2(a.numpy(), b.numpy(), cost.numpy()), abs=1e-9)
        f, g = found.potentials
        assert float(a @ f + b @ g) == pytest.approx(found.value, abs=1e-9)  # strong duality
        # dual feasible, also where there is no mass
        assert float((cost - f[:, None] - g).min()) > -1e-9
        assert float((found.plan() * cost).sum()) == pytest.approx(found.value, abs=1e-9)
        torch.testing.assert_close(found.plan().sum(1), a, atol=1e-12, rtol=0)
        torch.testing.assert_close(found.plan().sum(0), b, atol=1e-12, rtol=0)
        assert found.converged and found.marginal_error < 1e-12 and found.epsilon == 0

    def test_self_problem_is_free_only_when_staying_is(self):
        *_, x, _ = problem()
        assert ad.ExactOT().solve_self(cost_of(x, x)).value == 0
        assert ad.ExactOT().solve_self(cost_of(x, x) + 1).value == pytest.approx(1, abs=1e-12)
        for share, free in ((0.9e-6, True), (1.1e-6, False)):  # the diagonal, of the largest cost
            near = cost_of(x, x)
            near.fill_diagonal_(share * float(near.max()))
            found = ad.ExactOT().solve_self(near)
            assert found.epsilon == 0 and (found.marginal_error == 0) == free
            assert (found.value == 0) == free and found.value_error <= float(near[0, 0])
            torch.testing.assert_close(found.plan(), torch.eye(40).double() / 40)
        swap = torch.tensor([[0.0, -1.0], [-1.0, 0.0]], dtype=torch.float64)
        blocks = BlockedCost.of(swap.__getitem__, (2, 2), room=1000, like=swap)
        for cost in (swap, blocks):
            assert ad.ExactOT().solve_self(cost).value == pytest.approx(-1)

    @pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-12, 1e12])
    def test_scales_with_the_cost(self, scale):
        cost, a, b, *_ = problem()
        whole, found = (ad.ExactOT().solve(s * cost, a, b) for s in (1.0, scale))
        assert found.converged
        assert found.value == pytest.approx(scale * whole.value, rel=1e-9, abs=0)

    def test_the_error_is_stated_also_where_it_gives_up(self):
        cost, a, b, *_ = problem(200, 200)
        rounding = 2.0**-52 * (8 + math.sqrt(200)) * float(cost.max())
        for matrix in (cost, -cost):
            found = ad.ExactOT().solve(matrix, a, b)
            (f, g), marginal = found.potentials, found.marginal_error - 2.0**-52
            gap = abs(found.value - float(a @ f + b @ g)) + max(
                0.0, float((f[:, None] + g - matrix).max())
            )
            wanted = gap + marginal * float(cost.max()) + rounding
            assert found.value_error == pytest.approx(wanted, abs=1e-16) and wanted < 1e-11
        found = ad.ExactOT().solve(cost, a, b)
        with pytest.warns(ad.errors.ConvergenceWarning, match="max_iter"):
            stopped = ad.ExactOT(max_iter=5).solve(cost, a, b)
        assert not stopped.converged
        assert abs(stopped.value - found.value) <= stopped.value_error


class TestSinkhorn:
    @pytest.mark.parametrize("zeros", [False, True])
    @pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.01, 0.002])
    def test_against_a_plain_loop(self, epsilon, zeros):
        cost, a, b, *_ = problem(zeros=zeros)
        value, f, g, plan = oracles.sinkhorn_loop(cost, a, b, epsilon)
        found = ad.Sinkhorn(epsilon=epsilon).solve(cost, a, b)
        assert found.converged and found.marginal_error <= 1e-8
        assert found.value == pytest.approx(value, abs=1e-7 * float(cost.mean()))
        np.testing.assert_allclose(found.plan(), plan, atol=1e-7)
        # potentials are unique up to a constant, zero weights included
        assert np.ptp(found.potentials[0].numpy() - f) < 1e-5
        assert np.ptp(found.potentials[1].numpy() - g) < 1e-5
        primal = oracles.primal_value(found.plan(), cost, a, b, epsilon)
        assert found.value == pytest.approx(primal, abs=1e-6)
        # the stated error is a bound, and no more than the marginal error and rounding explain
        most = float(cost.max()) * (found.marginal_error + 16 * torch.finfo(cost.dtype).eps)
        assert abs(found.value - value) <= found.value_error + 1e-12 and found.value_error <= most
        narrow = ad.Sinkhorn(epsilon=epsilon).solve(cost.float(), a, b)
        assert narrow.converged and narrow.plan().dtype == torch.float32
        assert narrow.value == pytest.approx(value, rel=1e-4)

    def test_between_exact_transport_and_independence(self):
        cost, a, b, *_ = problem()
        exact = ad.ExactOT().solve(cost, a, b).value
        solvers = [ad.Sinkhorn(epsilon=e, tol=1e-6, max_iter=50_000) for e in (1e-1, 1e-2, 1e-3)]
        gaps = [solver.solve(cost, a, b).value - exact for solver in solvers]
        assert gaps[0] > gaps[1] > gaps[2] > 0 and gaps[2] < 0.02 * exact
        independent = ad.Sinkhorn(epsilon=1e6).solve(cost, a, b).value
        assert independent == pytest.approx(float(a @ cost @ b), rel=1e-5)

    @pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6, 1e12])
    @pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
    def test_scales_with_the_cost(self, scale, dtype, rel):
        cost, a, b, *_ = problem()
        reference = ad.Sinkhorn(epsilon=ad.Relative(0.02)).solve(cost, a, b).value
        found = ad.Sinkhorn(epsilon=ad.Relative(0.02)).solve((cost * scale).to(dtype), a, b)
        assert found.converged and found.value == pytest.approx(reference * scale, rel=rel)

    def test_groups_that_float32_cannot_connect(self):
        """Two far groups whose masses differ a little: the surplus has to cross where exp(−C/ε) underflows in float32."""
        generator = torch.Generator().manual_seed(0)
        x, y = (torch.randn(600, 2, generator=generator) for _ in range(2))
        x[:300, 0] += 60
        y[:310, 0] += 60
        cost, solver = cost_of(x, y).float(), ad.Sinkhorn(epsilon=1.0)
        found = solver.solve(cost)
        assert found.converged
        assert found.value == pytest.approx(solver.solve(cost.double()).value, rel=1e-5)

    @pytest.mark.parametrize("reach", [None, 1e3])
    def test_the_error_of_one_pair_is_rounding(self, reach):
        """Two units of |f| + |g| + |C|, where the potentials sum to the cost."""
        cost = torch.tensor([[1e4]], dtype=torch.float64)
        found = ad.Sinkhorn(0.1, reach=reach).solve(cost)
        assert found.value_error == pytest.approx(4 * torch.finfo(cost.dtype).eps * 1e4, rel=0.1)

    def test_a_start_is_the_same_whatever_constant_is_moved_between_its_potentials(self):
        cost, a, b, *_ = problem()
        solver = ad.Sinkhorn(0.02)
        f, g = solver.solve(cost, a, b).potentials
        again = solver.solve(cost, a, b, init=(f + 1e6, g - 1e6))
        assert again.n_iter <= 4 and again.value_error < 1e-8

    def test_zero_cost_and_single_points(self):
        assert ad.Sinkhorn().solve(torch.zeros(3, 4)).value == pytest.approx(0, abs=1e-25)
        assert ad.Sinkhorn().solve(torch.zeros(3, 3)).converged
        for cost in ([[2.0]], [[1.0, 3.0]]):
            assert ad.Sinkhorn(epsilon=0.1).solve(torch.tensor(cost)).value == pytest.approx(2.0)

    def test_potentials_that_meet_one_marginal_are_not_certified(self):
        """f = T(g) meets the rows whatever g is; the columns decide."""
        x = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
        cost, a = (x - x.T - 0.3).square() / 2, torch.full((12,), 1 / 12, dtype=torch.float64)
        solver, g = ad.Sinkhorn(epsilon=0.05), torch.zeros(12, dtype=torch.float64)
        f = -0.05 * torch.logsumexp((g - cost) / 0.05 + a.log(), dim=1)
        assert solver.certify(cost, a, a, (f, g)) is None
        potentials = solver.solve(cost).potentials
        assert solver.certify(cost, a, a, potentials, slack=1e-7) is not None
        for scale in (1.0, 1e-3):
            solver = ad.Sinkhorn(epsilon=0.05 * scale, tol=1e-14)
            f, g = solver.solve(scale * cost).potentials
            for off, kept in ((1e-14, True), (1e-11, False)):  # as much as rounding, and more
                found = solver.certify(scale * cost, a, a, (f + solver.epsilon * off, g))
                assert (found is not None) == kept


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
            moved = cost_of(x + step, y).to(dtype)
            cold, warm = solver.solve(moved, a, b), solver.solve(moved, a, b, init=start.potentials)
            assert warm.converged and warm.n_iter * factor <= cold.n_iter
            assert tol or warm.value == pytest.approx(cold.value, rel=tolerance)
            assert solver.solve(moved, a, b, init=cold.potentials).n_iter <= 2

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(3))
    def test_a_tiny_epsilon_is_reached_by_slower_annealing(self, seed):
        # Once: annealing by fifths left potentials from which 10,000 iterations led nowhere.
        generator = torch.Generator().manual_seed(seed)
        y, start = (torch.randn(500, 2, generator=generator) for _ in range(2))
        cost = cost_of((start + y[torch.randperm(500, generator=generator)]) / 2, y).float()
        solver = ad.Sinkhorn(epsilon=2e-4, tol=1e-3)
        found = solver.solve(cost)
        assert found.converged and found.n_iter < 3000
        plan = found.plan().double()
        assert sum(float((plan.sum(dim) - 1 / 500).abs().sum()) for dim in (0, 1)) < 2e-3
        junk = (torch.zeros(500, dtype=torch.float64), torch.zeros(500, dtype=torch.float64))
        assert solver.solve(cost, init=junk).value == pytest.approx(found.value, rel=1e-3)

    @pytest.mark.parametrize("size", [1e3, 1e8])
    def test_a_useless_start_still_ends_right(self, size):
        cost, a, b, *_ = problem()
        junk = tuple(size * torch.randn(n, dtype=torch.float64) for n in cost.shape)
        cold, warm = (ad.Sinkhorn(epsilon=0.1).solve(cost, a, b, init) for init in (None, junk))
        assert warm.value == pytest.approx(cold.value, rel=1e-7)


@pytest.mark.parametrize("epsilon", [1.0, 0.05])
def test_divergences_against_plain_loops_and_geomloss(epsilon):
    from geomloss import SamplesLoss

    cost, a, b, x, y = problem()
    costs, solver = (cost, cost_of(x, x), cost_of(y, y)), ad.Sinkhorn(epsilon=epsilon)
    expected = oracles.divergence_loop(*costs, a, b, epsilon)
    solved = divergence(*costs, a, b, solver=solver)
    assert solved.value == pytest.approx(expected, abs=1e-7)
    single = divergence(*(part.float() for part in costs), a, b, solver=solver)
    assert single.value == pytest.approx(expected, rel=1e-4)
    options = {"scaling": 0.99, "debias": True, "backend": "tensorized"}
    loss = SamplesLoss("sinkhorn", p=2, blur=math.sqrt(epsilon), **options)
    # its own stopping is no closer
    assert solved.value == pytest.approx(float(loss(a, x, b, y)), rel=1e-3)
    for contributions in solved.contributions:  # half of the value for each dataset
        assert float(contributions.sum()) == pytest.approx(solved.value / 2)


class TestMisuse:
    @pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "big", None, True])
    def test_epsilon(self, epsilon):
        with pytest.raises(ad.InputError, match="epsilon must be"):
            ad.Sinkhorn(epsilon=epsilon)

    @pytest.mark.parametrize("solver", [ad.Sinkhorn(), ad.ExactOT(), ad.Sinkhorn(memory_limit=1)])
    @pytest.mark.parametrize(
        ("problem", "word"), [([torch.zeros(3)], "matrix"), ([torch.tensor([[math.nan]])], "finite"),
        ([torch.zeros(2, 2), torch.ones(3)], "each of the 2"),
        ([torch.zeros(2, 2), torch.tensor([1.0, -1.0])], "negative"),
        ([torch.zeros(2, 2), torch.zeros(2)], "all be zero")],
    )  # fmt: skip
    def test_problems(self, solver, problem, word):
        with pytest.raises(ad.InputError, match=word):
            solver.solve(*problem)


def test_two_methods_are_enough_for_a_solver():
    """A class that knows nothing of the package but ``Solution`` works in distances, flows and parts."""

    class Plain:
        def solve(self, cost, a=None, b=None, init=None):
            assert isinstance(cost, torch.Tensor)
            found = ad.ExactOT().solve(cost, a, b)
            facts = found.value, found.potentials, 0.0, True, 0, 0.0, found.plan(), 1e-12
            return ad.ot.Solution(*facts)

        def solve_self(self, cost, a=None, init=None):
            return self.solve(cost, a, a)

    generator = torch.Generator().manual_seed(0)
    source = ad.datasets.gaussians(30, generator=generator)
    target = ad.datasets.gaussians(30, shift=(5.0, 0.0), generator=generator)
    exact = ad.otdd(source, target, solver=ad.ExactOT())
    for solver in (Plain(), ad.MiniBatch(Plain(), size=50)):
        assert ad.otdd(source, target, solver=solver).value == pytest.approx(exact.value)
    result = ad.flow(source, ad.OTDD(target, solver=Plain()), integrator=ad.Euler(1.0), n_steps=1)
    assert result.values[1] < 0.1 * result.values[0]

"""Transport with a reach: against POT, closed forms, plain loops, limits and differences."""

import math
import warnings

import numpy as np
import ot as pot
import pytest
import torch
from oracles import cost as cost_of, kl, primal_value, sinkhorn_loop, slopes

import advect as ad
from advect.ot import divergence

WIDE = torch.float64


def points(n, m, d=2, shift=0.7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(k, d, generator=generator, dtype=WIDE) for k in (n, m))
    a, b = (torch.rand(k, generator=generator, dtype=WIDE) + 0.1 for k in (n, m))
    return x, y + shift, a / a.sum(), b / b.sum()


@pytest.mark.parametrize(("epsilon", "reach"), [(0.1, 0.5), (0.5, 1.0), (0.3, 0.1)])
def test_the_plan_is_that_of_pot(epsilon, reach):
    x, y, a, b = points(20, 15)
    cost = cost_of(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"reg_type": "kl", "c": np.outer(a, b), "numItermax": 3000, "stopThr": 1e-13}
        parts = [part.numpy() for part in (a, b, cost)]
        plan = pot.unbalanced.sinkhorn_unbalanced(*parts, epsilon, reach**2, **options)
    found = ad.Sinkhorn(epsilon, tol=1e-12, reach=reach).solve(cost, a, b)
    assert found.converged
    np.testing.assert_allclose(found.plan().numpy(), plan, rtol=1e-7, atol=1e-14)
    left = kl(found.plan().sum(1), a) + kl(found.plan().sum(0), b)
    primal = primal_value(found.plan(), cost, a, b, epsilon) + reach**2 * left
    assert found.value == pytest.approx(primal, rel=1e-10)


@pytest.mark.parametrize("apart", [1e-3, 1.0, 4.0, 30.0])
def test_two_single_points(apart):
    """m = exp(−c/(2ρ + ε)) is carried, and (2ρ + ε)(1 − m) is the value."""
    epsilon, reach, c = 0.1, 1.5, apart**2 / 2
    found = ad.Sinkhorn(epsilon, reach=reach).solve(torch.tensor([[c]], dtype=WIDE))
    total = 2 * reach**2 + epsilon
    assert found.mass == pytest.approx(math.exp(-c / total), rel=1e-9, abs=1e-300)
    assert found.value == pytest.approx(-total * math.expm1(-c / total), rel=1e-9)


def test_a_large_reach_leaves_nothing():
    x, y, a, b = points(30, 25, seed=2)
    cost = cost_of(x, y)
    whole = ad.Sinkhorn(0.1).solve(cost, a, b)
    gaps = []
    for reach in (10.0, 100.0, 1000.0):
        found = ad.Sinkhorn(0.1, reach=reach).solve(cost, a, b)
        assert found.converged and found.mass < 1 and found.value < whole.value
        gaps.append(whole.value - found.value)
        np.testing.assert_allclose(found.plan(), whole.plan(), atol=1 / reach**2)
    for reach in (1e5, 1e8):  # as far as float64 tells, the same, and known as well
        found = ad.Sinkhorn(0.1, reach=reach).solve(cost, a, b)
        assert found.converged and found.value_error < 1e-6
        assert abs(found.value - whole.value) <= found.value_error + whole.value_error + 1e-8
    # the first term of what a reach takes off is of order 1/ρ
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(100, rel=0.01)


def test_points_out_of_reach():
    """Their share of mass is below the least float there is; the others do not feel them."""
    x, y, a, b = points(30, 25, seed=5)
    x[:3] += 1e3
    y[:2] -= 7e2
    cost = cost_of(x, y)
    found = ad.Sinkhorn(0.05, reach=1.0).solve(cost, a, b)
    value, _, _, plan = sinkhorn_loop(cost, a, b, 0.05, tol=1e-15, reach=1.0)
    assert found.converged and abs(found.value - value) <= found.value_error
    assert bool((found.plan()[:3] == 0).all())
    np.testing.assert_allclose(found.plan(), plan, atol=1e-8)
    narrow = ad.Sinkhorn(0.05, reach=1.0).solve(cost.float(), a, b)
    assert narrow.converged and narrow.value == pytest.approx(value, rel=1e-5)
    lost = ad.Sinkhorn(0.05, reach=1.0).solve(cost_of(x, y + 1e4), a, b)
    assert lost.mass == 0 and lost.value == pytest.approx(2.05) and not lost.plan().any()


@pytest.mark.filterwarnings("ignore::advect.errors.ConvergenceWarning")
def test_what_is_stated_holds_whatever_the_tolerance():
    x, y, a, b = points(40, 35, seed=6)
    cost = cost_of(x, y)
    for epsilon, reach in ((0.02, 0.7), (0.3, 5.0), (0.05, 40.0)):
        best = ad.Sinkhorn(epsilon, tol=1e-13, reach=reach).solve(cost, a, b)
        for tol in (0.3, 1e-2, 1e-4):
            loose = ad.Sinkhorn(epsilon, tol=tol, reach=reach).solve(cost, a, b)
            assert loose.value <= best.value + best.value_error  # the dual is below
            assert best.value - loose.value <= loose.value_error
        cut = ad.Sinkhorn(epsilon, max_iter=1, reach=reach).solve(cost, a, b)
        assert not cut.converged and best.value - cut.value <= cut.value_error


def test_points_without_mass():
    x, y, a, b = points(20, 15, seed=9)
    a[:4] = 0
    a /= a.sum()
    cost, solver = cost_of(x, y), ad.Sinkhorn(0.1, reach=0.8)
    found, inner = solver.solve(cost, a, b), solver.solve(cost[4:], a[4:], b)
    assert found.value == pytest.approx(inner.value, rel=1e-9) and not found.plan()[:4].any()
    # the slope at a point without mass is that of adding some
    step = 1e-7
    more = a + step * torch.eye(20, dtype=WIDE)[0]
    there = sinkhorn_loop(cost, more, b, 0.1, tol=1e-15, reach=0.8)[0] + 0.1 * (b.sum() * step)
    assert (there - found.value) / step == pytest.approx(float(found.slopes[0][0]), rel=1e-4)


def test_slopes_in_the_weights():
    x, y, a, b = points(12, 10, seed=10)
    cost, solver = cost_of(x, y), ad.Sinkhorn(0.2, tol=1e-12, reach=0.9)
    found, step = solver.solve(cost, a, b).slopes[0], 1e-6
    for i, j in ((0, 1), (3, 7)):
        way = torch.zeros_like(a)  # weights stay of sum one
        way[i], way[j] = step, -step
        ends = [solver.solve(cost, a + sign * way, b).value for sign in (1, -1)]
        wanted = pytest.approx(float(found[i] - found[j]), rel=1e-6)
        assert (ends[0] - ends[1]) / (2 * step) == wanted


# The divergence


def triple(x, y, a, b, solver):
    return divergence(cost_of(x, y), cost_of(x, x), cost_of(y, y), a, b, solver=solver)


@pytest.mark.parametrize("reach", [0.2, 1.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.02, 1.0])
def test_the_divergence_is_zero_at_home_and_positive_elsewhere(epsilon, reach):
    solver = ad.Sinkhorn(epsilon, reach=reach)
    x, y, a, b = points(30, 20, seed=11)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    same = triple(x, x[order], a, a[order], solver)
    assert same.equal and same.value <= same.error < 1e-10
    for seed in range(5):
        x, y, a, b = points(20, 25, seed=seed, shift=0.1 * seed)
        assert triple(x, y, a, b, solver).signed > 0
    tilted = a.flip(0)  # the same points with other weights
    assert triple(x, x, a, tilted, solver).signed > 0


def test_the_gradient_is_that_of_differences():
    x, y, a, b = points(5, 6, seed=13)
    target = ad.LabeledDataset(y, [0, 0, 0, 1, 1, 1], weights=b)
    solver = ad.Sinkhorn(0.4, tol=1e-12, reach=1.2)

    def energy(points):
        data = ad.LabeledDataset(points, [0, 0, 0, 1, 1], weights=a)
        return ad.otdd(data, target, solver=solver).loss

    for seed in range(3):
        found, wanted = slopes(energy, x, seed=seed)
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("reach", [0.0, -1.0, math.inf, math.nan, "far"])
def test_a_reach_is_a_positive_number(reach):
    with pytest.raises(ad.InputError, match="reach"):
        ad.Sinkhorn(reach=reach)

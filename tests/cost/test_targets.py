"""Costs of continuous targets against oracles: the explicit matrix, POT, closed forms, differences."""

import math

import oracles
import ot
import pytest
import torch

import advect as ad

EXACT = ad.ExactOT()


def pair(n=14, m=11, q=1, seed=0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    sets = []
    for k, size in ((0.0, n), (1.5, m)):
        x = torch.randn(size, 3, generator=draw, dtype=torch.float64) + k
        y = x[:, :q] * 4 + torch.randn(size, q, generator=draw, dtype=torch.float64) + 3 * k
        weights = torch.rand(size, generator=draw, dtype=torch.float64) + 0.1
        sets.append(ad.LabeledDataset(x.to(dtype), targets=y, weights=weights))
    return sets


def explicit(a, b, w):
    """½ (‖x − x'‖² + Σ w_j (y_j − y'_j)²), entry by entry."""
    x = (a.x[:, None] - b.x[None]).square().sum(-1)
    y = (a.targets[:, None] - b.targets[None]).square() * torch.as_tensor(w, dtype=torch.float64)
    return (x + y.sum(-1)) / 2


def variances(data, values):
    middle = data.weights @ values
    return data.weights @ (values - middle).square()


@pytest.mark.parametrize("weight", [0.3, 1.0, 25.0])
@pytest.mark.parametrize("q", [1, 2])
def test_values_are_the_formula(weight, q):
    a, b = pair(q=q)
    cost = ad.GroundCost(label=ad.TargetValues(scaled=False), label_weight=weight)
    assert torch.allclose(cost.between(a, b).matrix(), explicit(a, b, weight), rtol=1e-12)


@pytest.mark.parametrize("q", [1, 2])
def test_the_default_weight_makes_targets_count_like_features(q):
    a, b = pair(q=q)
    spread = sum(variances(d, d.x).sum() for d in (a, b))
    w = spread / (q * sum(variances(d, d.targets) for d in (a, b)))
    cost = ad.GroundCost(label=ad.TargetValues()).fitted(a, b)
    assert torch.allclose(cost.between(a, b).matrix(), explicit(a, b, w), rtol=1e-10)


def test_targets_that_are_constant_on_each_side_are_weighted_by_what_is_between_them():
    """1 and 3 deviate by 1 from their middle."""
    a, b = pair()
    a, b = a.replace(targets=0 * a.targets + 1), b.replace(targets=0 * b.targets + 3)
    spread = sum(variances(d, d.x).sum() for d in (a, b)) / 2
    cost = ad.GroundCost(label=ad.TargetValues()).fitted(a, b)
    assert torch.allclose(cost.between(a, b).matrix(), explicit(a, b, spread), rtol=1e-10)


def test_the_distance_is_that_of_pot():
    a, b = pair()
    for label in (ad.TargetValues(), ad.TargetValues(scaled=False)):
        cost = ad.GroundCost(label=label)
        found = ad.otdd(a, b, cost=cost, solver=EXACT)
        matrix = cost.fitted(a, b).between(a, b).matrix().numpy()
        # exact transport has no self terms: the energy is the value of POT
        oracle = ot.emd2(a.weights.numpy(), b.weights.numpy(), matrix)
        assert found.energy == pytest.approx(oracle, rel=1e-9)
        assert ad.otdd(b, a, cost=cost, solver=EXACT).energy == pytest.approx(oracle, rel=1e-9)


def test_values_are_the_default_for_targets_without_labels():
    a, b = pair()
    assert ad.otdd(a, b, solver=EXACT).value == pytest.approx(
        ad.otdd(a, b, cost=ad.GroundCost(label=ad.TargetValues()), solver=EXACT).value
    )
    assert ad.OTDD(b).cost.label == ad.TargetValues()
    named = ad.LabeledDataset(b.x, [i % 2 for i in range(len(b))], targets=b.targets)
    assert ad.OTDD(named).cost.label == ad.Bures()


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_a_monotone_map_in_closed_form(dtype, rel):
    """(x + t, 3y − 2) is the gradient of a convex function, so it is the optimal map."""
    a, _ = pair(dtype=dtype)
    b = a.replace(x=a.x + torch.tensor([3.0, 0.0, 4.0], dtype=dtype), targets=3 * a.targets - 2)
    cost = ad.GroundCost(label=ad.TargetValues(scaled=False), label_weight=6.0)
    moved = float(a.weights @ (2 * a.targets.double() - 2).square()[:, 0])
    found = ad.otdd(a, b, cost=cost, solver=EXACT).energy
    assert found == pytest.approx((25 + 6 * moved) / 2, rel=rel)


@pytest.mark.parametrize("unit", [1e-8, 1e8])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_values_do_not_depend_on_units(unit, offset):
    a, b = pair()
    moved = [d.replace(targets=unit * (d.targets + offset)) for d in (a, b)]
    there = ad.otdd(*moved, solver=EXACT).value
    assert there == pytest.approx(ad.otdd(a, b, solver=EXACT).value, rel=1e-6)


def test_gradients_in_targets_are_differences():
    a, b = pair()
    cost = ad.GroundCost(label=ad.TargetValues())
    energy = ad.OTDD(b, cost=cost.fitted(a, b), solver=ad.Sinkhorn(epsilon=0.5, tol=1e-10))
    found, expected = oracles.slopes(lambda y: energy(a.replace(targets=y)), a.targets)
    assert found == pytest.approx(expected, rel=1e-5)


ODD = {
    "one sample": (torch.zeros(1, 2), [3.0]),
    "one target": (torch.rand(6, 2, generator=torch.Generator().manual_seed(0)), [7.0] * 6),
    "one point": (torch.ones(6, 2), range(6)),
    "ties": (torch.rand(6, 2, generator=torch.Generator().manual_seed(0)), [0, 0, 0, 1, 1, 1]),
    "no mass": (torch.rand(3, 2, generator=torch.Generator().manual_seed(0)), [0, 1, 2]),
}


@pytest.mark.parametrize("name", ODD)
def test_ordinary_oddities(name):
    x, y = ODD[name]
    weights = [1.0, 0.0, 1.0] if name == "no mass" else None
    a = ad.LabeledDataset(x.double(), targets=list(y), weights=weights)
    b = ad.LabeledDataset(x.double() + 2, targets=[v + 1.0 for v in y], weights=weights)
    cost = ad.GroundCost(label=ad.TargetValues())
    assert math.isfinite(ad.otdd(a, b, cost=cost, solver=EXACT).value)
    assert ad.otdd(a, a, cost=cost, solver=EXACT).value == 0
    result = ad.flow(a, ad.OTDD(b, cost=cost, solver=EXACT), n_steps=3)
    assert torch.isfinite(result.dataset.x).all() and result.values[-1] < result.values[0]


A, B = pair()
PLAIN = ad.LabeledDataset(A.x, [0] * len(A))
BY_VALUES = ad.GroundCost(label=ad.TargetValues())


@pytest.mark.parametrize(
    ("call", "word"), [(lambda: ad.otdd(A, PLAIN), "needs continuous targets"),
    (lambda: ad.otdd(PLAIN, PLAIN, cost=BY_VALUES), "needs continuous targets"),
    (lambda: ad.otdd(A, B, cost=ad.GroundCost(label_weight=2.0)), "compares classes"),
    (lambda: ad.otdd(A, pair(q=2)[1]), "the same targets"), (lambda: ad.audit(A), "needs classes"),
    (lambda: ad.sliced_otdd(A, B), "needs classes")],
)  # fmt: skip
def test_errors(call, word):
    with pytest.raises(ad.InputError, match=word):
        call()

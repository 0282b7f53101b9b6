"""Between datasets: laws on Bures geodesics and in their barycenters, samples along plans, and free-support
barycenters, against closed forms, POT, and the laws of geodesics."""

import math
import warnings

import numpy as np
import ot
import pytest
import torch
from flow_cases import seeded

import advect as ad
from advect.data.laws import Factored, Full
from advect.data.laws.between import geodesic
from advect.ot.plan import DensePlan, ScatteredPlan

EXACT = ad.ExactOT()
BLIND = ad.GroundCost(label=ad.NoLabels())


def factored(k, dim, rank, seed=0, scale=1.0):
    generator = seeded(seed)
    means = torch.randn(k, dim, generator=generator, dtype=torch.float64)
    rows = torch.randn(k * rank, dim, generator=generator, dtype=torch.float64)
    return ad.Gaussians(scale * means, Factored(scale * rows, (rank,) * k))


def far(a, b, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.errors.ConvergenceWarning)  # of measures that are equal
        return ad.otdd(a, b, solver=EXACT, **options).value


def blobs(n, seed, shift=(0.0, 0.0), names=None, dim=2):
    """Three classes of unequal sizes and weights, in float64."""
    generator = seeded(seed)
    y = torch.arange(n) % 3 * (torch.arange(n) % 4 > 0)
    centres = 4 * torch.randn(3, dim, generator=generator, dtype=torch.float64)
    x = centres[y] + torch.randn(n, dim, generator=generator, dtype=torch.float64)
    x[:, : len(shift)] += torch.tensor(shift, dtype=torch.float64)
    weights = 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)
    classes = names or ("a", "b", "c")
    return ad.LabeledDataset(x, y, weights, classes)


@pytest.mark.parametrize("ranks", [(4, 4), (2, 3), (6, 1), (0, 2), (1, 1), (0, 0)])
@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
def test_laws_move_on_a_geodesic_whatever_their_rank(ranks, scale):
    a, b = (factored(3, 4, rank, seed, scale) for seed, rank in enumerate(ranks))
    whole = ad.bures(a, b).diagonal().sqrt()
    for t in (0.0, 0.3, 0.5, 1.0):
        between = geodesic(a, b, t)
        assert torch.allclose(ad.bures(a, between).diagonal().sqrt(), t * whole, atol=1e-6 * scale)
        back = geodesic(b, a, 1 - t)  # the same way back
        assert torch.allclose(between.covariances(), back.covariances(), atol=1e-11 * scale**2)
        rest = ad.bures(between, b).diagonal().sqrt()
        assert torch.allclose(rest, (1 - t) * whole, atol=1e-6 * scale)


def test_a_geodesic_is_the_closed_form_of_full_covariances():
    """((1 − t) I + tA) S ((1 − t) I + tA) with A the linear optimal map, by roots of matrices."""
    a, b = factored(1, 3, 5, 0), factored(1, 3, 5, 1)
    s, other = (laws.covariances()[0].numpy() for laws in (a, b))
    A, _ = ot.gaussian.bures_wasserstein_mapping(np.zeros(3), np.zeros(3), s, other)
    for t in (0.2, 0.7):
        M = (1 - t) * np.eye(3) + t * A
        assert np.allclose(geodesic(a, b, t).covariances()[0].numpy(), M @ s @ M, atol=1e-10)
    full = geodesic(ad.Gaussians(a.means, Full(a.covariances())), b, 0.7)
    assert torch.allclose(full.covariances(), geodesic(a, b, 0.7).covariances(), atol=1e-9)


def test_pairs_of_a_plan_are_those_of_its_matrix():
    matrix = torch.tensor([[0.25, 0.0, 0.25], [0.0, 0.5, 0.0]])
    part = DensePlan(matrix)
    orders = torch.tensor([1, 0]), torch.arange(2)
    twice = ScatteredPlan([(0.5, rows, torch.arange(3), part) for rows in orders], (2, 3))
    weights = torch.tensor([0.5, 0.0, 0.5])
    exact = EXACT.solve(torch.rand(3, 3, generator=seeded()), weights, weights).coupling
    for plan in (part, twice, exact):
        i, j, mass = plan.entries()
        found = torch.zeros(plan.shape, dtype=torch.float64).index_put_((i, j), mass)
        assert torch.allclose(found, plan.dense().double()) and bool((mass > 0).all())


DIAGONAL = ad.GroundCost(label=ad.Bures(diagonal=True))


@pytest.mark.parametrize(
    "cost", [ad.GroundCost(), BLIND, DIAGONAL, ad.GroundCost(label_weight=7.0)]
)
def test_interpolation_is_a_geodesic_labels_included(cost):
    a, b = blobs(31, 0), blobs(22, 1, (5.0, 1.0), ("u", "v", "c"))
    if cost is DIAGONAL:  # a space of its own, where laws are diagonal
        a, b = (data.replace(law=data.laws().diagonal()) for data in (a, b))
    whole = far(a, b, cost=cost)
    for t in (0.0, 0.25, 0.5, 0.9, 1.0):
        between = ad.interpolate(a, b, t, cost=cost).dataset
        ends = [far(a, between, cost=cost), far(between, b, cost=cost)]
        assert ends == pytest.approx([t * whole, (1 - t) * whole], abs=2e-6 * whole)
        assert len(between) <= 31 + 22 - 1
        assert math.isclose(float(between.weights.sum()), 1.0)


def test_the_ends_are_the_datasets():
    a, b = blobs(31, 0), blobs(22, 1, (5.0, 1.0))
    for t, data in ((0.0, a), (1.0, b)):
        between = ad.interpolate(a, b, t)
        rows = between.rows[:, int(t)]
        assert torch.equal(between.dataset.x, data.x[rows])
        assert between.dataset.labels == [data.labels[row] for row in rows.tolist()]
        assert torch.allclose(rows.bincount(between.dataset.weights), data.weights, atol=1e-12)
        assert float(ad.bures(between.dataset.laws(), data.laws()).amin(dim=1).max()) < 1e-10


def test_soft_labels_are_shares_of_both_sides():
    a, b = blobs(30, 0), blobs(30, 1, names=("x", "b", "y"))
    between = ad.interpolate(a, b, 0.25)
    assert between.dataset.classes == ("a", "b", "c", "x", "y")
    assert between.probabilities.sum(dim=1).tolist() == pytest.approx([1] * len(between.rows))
    for row, (i, j) in enumerate(between.rows.tolist()):
        own, other = a.labels[i], b.labels[j]
        share = between.probabilities[row, between.dataset.classes.index(own)]
        assert share == (1.0 if own == other else 0.75)
        assert between.dataset.labels[row] == own
    half = ad.interpolate(a, b, 0.5)  # of equal shares the first dataset's
    assert half.dataset.labels == [a.labels[i] for i in half.rows[:, 0].tolist()]
    late = ad.interpolate(a, b, 0.75)
    assert late.dataset.labels == [b.labels[j] for j in late.rows[:, 1].tolist()]
    assert set(half.pairs) == {(a.labels[i], b.labels[j]) for i, j in half.rows.tolist()}


def test_samples_without_labels_are_carried_by_features_alone():
    a, b = blobs(20, 0), blobs(20, 1)
    b = b.replace(y=torch.where(torch.arange(20) < 5, -1, b.y))
    between = ad.interpolate(a, b, 0.75, cost=BLIND)
    unknown = b.y[between.rows[:, 1]] < 0
    assert between.dataset.law is None
    assert torch.equal(between.dataset.y < 0, unknown)
    assert torch.allclose(between.probabilities[unknown].sum(dim=1), torch.tensor(0.25).double())
    with pytest.raises(ad.InputError, match="label for each sample"):
        ad.interpolate(a, b, 0.5)


def test_drawn_pairs_have_equal_weights_and_come_as_often_as_their_mass():
    a, b = blobs(60, 0), blobs(80, 1, (6.0, 0.0))
    whole = ad.interpolate(a, b, 0.5)
    some = ad.interpolate(a, b, 0.5, size=400, seed=seeded())
    assert len(some.dataset) == 400 and float(some.dataset.weights.std()) < 1e-15
    drawn, pairs = some.rows.tolist(), whole.rows.tolist()
    assert all(pair in pairs for pair in drawn)
    for pair, mass in zip(pairs, whole.dataset.weights.tolist(), strict=True):
        assert abs(drawn.count(pair) - 400 * mass) < 1
    assert torch.equal(some.dataset.x, ad.interpolate(a, b, 0.5, size=400, seed=seeded()).dataset.x)


def test_translations_and_scales_go_through():
    a, b = blobs(20, 0), blobs(25, 1, (6.0, 0.0))
    here = ad.interpolate(a, b, 0.3).dataset
    for factor, shift in ((1.0, 1e6), (1e-8, 0.0), (1e8, 0.0)):
        moved = [data.replace(x=factor * data.x + shift) for data in (a, b)]
        there = ad.interpolate(*moved, 0.3).dataset
        assert torch.allclose((there.x - shift) / factor, here.x, atol=1e-8)


def test_laws_of_single_samples_and_single_sample_classes():
    a = ad.LabeledDataset([[0.0, 0.0], [5.0, 5.0]], ["a", "b"]).to(dtype=torch.float64)
    b = ad.JointVariableLabels().start(blobs(7, 1))
    between = ad.interpolate(a, b, 0.5)
    assert between.dataset.law is not None
    whole = far(a, b)
    assert math.isclose(far(a, between.dataset), whole / 2, rel_tol=1e-6)
    assert torch.equal(ad.interpolate(a, a, 0.5).dataset.x, a.x)


def test_a_path_has_the_same_pairs_at_each_position():
    path = ad.interpolate(blobs(20, 0), blobs(25, 1, (6.0, 0.0)), [0, 0.5, 1])
    middle = (path[0].dataset.x + path[2].dataset.x) / 2
    assert torch.allclose(path[1].dataset.x, middle, atol=1e-12)
    assert list(path[1].figures()) == ["Pairs of samples"]
    assert "distance of a and b" in str(path[1])


def test_entropic_plans_have_more_pairs_and_nearly_the_same_ends():
    a, b = blobs(20, 0), blobs(25, 1, (6.0, 0.0))
    between = ad.interpolate(a, b, 0.0, solver=ad.Sinkhorn())
    assert len(between.dataset) > 20 + 25
    mass = between.rows[:, 0].bincount(between.dataset.weights.double())
    assert float((mass - a.weights).abs().sum()) <= 2 * between.distance.marginal_error + 1e-9


def test_errors():
    a, b = blobs(5, 0), blobs(5, 1)
    for call, keyword in {
        lambda: ad.interpolate(a, b, 1.5): "0 to 1",
        lambda: ad.interpolate(a, b, []): "t must be",
        lambda: ad.interpolate(a, b, "half"): "number",
        lambda: ad.interpolate(a, b, 0.5, size=0): "size",
        lambda: ad.interpolate(a, b, 0.5, cost=ad.Bures()): "GroundCost",
        lambda: ad.interpolate(a, blobs(5, 1, dim=3), 0.5): "feature space",
        lambda: ad.interpolate([[0.0]], b, 0.5): "LabeledDataset",
    }.items():
        with pytest.raises(ad.InputError, match=keyword):
            call()

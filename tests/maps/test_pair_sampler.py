"""Mini-batch pairs: against scipy's assignments and POT, laws of the cost with labels, and edges."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from flow_cases import draw, labeled
from oracles import bures_by_roots, half_squared
from scipy.optimize import linear_sum_assignment

import advect as ad

SOURCE = labeled([60, 90, 50], 3, 0)
TARGET = labeled([80, 40, 80], 3, 1, shift=1.0)
each_weight = pytest.mark.parametrize("weight", [0.0, 1.5, math.inf])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def sampler(source, target, weight=math.inf, seed=0):
    return ad.PairSampler(source, target, weight, generator=seeded(seed))


def textbook_bures(a, b):
    """W₂² of the classes' Gaussians by matrix roots."""
    laws = [
        [(x.mean(0), np.cov(x, rowvar=False)) for x in (data.x[data.y == k].numpy() for k in codes)]
        for data, codes in ((a, range(len(a.classes))), (b, range(len(b.classes))))
    ]
    return np.array([[bures_by_roots(*p, *q) for q in laws[1]] for p in laws[0]])


def costs(batch, weight=0.0):
    labels = textbook_bures(SOURCE, TARGET)[np.ix_(batch.y0, batch.y1)]
    return half_squared(batch.x0, batch.x1) + weight / 2 * labels


def test_label_laws_are_those_of_the_whole_datasets():
    found = sampler(SOURCE, TARGET).label_distances
    assert np.allclose(found, textbook_bures(SOURCE, TARGET), rtol=1e-9)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.5, 40.0])
def test_pairs_of_a_batch_are_those_of_least_cost(weight):
    cost = costs(next(sampler(SOURCE, TARGET, weight).batches(36)), weight)
    assert np.trace(cost) == pytest.approx(cost[linear_sum_assignment(cost)].sum())


def test_each_class_has_its_own_assignment_at_infinity():
    batch = next(sampler(SOURCE, TARGET).batches(48))
    assert torch.equal(batch.y0, batch.y1)
    for code in range(3):
        rows = (batch.y0 == code).numpy()
        cost = costs(batch)[rows][:, rows]
        assert np.trace(cost) == pytest.approx(cost[linear_sum_assignment(cost)].sum())


def test_greater_weights_mix_less():
    # the same draws; of a minimiser of F + wL, L does not increase with w and F does not decrease
    found = []
    for weight in (0.0, 0.5, 2.0, 10.0, 1e6):
        batch = next(sampler(SOURCE, TARGET, weight).batches(48))
        features = np.trace(half_squared(batch.x0, batch.x1))
        found.append((np.trace(costs(batch, 2.0)) - features, features))
    by_labels, by_features = zip(*found, strict=True)
    assert by_labels[0] > 1.05 * by_labels[-1] and by_features[-1] > by_features[0]
    assert np.all(np.diff(by_labels) <= 1e-9) and np.all(np.diff(by_features) >= -1e-9)


def test_other_classes_are_matched_by_their_laws():
    far = torch.tensor([[9.0, 0, 0], [0, 0, 0], [0, 9.0, 0], [0.3, 0, 0]], dtype=torch.float64)
    first, last = labeled([40, 40, 40], 3, 0), labeled([20, 30, 30, 40], 3, 1)
    first = first.replace(x=draw(120, 3) * 0.1 + far[first.y], classes=tuple("abc"))
    last = last.replace(x=draw(120, 3, seed=1) * 0.1 + far[last.y], classes=tuple("pqrs"))
    pairs = sampler(first, last)
    masses = first.class_mass.numpy(), last.class_mass.numpy()
    expected = ot.emd(*masses, textbook_bures(first, last)) * 3
    assert np.allclose(pairs.partners, expected, atol=1e-9)
    assert (expected[0] > 0).sum() > 1  # a class of the source goes to several
    batch = next(pairs.batches(60))
    assert pairs.mixed(batch.y0, batch.y1) == 0
    counts = torch.bincount(batch.y1[batch.y0 == 0], minlength=4) / 20
    assert torch.allclose(counts.double(), pairs.partners[0], atol=0.051)
    swapped = TARGET.replace(classes=(1, 0, 2))  # the same names: by name
    identity = torch.eye(3, dtype=torch.float64)
    assert torch.equal(sampler(SOURCE, swapped).partners, identity[[1, 0, 2]])


@each_weight
def test_batches_have_the_class_proportions_of_their_datasets(weight):
    source = SOURCE.replace(sample_shape=(3, 1))
    found = list(sampler(source, TARGET, weight).batches(40, 5))
    again = next(ad.PairSampler(source, TARGET, weight).batches(40, generator=seeded()))
    assert len(found) == 5 and torch.equal(again.x1, found[0].x1)
    for x0, x1, y0, y1 in found:
        assert x0.shape == (40, 3, 1) and x1.shape == (40, 3)
        assert bool(((y0.bincount(minlength=3) - 40 * source.class_mass).abs() < 1).all())
        if weight < math.inf:
            assert bool(((y1.bincount(minlength=3) - 40 * TARGET.class_mass).abs() < 1).all())
        assert len(x0.flatten(1).unique(dim=0)) == len(x1.unique(dim=0)) == 40


@each_weight
def test_scales_and_places_do_not_matter(weight):
    batch = next(sampler(SOURCE, TARGET, weight).batches(30))
    for factor, offset in ((1e-6, 0.0), (1e5, 1e7), (1.0, -1e4)):
        a, b = (data.replace(x=factor * data.x + offset) for data in (SOURCE, TARGET))
        moved = next(sampler(a, b, weight).batches(30))
        expected = factor * batch.x1 + offset
        assert torch.allclose(moved.x1, expected, atol=1e-6 * factor + 1e-9 * abs(offset))


@each_weight
def test_edges(weight):
    light = torch.ones(200, dtype=torch.float64)
    light[:100] = 0
    source = ad.LabeledDataset(SOURCE.x, SOURCE.y, weights=light)
    drawn = torch.cat([batch.x0 for batch in sampler(source, TARGET, weight).batches(64, 5)])
    gone = {tuple(row) for row in SOURCE.x[:100].tolist()}
    assert not gone & {tuple(row) for row in drawn.tolist()}
    for data in (
        ad.LabeledDataset(draw(9, 2), ["a"] * 9),
        ad.LabeledDataset([[0.0], [1.0], [1.0]], ["a", "b", "b"]),
        ad.LabeledDataset(np.zeros((5, 2)), ["a", "b", "a", "b", "b"]),
        ad.LabeledDataset(draw(8, 2), ["a", "c"] * 4, classes=["a", "b", "c"]),
    ):
        assert (
            len(next(sampler(data, data, weight).batches(7)).x0) == 7
        )  # maybe more than there are
    absent = sampler(data, data.replace(classes=tuple("xyz")), weight)
    assert absent.drawn_classes == (0, 2)


def test_errors():
    unlabeled = ad.LabeledDataset(draw(4, 3), ["a", None, "a", "a"])
    for call, keyword in {
        lambda: ad.PairSampler(SOURCE, TARGET, -1.0): "label_weight",
        lambda: ad.PairSampler(SOURCE, TARGET, "much"): "label_weight",
        lambda: ad.PairSampler(SOURCE.x, TARGET.x): "LabeledDataset",
        lambda: ad.PairSampler(SOURCE, labeled([9, 9], 2, 0)): "harmonize",
        lambda: ad.PairSampler(SOURCE, unlabeled): "label",
        lambda: ad.PairSampler(SOURCE, TARGET).batches(0): "size",
    }.items():
        with pytest.raises(ad.InputError, match=keyword):
            call()
    assert -1 in torch.cat([b.y0 for b in sampler(unlabeled, TARGET, 0.0).batches(8, 3)])

"""Mini-batch pairs: against assignments and simplex of other libraries, laws of the cost with labels, and at the edges."""

import inspect
import math

import numpy as np
import ot
import pytest
import torch
from flow_cases import draw, labeled, seeded
from oracles import bures_by_roots, half_squared
from scipy.optimize import linear_sum_assignment

import advect as ad


def textbook_bures(a, b):
    """W₂² of the classes' Gaussians by matrix roots."""
    laws = [
        [(x.mean(0), np.cov(x, rowvar=False)) for x in (data.x[data.y == k].numpy() for k in codes)]
        for data, codes in ((a, range(len(a.classes))), (b, range(len(b.classes))))
    ]
    return np.array([[bures_by_roots(*p, *q) for q in laws[1]] for p in laws[0]])


def half(x, y):
    return torch.as_tensor(half_squared(x, y))


def batches_of(source, target, n, m, seed=0):
    at = torch.randperm(len(source), generator=seeded(seed))[:n]
    to = torch.randperm(len(target), generator=seeded(seed + 1))[:m]
    return source.x[at], target.x[to], source.y[at], target.y[to]


SOURCE = labeled([60, 90, 50], 3, 0)
TARGET = labeled([80, 40, 80], 3, 1, shift=1.0)


class TestPlan:
    def test_without_labels_it_is_the_assignment(self):
        x0, x1, y0, y1 = batches_of(SOURCE, TARGET, 40, 40)
        rows, columns = linear_sum_assignment(half(x0, x1).numpy())
        expected = torch.zeros(40, 40, dtype=torch.float64)
        expected[rows, columns] = 1 / 40
        pairs = ad.PairSampler(SOURCE, TARGET, label_weight=0.0)
        assert torch.allclose(pairs.plan(x0, x1, y0, y1), expected)
        assert torch.allclose(pairs.plan(x0, x1), expected)
        drawing = ad.PairSampler(SOURCE, TARGET, 0, generator=seeded())
        a, b = drawing.sample_plan(x0, x1, replace=False)
        where = {tuple(row): k for k, row in enumerate(x0.tolist())}
        order = [where[tuple(row)] for row in a.tolist()]
        assert sorted(order) == list(range(40))
        assert torch.equal(b, x1[torch.as_tensor(columns)][order])

    @pytest.mark.parametrize("weight", [0.3, 1.0, 40.0])
    def test_label_laws_are_those_of_the_whole_datasets(self, weight):
        x0, x1, y0, y1 = batches_of(SOURCE, TARGET, 30, 45)
        distances = textbook_bures(SOURCE, TARGET)
        pairs = ad.PairSampler(SOURCE, TARGET, weight)
        assert np.allclose(pairs.label_distances, distances, rtol=1e-9)
        cost = half(x0, x1).numpy() + weight / 2 * distances[np.ix_(y0, y1)]
        plan = pairs.plan(x0, x1, y0, y1)
        even = [np.full(n, 1 / n) for n in plan.shape]
        assert float((plan * torch.as_tensor(cost)).sum()) == pytest.approx(ot.emd2(*even, cost))
        assert np.allclose(plan.sum(0), even[1]) and np.allclose(plan.sum(1), even[0])

    def test_a_blurred_plan(self):
        x0, x1, _, _ = batches_of(SOURCE, TARGET, 20, 25)
        plan = ad.PairSampler(SOURCE, TARGET, 0, solver=ad.Sinkhorn(0.5)).plan(x0, x1)
        even = [np.full(n, 1 / n) for n in plan.shape]
        expected = ot.sinkhorn(*even, half(x0, x1).numpy(), 0.5, stopThr=1e-12)
        assert np.allclose(plan, expected, atol=1e-7)

    @pytest.mark.parametrize(("factor", "offset"), [(1e-6, 0.0), (1e5, 1e7), (1.0, -1e4)])
    def test_scales_and_places_do_not_matter(self, factor, offset):
        parts = batches_of(SOURCE, TARGET, 30, 30)
        a, b = (data.replace(x=factor * data.x + offset) for data in (SOURCE, TARGET))
        moved = [factor * x + offset for x in parts[:2]]
        for weight in (0.0, 2.0, math.inf):
            plan = ad.PairSampler(SOURCE, TARGET, weight).plan(*parts)
            other = ad.PairSampler(a, b, weight).plan(*moved, *parts[2:])
            assert torch.allclose(plan, other, atol=1e-9)


class TestNeverMixed:
    def test_each_class_has_its_own_plan(self):
        x0, x1, y0, y1 = batches_of(SOURCE, TARGET, 50, 35)
        plan = ad.PairSampler(SOURCE, TARGET).plan(x0, x1, y0, y1)
        assert bool((plan[y0[:, None] != y1] == 0).all())
        for code in range(3):
            rows, columns = y0 == code, y1 == code
            part = plan[rows][:, columns]
            cost = half(x0[rows], x1[columns])
            even = [np.full(n, 1 / n) for n in cost.shape]
            share = int(rows.sum()) / 50  # classes of the source keep their shares
            assert float(part.sum()) == pytest.approx(share)
            assert float((part * cost).sum()) / share == pytest.approx(ot.emd2(*even, cost.numpy()))

    def test_a_class_that_is_not_there_is_left_out(self):
        x0, x1, y0, y1 = batches_of(SOURCE, TARGET, 40, 40)
        keep = y1 != 1
        pairs = ad.PairSampler(SOURCE, TARGET, generator=seeded())
        found = pairs.sample_plan_with_labels(x0, x1[keep], y0, y1[keep])
        assert len(found.x0) == 40 and bool((found.y0 == found.y1).all())
        assert not bool((found.y0 == 1).any())
        once = pairs.sample_plan_with_labels(x0, x1[keep], y0, y1[keep], replace=False)
        assert len(once.x0) == int((y0 != 1).sum())
        with pytest.raises(ad.InputError, match="larger batches"):
            pairs.plan(x0[y0 == 1], x1[keep], y0[y0 == 1], y1[keep])

    def test_other_classes_are_matched_by_their_laws(self):
        far = torch.tensor([[9.0, 0, 0], [0, 0, 0], [0, 9.0, 0], [0.3, 0, 0]], dtype=torch.float64)
        first = labeled([40, 40, 40], 3, 0)
        first = first.replace(x=draw(120, 3) * 0.1 + far[first.y], classes=("a", "b", "c"))
        last = labeled([20, 30, 30, 40], 3, 1)
        last = last.replace(x=draw(120, 3, seed=1) * 0.1 + far[last.y], classes=tuple("pqrs"))
        pairs = ad.PairSampler(first, last)
        masses = first.class_mass.numpy(), last.class_mass.numpy()
        expected = ot.emd(*masses, textbook_bures(first, last)) * 3
        assert np.allclose(pairs.partners, expected, atol=1e-9)
        assert (expected[0] > 0).sum() > 1  # a class of the source goes to several
        batch = next(pairs.batches(60, generator=seeded()))
        assert bool((pairs.partners[batch.y0, batch.y1] > 0).all())
        counts = torch.bincount(batch.y1[batch.y0 == 0], minlength=4) / 20
        assert torch.allclose(counts.double(), pairs.partners[0], atol=0.051)

    def test_names_or_laws(self):
        swapped = TARGET.replace(classes=(1, 0, 2))
        expected = torch.eye(3, dtype=torch.float64)[[1, 0, 2]]
        assert torch.equal(ad.PairSampler(SOURCE, swapped).partners, expected)
        laws = ad.PairSampler(SOURCE, swapped, match="laws").partners
        assert torch.equal(laws, ad.PairSampler(SOURCE, TARGET, match="laws").partners)
        fewer = TARGET.replace(classes=(0, 7, 8))
        named = ad.PairSampler(SOURCE, fewer, match="names", generator=seeded())
        assert named.partners.sum(1).tolist() == [1.0, 0.0, 0.0] and named.drawn_classes == (0,)
        assert set(next(named.batches(16)).y0.tolist()) == {0}
        with pytest.raises(ad.InputError, match='match="laws"'):
            _ = ad.PairSampler(SOURCE, TARGET.replace(classes=tuple("xyz")), match="names").partners


class TestConditions:
    def test_targets_are_coordinates_in_the_unit_of_the_features(self):
        x, t = (SOURCE.x, TARGET.x), (SOURCE.x[:, :2].sin(), 9 * TARGET.x[:, :2])
        ends = [ad.LabeledDataset(*pair, targets=v) for pair, v in zip(zip(x), t, strict=True)]
        features, unit = (sum(v.var(0, correction=0) for v in pair) / 2 for pair in (x, t))
        scale = (3.0 * features.sum() / (2 * unit)).sqrt()  # of each of two targets
        x0, x1, t0, t1 = x[0][:30], x[1][40:85], t[0][:30], t[1][40:85]
        cost = (half(x0, x1) + half(t0 * scale, t1 * scale)).numpy()
        pairs = ad.PairSampler(*ends, target_weight=3.0, generator=seeded())
        plan = pairs.plan(x0, x1, t0, (t1[:, 0], t1[:, 1].numpy()))  # a matrix, or column by column
        even = [np.full(n, 1 / n) for n in plan.shape]
        assert float((plan * torch.as_tensor(cost)).sum()) == pytest.approx(ot.emd2(*even, cost))
        found = pairs.sample_plan_with_labels(x0, x1, t0, t1)
        assert torch.equal(found.plan, plan) and torch.equal(found.x1, x1[found.columns])
        assert bool((plan[found.rows, found.columns] > 0).all())

    def test_labels_and_targets(self):
        source, target = (data.replace(targets=data.x[:, 0]) for data in (SOURCE, TARGET))
        pairs = ad.PairSampler(source, target, generator=seeded())
        x0, x1, (y0, t0), (y1, t1) = batch = next(pairs.batches(40))
        assert torch.equal(y0, y1) and torch.equal(x1, target.x[batch.columns])
        assert torch.equal(t0, source.targets[batch.rows])
        assert torch.allclose(batch.plan.diagonal(), torch.tensor(1 / 40).double())
        blind = ad.PairSampler(source, target, target_weight=0.0).plan(x0, x1, y0, y1)
        assert torch.equal(blind, ad.PairSampler(SOURCE, TARGET).plan(x0, x1, y0, y1))
        for bad in ((y0, y1), ((y0, t0), None), ((y0, t0, t0), (y1, t1))):
            with pytest.raises(ad.InputError, match="tuple"):
                pairs.plan(x0, x1, *bad)


class TestDraws:
    @pytest.mark.slow
    def test_are_in_proportion_to_the_plan(self):
        x0, x1 = draw(4, 2), draw(6, 2, seed=1)
        pairs = ad.PairSampler(SOURCE, TARGET, 0, solver=ad.Sinkhorn(1.0), generator=seeded(3))
        plan, n = pairs.plan(x0, x1), 250
        counts = torch.zeros(4, 6)
        for _ in range(n):
            _, _, i, j = pairs.sample_plan_with_labels(x0, x1, torch.arange(4), torch.arange(6))
            counts.index_put_((i, j), torch.ones(4), accumulate=True)
        expected = 4 * n * plan
        # 24 cells with a fixed sum: the 99.9 % quantile of chi² with 23 degrees is 49.7
        assert float(((counts - expected).square() / expected).sum()) < 49.7

    def test_seeds(self):
        def first(seed, weight):
            return next(ad.PairSampler(SOURCE, TARGET, weight, generator=seeded(seed)).batches(32))

        for weight in (0.0, 1.0, math.inf):
            one, same, other = first(0, weight), first(0, weight), first(1, weight)
            assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
            assert not torch.equal(one.x0, other.x0)
        pairs = ad.PairSampler(SOURCE, TARGET)
        own, again = (next(pairs.batches(32, generator=seeded(4))) for _ in range(2))
        assert torch.equal(own.x0, again.x0)

    def test_batches(self):
        source = SOURCE.replace(sample_shape=(3, 1))
        for weight in (0.0, 2.0, math.inf):
            found = list(ad.PairSampler(source, TARGET, weight, generator=seeded()).batches(40, 5))
            assert len(found) == 5
            for x0, x1, y0, y1 in found:
                assert x0.shape == (40, 3, 1) and x1.shape == (40, 3)
                shares = [data.class_mass * 40 for data in (source, TARGET)]
                assert bool(((y0.bincount(minlength=3) - shares[0]).abs() < 1).all())
                if weight == math.inf:
                    assert torch.equal(y0, y1)
                else:
                    assert bool(((y1.bincount(minlength=3) - shares[1]).abs() < 1).all())
                assert len(x0.flatten(1).unique(dim=0)) == len(x1.unique(dim=0)) == 40

    def test_pairs_of_a_batch_are_those_of_least_cost(self):
        for weight in (0.0, 1.5):
            pairs = ad.PairSampler(SOURCE, TARGET, weight, generator=seeded())
            x0, x1, y0, y1 = next(pairs.batches(36))
            cost = half(x0, x1).numpy()
            cost = cost + weight / 2 * textbook_bures(SOURCE, TARGET)[np.ix_(y0, y1)]
            rows, columns = linear_sum_assignment(cost)
            assert np.trace(cost) == pytest.approx(cost[rows, columns].sum())

    def test_weights(self):
        light = torch.ones(200, dtype=torch.float64)
        light[:100] = 0
        source = ad.LabeledDataset(SOURCE.x, SOURCE.y, weights=light)
        for weight in (0.0, 1.0, math.inf):
            pairs = ad.PairSampler(source, TARGET, weight, generator=seeded())
            drawn = torch.cat([batch.x0 for batch in pairs.batches(64, 5)])
            gone = {tuple(row) for row in SOURCE.x[:100].tolist()}
            assert not gone & {tuple(row) for row in drawn.tolist()}


class TestEdges:
    def test_the_signature_of_torchcfm(self):
        two = inspect.signature(ad.PairSampler.sample_plan).parameters
        four = inspect.signature(ad.PairSampler.sample_plan_with_labels).parameters
        assert list(two) == ["self", "x0", "x1", "replace"] and two["replace"].default is True
        assert list(four) == ["self", "x0", "x1", "y0", "y1", "replace"]
        assert four["y0"].default is four["y1"].default is None

    def test_positions_and_names(self):
        named = SOURCE.replace(classes=("a", "b", "c")), TARGET.replace(classes=("c", "b", "a"))
        x0, x1, y0, y1 = batches_of(*named, 30, 30)
        pairs = ad.PairSampler(*named)
        by_position = pairs.plan(x0, x1, y0, y1)
        by_name = pairs.plan(x0, x1, ["abc"[k] for k in y0], ["cba"[k] for k in y1])
        assert torch.equal(by_position, by_name)
        assert bool((by_position[y0[:, None] != 2 - y1] == 0).all())

    @pytest.mark.parametrize("weight", [0.0, 1.0, math.inf])
    def test_one_class_single_samples_and_coinciding_points(self, weight):
        one = ad.LabeledDataset(draw(9, 2), ["a"] * 9)
        lone = ad.LabeledDataset([[0.0], [1.0], [1.0]], ["a", "b", "b"])
        same = ad.LabeledDataset(np.zeros((5, 2)), ["a", "b", "a", "b", "b"])
        for data in (one, lone, same):
            pairs = ad.PairSampler(data, data, weight, generator=seeded())
            batch = next(pairs.batches(7))  # more than there are
            assert len(batch.x0) == 7
            found = pairs.sample_plan_with_labels(data.x, data.x, data.labels, data.labels)
            assert torch.equal(found.x0, found.x1)

    def test_a_class_without_samples(self):
        data = ad.LabeledDataset(draw(8, 2), ["a", "c"] * 4, classes=["a", "b", "c"])
        for weight in (1.0, math.inf):
            for match in ("names", "laws"):
                pairs = ad.PairSampler(data, data, weight, match=match, generator=seeded())
                batch = next(pairs.batches(8))
                assert torch.equal(batch.y0, batch.y1) and pairs.drawn_classes == (0, 2)

    def test_errors(self):
        x = draw(4, 3)
        unlabeled = ad.LabeledDataset(x, ["a", None, "a", "a"])
        pairs, blind = ad.PairSampler(SOURCE, TARGET), ad.PairSampler(SOURCE, TARGET, 0)
        for bad, said in {
            lambda: ad.PairSampler(SOURCE, TARGET, -1.0): "label_weight",
            lambda: ad.PairSampler(SOURCE, TARGET, "much"): "label_weight",
            lambda: ad.PairSampler(SOURCE, TARGET, match="name"): "names",
            lambda: ad.PairSampler(
                *(SOURCE.replace(targets=SOURCE.x[:, :k]) for k in (1, 2))
            ): "same targets",
            lambda: ad.PairSampler(SOURCE, TARGET, solver="exact"): "solver",
            lambda: ad.PairSampler(SOURCE.x, TARGET.x): "LabeledDataset",
            lambda: ad.PairSampler(SOURCE, labeled([9, 9], 2, 0)): "harmonize",
            lambda: ad.PairSampler(SOURCE, unlabeled): "label",
            lambda: pairs.batches(0): "size",
            lambda: pairs.sample_plan_with_labels(x, x): "label_weight=0",
            lambda: pairs.plan(x, x, [1, None, 1, 1], [None] + [1] * 3): "2 of 8 without",
            lambda: pairs.plan(x, x, [1] * 3, [1] * 4): "same length",
            lambda: pairs.plan(x, x, [9] * 4, [1] * 4): "classes",
            lambda: blind.sample_plan(x, draw(4, 2)): "feature space",
            lambda: blind.sample_plan(x, x + math.nan): "NaN",
        }.items():
            with pytest.raises(ad.InputError, match=said):
                bad()
        blind = ad.PairSampler(unlabeled, TARGET, 0.0, generator=seeded())
        assert -1 in torch.cat([batch.y0 for batch in blind.batches(8, 3)])

"""``ad.compare``: its statistics against oracles, its verdicts against known truth, and inputs of all kinds."""

import json

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.spatial.distance import cdist

import advect as ad
from advect.cost import SquaredEuclidean
from advect.questions.compare import Points, _joint, class_statistics, distances, nearest
from advect.questions.compare_result import Draws, judge

FAST = {"repeats": 5, "max_samples": 40, "progress": False}


def gaussian(seed, n=150, classes=3, dim=4, names=None, dtype=torch.float64):
    """Classes in a row, three apart."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    x[:, 0] += 3 * y
    return ad.LabeledDataset(x.to(dtype), [(names or range(classes))[code] for code in y])


def cloud(points, weights=None):
    points = np.asarray(points, dtype=float)
    weights = np.ones(len(points)) if weights is None else np.asarray(weights, dtype=float)
    return Points(points, weights / weights.sum())


def statistics(fake, real):
    """Fréchet distance, coverage and density."""
    return class_statistics(fake, real, distances(real, real), distances(real, fake))


def test_frechet_is_the_formula_with_matrix_roots():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.normal(size=(40, 4)) @ rng.normal(size=(4, 4)) + 1
    a, b = np.cov(x.T), np.cov(y.T)
    root = linalg.sqrtm(linalg.sqrtm(a) @ b @ linalg.sqrtm(a)).real
    expected = np.square(x.mean(0) - y.mean(0)).sum() + np.trace(a + b - 2 * root)
    assert statistics(cloud(x), cloud(y))[0] == pytest.approx(expected, rel=1e-9)
    assert statistics(cloud(x), cloud(x))[0] == pytest.approx(0, abs=1e-9)
    one = statistics(cloud(x[:1]), cloud(x[1:2]))
    assert one[0] == pytest.approx(np.square(x[0] - x[1]).sum()) and np.isnan(one[1:]).all()


def test_coverage_and_density_are_those_of_the_paper():
    """Against loops over samples, as Naeem et al. (2020) define them."""
    rng = np.random.default_rng(1)
    real, fake, k = rng.normal(size=(40, 3)), rng.normal(size=(25, 3)) * 1.3, 5
    radius = [sorted(np.linalg.norm(real - x, axis=1))[k] for x in real]  # itself is at 0
    hits = [[np.linalg.norm(x - y) <= r for y in fake] for x, r in zip(real, radius, strict=True)]
    _, coverage, density = statistics(cloud(fake), cloud(real))
    assert coverage == pytest.approx(np.mean([any(row) for row in hits]))
    assert density == pytest.approx(np.sum(hits) / (k * len(fake)))
    weights = np.r_[1.0, np.zeros(len(real) - 1)]
    assert statistics(cloud(fake), cloud(real, weights))[1] == any(hits[0])


def test_nearest_neighbours_are_exact_and_copies_are_at_zero():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(50, 8)) + 1e4, rng.normal(size=(30, 8)) + 1e4
    y[:5] = x[10:15]
    away, which = nearest(y, x)
    assert (which == cdist(y, x).argmin(1)).all() and (away[:5] == 0).all()
    assert away == pytest.approx(cdist(y, x).min(1), abs=1e-12)
    assert nearest(x, None)[0] == pytest.approx((cdist(x, x) + np.diag(np.full(50, np.inf))).min(1))
    assert (nearest(np.repeat(x[:3], 2, axis=0), None)[0] == 0).all()  # duplicates, not themselves


def test_the_coupling_does_not_mind_shares():
    """A class that comes three times as often is no confusion, wrong labels are."""
    x = torch.tensor([[0.0], [0.1], [9.0], [9.1], [9.2], [9.3], [9.4], [9.5]])
    fake = ad.LabeledDataset(x, ["a"] * 2 + ["b"] * 6)
    real = ad.LabeledDataset(x[[0, 1, 2, 3]], ["a", "a", "b", "b"])
    assert _joint(fake, real, ad.GroundCost())[1] == pytest.approx(np.eye(2))
    wrong = ad.LabeledDataset(x[:4], [*"abab"])  # one of each class under the other's name
    assert _joint(wrong, real, ad.GroundCost())[1] == pytest.approx(np.full((2, 2), 0.5))


@pytest.mark.slow
def test_false_alarms_of_a_known_statistic_keep_their_level():
    """Differences of means, three rows, both sides looked at: 400 fresh samples."""
    rng, alarms, n, repeats = np.random.default_rng(4), 0, 40, 20
    for _ in range(400):
        fake, real = rng.normal(size=(2, n, 3))
        values, floors = np.zeros((2, repeats, 3))
        for b in range(repeats):
            s, r, order = (rng.permutation(n) for _ in range(3))
            values[b] = fake[s[: n // 2]].mean(0) - real[r[: n // 2]].mean(0)
            floors[b] = real[order[: n // 2]].mean(0) - real[order[n // 2 :]].mean(0)
        alarms += any(entry.beyond for entry in judge(Draws(values, floors), ["both"] * 3, 0.05))
    assert alarms / 400 < 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5
    assert alarms > 2  # and there are some: the bound is no wall


def test_a_share_of_few_samples_is_not_beyond_by_one():
    """No held-out sample of thirty is memorised: one synthetic of thirty says nothing, ten do."""
    floors = np.zeros((10, 1))
    for hits, expected in ((1, False), (10, True)):
        drawn = Draws(np.full((10, 1), hits / 30), floors, np.array([15.0]), np.array([30]))
        assert judge(drawn, ["high"], 0.05)[0].beyond is expected


def test_unknown_is_neither_within_nor_beyond():
    assert judge(Draws(np.ones((4, 1)), np.full((4, 1), np.nan)), ["high"], 0.05)[0].beyond is None


def test_a_fresh_sample_is_within_every_floor():
    found = ad.compare(gaussian(1), gaussian(0), gaussian(2), **FAST)
    assert found.beyond == ()
    assert {record["beyond"] for record in found.records()} == {False}
    assert found.notes == () and "none" in str(found)
    assert found.confusion.values.sum(1) == pytest.approx(np.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("held", [False, True])
def test_copies_are_memorised_and_nothing_else(held):
    real, fresh = gaussian(0), gaussian(1)
    x = fresh.x.clone()
    x[:30] = real.x[30:60]  # of the same classes
    found = ad.compare(fresh.replace(x=x), real, gaussian(2) if held else None, **FAST)
    assert found.beyond == ("memorised",)
    pairs = {tuple(pair) for pair in found.copies.tolist()}
    assert {(row, row + 30) for row in range(30)} <= pairs and len(pairs) < 36
    assert 0.2 <= found.columns["memorised"].overall.value < 0.24
    same = ad.compare(real, real, gaussian(2) if held else None, **FAST)
    assert same.beyond == ("memorised",) and same["memorised", 0].value == 1


@pytest.mark.slow
def test_a_wrong_law_is_seen_in_its_class_alone():
    fresh, real = gaussian(1), gaussian(0)
    x = fresh.x.clone()
    x[fresh.y == 1, 1:] *= 3
    found = ad.compare(fresh.replace(x=x), real, **FAST)
    assert found.columns["frechet"].beyond == (1,) and found.classes[0] == 1
    assert "coverage" in found.beyond or "density" in found.beyond
    assert "share" not in found.beyond and "memorised" not in found.beyond


@pytest.mark.slow
def test_wrong_labels_are_confusion():
    fresh = gaussian(1, 300)
    y = fresh.y.clone()
    y[:60] = (y[:60] + 1) % 3
    options = {"repeats": 10, "max_samples": 100, "progress": False}
    found = ad.compare(fresh.replace(y=y), gaussian(0, 300), **options)
    assert "confusion" in found.beyond and "share" not in found.beyond
    assert found.columns["confusion"].overall.value > found.columns["confusion"].overall.most


@pytest.mark.slow
def test_a_class_that_is_dropped_and_one_that_is_new():
    names = ["cat", "dog", "fox"]
    fresh, real = gaussian(1, names=names), gaussian(0, names=names)
    gone = fresh.subset(fresh.y != 1)
    found = ad.compare(gone, real, **FAST)
    assert found["share", "dog"].beyond and found["coverage", "dog"].value == 0
    assert found["coverage", "dog"].beyond and found["frechet", "dog"].beyond is None
    assert found.counts["dog"] == (0, 50) and any("without synthetic" in n for n in found.notes)
    assert found.classes[0] == "dog" and "frechet" not in found.beyond
    new = ad.compare(fresh, real.subset(real.y != 1), **FAST)
    assert new["share", "dog"].beyond and np.isnan(new["coverage", "dog"].value)
    assert new["share", "dog"].value == pytest.approx(1 / 3, abs=0.05)
    assert any("without real" in note for note in new.notes)


@pytest.mark.slow
def test_no_class_in_common_is_said_not_raised():
    found = ad.compare(gaussian(1), gaussian(0, names=["a", "b", "c"]), **FAST)
    assert "No class name" in found.notes[0] and len(found.counts) == 6
    assert np.isnan(found.columns["confusion"].overall.value)
    assert found.columns["otdd"].overall.beyond is False  # names do not count in it


@pytest.mark.slow
def test_units_and_origin_do_not_matter():
    fresh, real = gaussian(1), gaussian(0)
    plain = ad.compare(fresh, real, **FAST)
    moved = ad.compare(*(data.replace(x=data.x * 1e3 + 1e6) for data in (fresh, real)), **FAST)
    for name, scale in (("frechet", 1e6), ("otdd", 1e3), ("coverage", 1), ("density", 1)):
        for one, other in zip(rows(plain, name), rows(moved, name), strict=True):
            assert other.value == pytest.approx(scale * one.value, rel=1e-4)
            assert other.floor == pytest.approx(scale * one.floor, rel=1e-4)
            assert one.beyond == other.beyond


def rows(found, name):
    return [found.columns[name].overall, *found.columns[name].classes.values()]


@pytest.mark.slow
def test_an_embedding_is_where_everything_is_measured():
    fresh, real = gaussian(1), gaussian(0)

    def half(samples):
        return samples[:, :2] * 2

    inside = ad.compare(fresh, real, cost=ad.GroundCost(feature=ad.Embedding(half)), **FAST)
    images = (ad.LabeledDataset(half(data.x), data.labels) for data in (fresh, real))
    outside = ad.compare(*images, **FAST)
    a, b = inside.to_dict(), outside.to_dict()
    assert a["records"] == b["records"] and a["settings"]["features"] == "Embedding"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fake", "real"), [(([[0.0], [1.0], [5.0]], [*"aab"]), ([[0.0], [1.0], [2.0], [5.0]], [*"aaab"])),
    (([[0.0]], ["a"]), ([[0.0], [1.0]], ["a", "a"])), (([[1.0]] * 20, ["a"] * 20), ([[1.0]] * 20, ["a"] * 20)),
    (([[1.0]] * 9, [*"abc"] * 3), ([[1.0]] * 9, [*"abc"] * 3)),
    (([[0.0], [1.0]], [*"ab"]), ([[0.0], [1.0]], [*"ab"]))],
    ids=["few", "one sample", "one point, one class", "one point", "one of each"],
)  # fmt: skip
def test_small_and_degenerate_data_are_judged_or_said_to_be_unknown(fake, real):
    found = ad.compare(ad.LabeledDataset(*fake), ad.LabeledDataset(*real), **FAST)
    assert "frechet" not in found.beyond and "otdd" not in found.beyond
    json.dumps(found.to_dict(), allow_nan=False)
    assert str(found) and found._repr_html_()


GOOD = gaussian(0, 30)


@pytest.mark.parametrize(
    ("sets", "options", "said"), [([ad.LabeledDataset(GOOD.x, [None, *GOOD.labels[1:]]), GOOD], {}, "needs a label"),
    ([ad.LabeledDataset(GOOD.x[:, :2], GOOD.labels), GOOD], {}, "one feature space"),
    ([np.zeros((3, 2)), GOOD], {}, "LabeledDataset"), ([GOOD, GOOD.subset([0])], {}, "two samples"),
    ([GOOD, GOOD, gaussian(2, 30, names="abc")], {}, "held_out"),
    ([GOOD, GOOD], {"cost": SquaredEuclidean()}, "GroundCost"), ([GOOD, GOOD], {"repeats": 1}, "repeats"),
    ([GOOD, GOOD], {"level": 0}, "level"), ([GOOD, GOOD], {"seed": -1}, "seed")],
)  # fmt: skip
def test_bad_input_is_refused(sets, options, said):
    with pytest.raises(ad.InputError, match=said):
        ad.compare(*sets, **options)


@pytest.mark.slow
def test_result_as_table_and_json():
    hostile, seen = "<b>&'\"", []
    options = {**FAST, "progress": lambda done, total: seen.append((done, total))}
    names = [hostile, ("x", 1), 7]
    found = ad.compare(gaussian(1, names=names), gaussian(0, names=names), **options)
    assert seen[-1][0] == seen[-1][1] == 2 * FAST["repeats"] + 3 + 1
    frame = found.to_pandas()
    assert len(frame) == 6 * 4 + 1 and {*frame["class"]} == {None, hostile, ("x", 1), 7}
    assert len(found.to_dict()["records"]) == 25

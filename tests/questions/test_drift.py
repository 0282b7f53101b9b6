"""``ad.drift``: its level, what it sees and names, labels that are missing, inputs of all kinds."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import advect as ad

NAMES = ("features", "shares", "labels", "classes")


def draw(n=150, k=4, d=5, seed=0, apart=4.0, shares=None):
    """Gaussian classes with the same means whatever the seed."""
    means = apart * np.random.default_rng(99).standard_normal((k, d)) / math.sqrt(2)
    rng = np.random.default_rng([seed, n])
    y = rng.choice(k, n, p=shares)
    return means[y] + rng.standard_normal((n, d)), y


def data(x, y, names="abcdefgh", **options):
    return ad.LabeledDataset(x, [None if code < 0 else names[code] for code in y], **options)


def asked(reference, window, **options):
    return ad.drift(data(*reference), data(*window), progress=False, **options)


@pytest.mark.slow
def test_the_level_is_kept():
    runs = 120
    sides = [(draw(50, 3, 2, seed), draw(40, 3, 2, 1000 + seed)) for seed in range(runs)]
    found = [asked(*pair, n_permutations=99) for pair in sides]
    assert sum(one.drifted for one in found) <= stats.binom.ppf(0.999, runs, 0.05)
    for name in NAMES:
        p = np.array([one[name].p_value for one in found])
        assert (p <= 0.2).sum() <= stats.binom.ppf(0.999, runs, 0.2), name
    uniform = stats.kstest([one["labels"].p_value for one in found], "uniform")
    assert uniform.pvalue > 1e-3


def test_a_class_that_moves_is_named():
    x, y = draw(seed=2)
    found = asked(draw(), (x + 1.5 * (y == 2)[:, None], y))
    assert found.drifted and found.changed_classes == ("c",) and not found.changed_shares
    facts = found.to_dict()
    assert facts["drifted"] and facts["changed_classes"] == ["c"] and len(facts["classes"]) == 4
    assert {test["name"] for test in facts["tests"]} == set(NAMES)
    assert max(found.classes, key=lambda row: row.statistic).name == "c"
    assert found["shares"].adjusted > 0.05


def test_a_half_swapped_pair_is_seen_and_named():
    x, y = draw(seed=2)
    some = np.isin(y, [1, 3]) & (np.random.default_rng(0).random(len(y)) < 0.5)
    found = asked(draw(), (x, np.where(some, 4 - y, y)))
    assert found["labels"].adjusted <= 0.05 and found["classes"].adjusted <= 0.05
    assert found["features"].adjusted > 0.05
    assert set(found.changed_classes) == {"b", "d"}


def test_shares_new_and_lost_classes():
    found = asked(draw(), draw(seed=2, shares=[0.1, 0.5, 0.2, 0.2]))
    assert found["shares"].adjusted <= 0.05 and "b" in found.changed_shares
    assert not found.changed_classes
    without = [0.4, 0.3, 0.3, 0.0]
    assert "d" in asked(draw(shares=without), draw(seed=2)).changed_shares
    found = asked(draw(), draw(seed=2, shares=without))
    gone = next(row for row in found.classes if row.name == "d")
    assert not gone.n_window and math.isnan(gone.p_value) and "d" in found.changed_shares


def test_the_statistic_of_shares_is_that_of_scipy():
    one, other = draw(), draw(90, seed=2, shares=[0.1, 0.5, 0.2, 0.2])
    counts = np.stack([np.bincount(side[1], minlength=4) for side in (one, other)])
    found = asked(one, other)["shares"]
    expected = stats.chi2_contingency(counts, correction=False)
    assert found.statistic == pytest.approx(expected.statistic / 240)
    same = asked(one, draw(90, seed=5))["shares"]
    counts[1] = np.bincount(draw(90, seed=5)[1], minlength=4)
    assert same.p_value == pytest.approx(stats.chi2_contingency(counts).pvalue, abs=0.06)


def test_without_labels_only_features_are_tested():
    x, _y = draw(seed=2)
    found = ad.drift(data(*draw()), ad.LabeledDataset(x + 1), progress=False)
    assert [test.name for test in found.tests] == ["features"] and found.drifted
    assert any("0 of 150" in note for note in found.notes) and not found.changed_shares
    nothing = ad.drift(ad.LabeledDataset(x), ad.LabeledDataset(x), progress=False)
    assert nothing["features"].p_value > 0.99 and nothing.classes == ()


def test_late_labels_take_part_and_are_counted():
    x, y = draw(200, seed=2)
    late = np.where(np.arange(200) < 60, y, -1)
    found = asked(draw(), (x, late))
    assert found["labels"].n_window == 60 and found["features"].n_window == 200
    assert any("60 of 200" in note for note in found.notes) and not found.drifted
    swapped = np.where(late == 1, 3, np.where(late == 3, 1, late))
    assert asked(draw(), (x, swapped))["labels"].adjusted <= 0.05


def test_the_same_data_is_no_drift():
    found = asked(draw(), draw())
    assert [test.p_value for test in found.tests] == [1.0] * 4
    assert found["labels"].statistic == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-20, 1e12])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_units_do_not_matter(scale, kind):
    sides = [draw(60, seed=seed) for seed in (0, 2)]
    one = asked(*sides)
    other = ad.drift(*[data((x + 3) * scale, y).to(dtype=kind) for x, y in sides], progress=False)
    for name in ("labels", "features"):
        assert one[name].p_value == pytest.approx(other[name].p_value, abs=0.01)


def test_small_and_odd_datasets():
    point = ad.LabeledDataset([[0.0, 1.0]], ["a"])
    found = ad.drift(point, point, progress=False)
    assert not found.drifted and any("too few" in one for one in found.notes)
    single = ad.LabeledDataset(np.eye(6), list("abcdef"))
    found = ad.drift(single, single, progress=False)
    assert not found.drifted and math.isnan(found["classes"].p_value)
    assert found.to_dict()["tests"][-1]["p_value"] is None
    same = ad.LabeledDataset(np.ones((30, 2)), ["a"] * 30)
    assert ad.drift(same, same, progress=False)["features"].p_value == 1.0
    for n, m in ((7, 11), (13, 29), (31, 23)):  # sums of which round in other ways
        sides = [ad.LabeledDataset(np.full((k, 2), 0.3), ["a"] * k) for k in (n, m)]
        found = ad.drift(*sides, progress=False)
        assert [test.name for test in found.tests if test.p_value < 1] == []
    found = ad.drift(same, same.replace(x=same.x + 1), progress=False)
    assert found.drifted and found.changed_classes == ("a",)
    apart = ad.LabeledDataset(np.random.default_rng(0).random((40, 2)), ["b"] * 40)
    found = ad.drift(same, apart, progress=False)
    assert found.drifted and len(found.changed_shares) == 2


@pytest.mark.slow
def test_large_sides_are_drawn_from():
    found = asked(draw(2000), draw(1500, seed=2), max_samples=50)
    assert found["labels"].n_reference == 50
    assert any("drawn at random" in one for one in found.notes)
    assert found.classes[0].n_reference > 50  # shares count all


@pytest.mark.slow
def test_images_and_embeddings():
    digits = ad.datasets.load("digits", n=300)
    one, other = digits.split(0.5, generator=torch.Generator().manual_seed(0))
    assert not ad.drift(one, other, progress=False).drifted
    turned = other.replace(x=torch.rot90(other.samples, 1, (1, 2)).reshape(len(other), -1))
    for embedding in ("auto", None, 10, "gradients", lambda x: x.flatten(1)[:, :40]):
        assert ad.drift(one, turned, embedding=embedding, progress=False).drifted


@pytest.mark.parametrize(
    ("change", "said"), [({"window": [[1.0, 2.0]]}, "LabeledDataset"),
    ({"window": ad.LabeledDataset([[1.0]], ["a"])}, "harmonize"), ({"level": 1.5}, "level"),
    ({"n_permutations": 0}, "n_permutations"), ({"level": 1e-4}, "permutations"), ({"max_samples": 1}, "max_samples"),
    ({"seed": -1}, "seed"), ({"embedding": "nothing"}, "embedding"), ({"embedding": 500}, "principal"),
    ({"progress": "yes"}, "progress")],
)  # fmt: skip
def test_bad_input_is_refused(change, said):
    options = {"reference": data(*draw(30)), "window": data(*draw(30, seed=2)), **change}
    with pytest.raises(ad.InputError, match=said):
        ad.drift(options.pop("reference"), options.pop("window"), **options)

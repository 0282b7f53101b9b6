"""Labels for a pool: by brute force over folds, laws of calibration, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import advect as ad
from advect.apps import calibration
from advect.apps.calibration import calibrated, calibration_error, reliability, wilson
from advect.apps.label_ways import Known, Points, Way, held_out, scored
from advect.classes.spread import one_hot, spread


def blobs(n=40, k=3, gap=8.0, seed=0, d=4):
    generator = np.random.default_rng(seed)
    y = np.arange(n) % k
    x = generator.normal(size=(n, d)) + gap * np.eye(k, d)[y]
    return ad.LabeledDataset(x, [f"class {code}" for code in y])


def partly(data, each):
    seen, y = {}, torch.full_like(data.y, -1)
    for row, code in enumerate(data.y.tolist()):
        seen[code] = seen.get(code, 0) + 1
        if seen[code] <= each:
            y[row] = code
    return data.replace(y=y)


WAYS = [
    Way("propagate", "features", 5, 0.9),
    Way("refine", "features", 5, 0.9),
    Way("nearest", "features"),
    Way("logistic", "features"),
]


# ---- ways


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_held_out_labels_are_never_looked_at(way):
    data = partly(blobs(60, gap=2.0), 4)
    codes = data.y.numpy()
    known, points = Known(codes, 3), Points(data.x.double().numpy())
    found = held_out(way, points, known)
    assert found.shape == (12, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    for fold in range(known.folds.max() + 1):
        out = known.folds == fold
        alone = scored(way, points, Known(np.where(out, -1, codes), 3))
        np.testing.assert_allclose(found[out[known.held]], alone[out], atol=1e-6)


def test_folds_have_labels_of_all_classes_and_leave_lone_ones_in():
    codes = np.array([0] * 4 + [1] * 3 + [2] + [-1] * 5)
    known = Known(codes, 3)
    assert (known.folds[7:] == -1).all() and set(known.held) == set(range(7))
    for rows, left in known.without():
        assert len({*codes[rows]}) == len(rows)
        assert {*left[left >= 0]} == {0, 1, 2}
    many = Known(np.arange(3000) % 100, 100)
    assert many.folds.max() == 1  # folds times classes are few


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_far_blobs_are_labeled_rightly_by_every_way(way):
    data = blobs(90)
    made = ad.apps.label(partly(data, 2), embedding=None, method=way.method, progress=False)
    assert torch.equal(made.dataset.y, data.y) and made.way.method == way.method
    np.testing.assert_allclose(made.probabilities.sum(axis=1), 1)
    assert made.accuracy == 1.0 and made.calibration.n_held_out == 6


def test_refining_survives_points_that_do_not_differ():
    x = np.repeat([[0.0, 0.0], [1.0, 0.0]], 10, axis=0)
    data = partly(ad.LabeledDataset(x, ["a"] * 10 + ["b"] * 10), 2)
    made = ad.apps.label(data, method="refine", neighbors=3, progress=False)
    assert made.labels == ["a"] * 10 + ["b"] * 10


# ---- calibration


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_the_temperature_of_scores_is_found(temperature):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 4)) * 2
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (true.cumsum(axis=1) > generator.random((20_000, 1))).argmax(axis=1)
    scores = true**temperature / (true**temperature).sum(axis=1, keepdims=True)
    found = calibrated(scores, codes)
    assert found.temperature == pytest.approx(temperature, rel=0.05)
    assert found.error is not None and found.error < 0.02
    np.testing.assert_allclose(found(scores).sum(axis=1), 1)


def test_intervals_are_those_of_scipy():
    for right, n in ((0, 5), (3, 7), (50, 50), (44, 50)):
        expected = binomtest(right, n).proportion_ci(method="wilson")
        np.testing.assert_allclose(wilson(right, n), (expected.low, expected.high), atol=1e-9)


def test_without_labels_to_hold_out_nothing_is_claimed():
    data = blobs(60)
    made = ad.apps.label(partly(data, 1), progress=False)
    assert made.accuracy is None and made.calibration.interval is None and not made.compared
    assert made.calibration.temperature == made.way.usual_temperature
    assert "cannot be estimated" in made.notes[0]
    assert (made.dataset.y == data.y).double().mean() > 0.95


def test_confidence_is_about_right_where_labels_are_uncertain():
    data = blobs(600, gap=2.0, seed=2)
    made = ad.apps.label(partly(data, 20), embedding=None, progress=False)
    given = ~made.known
    right = (made.dataset.y == data.y).numpy()[given]
    assert calibration_error(reliability(made.confidence[given], right)) < 0.1
    low, high = made.calibration.interval
    assert low <= right.mean() <= high
    sure = made.confident(0.9)
    assert set(sure.labels) <= set(data.classes)
    assert len(sure) == int((made.confidence >= 0.9).sum())


def test_bins_hold_all_samples_and_an_even_law_has_no_error():
    confidence, right = np.repeat([0.5, 0.75, 1.0], 20), np.tile([1, 0, 1, 1], 15).astype(bool)
    right[:20] = np.arange(20) % 2 == 0
    right[40:] = True
    bins = reliability(confidence, right, most=3)
    assert [one.n for one in bins] == [20, 20, 20] and calibration_error(bins) == pytest.approx(0)
    assert calibration._cooled(np.array([[1.0, 0.0]]), 0.2).max() < 1


# ---- the whole


@pytest.mark.slow
def test_pool_and_few_are_one_graph_and_names_are_kept():
    data = blobs(80)
    few, pool = partly(data, 3), data.subset(slice(12, 80))
    few = few.subset(few.labeled)
    bare = ad.LabeledDataset(pool.x)
    made = ad.apps.label(bare, few, progress=False)
    assert made.labels == pool.labels and torch.equal(made.dataset.x, pool.x)
    assert not made.known.any() and len(made) == len(pool)
    some = pool.replace(y=torch.where(torch.arange(len(pool)) < 5, pool.y, -1))
    wrong = some.replace(y=some.y.index_fill(0, torch.tensor([0]), (int(some.y[0]) + 1) % 3))
    kept = ad.apps.label(wrong, few, progress=False)
    assert kept.labels[0] == wrong.labels[0] and kept.confidence[0] == 1 and kept.known.sum() == 5
    assert not set(kept.unsure(80)) & set(range(5)) and len(kept.unsure(80)) == len(pool) - 5


@pytest.mark.slow
def test_answers_depend_on_no_order_of_classes_and_repeat():
    data = blobs(90, gap=3.0)
    few = partly(data, 4)
    made = ad.apps.label(few, progress=False)
    assert np.array_equal(made.probabilities, ad.apps.label(few, progress=False).probabilities)
    names = [("other", 3 - code) for code in range(3)]
    renamed = few.replace(classes=tuple(names))
    again = ad.apps.label(renamed, progress=False)
    assert again.dataset.classes == tuple(names)
    np.testing.assert_allclose(again.probabilities, made.probabilities)
    float32 = ad.apps.label(few.to(dtype=torch.float32), progress=False)
    assert (float32.dataset.y == made.dataset.y).double().mean() > 0.97


def test_unsure_are_those_between_classes():
    line = ad.LabeledDataset(np.linspace(0, 10, 41)[:, None], ["a", "a", *[None] * 37, "b", "b"])
    made = ad.apps.label(line, method="propagate", neighbors=2, progress=False)
    assert set(made.unsure(3)) <= set(range(17, 24))
    assert made.labels[:15] == ["a"] * 15 and made.labels[-15:] == ["b"] * 15


def test_the_embedding_may_be_a_network():
    data = blobs(60, gap=3.0)
    hidden = data.replace(
        x=torch.cat([data.x, 100 * torch.randn(60, 4).double()], 1), sample_shape=(8,)
    )
    body = torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False), torch.nn.Dropout(0.9))
    body[0].weight.data = torch.eye(4, 8)
    body.train()
    made = ad.apps.label(partly(hidden, 3), embedding=body, progress=False)
    assert (made.dataset.y == data.y).double().mean() > 0.9
    assert made.way.embedding == "Sequential" and body.training


def test_ways_of_large_pools_are_compared_on_a_part(monkeypatch):
    monkeypatch.setattr("advect.apps.label_choice._COMPARED_ON", 60)
    monkeypatch.setattr("advect.apps.label_choice._REFINED", 100)
    data = blobs(200)
    made = ad.apps.label(partly(data, 3), progress=False)
    assert torch.equal(made.dataset.y, data.y)
    assert "refine" not in {one.way.method for one in made.compared}


def test_the_way_is_chosen_on_known_labels_alone():
    """Other labels of the pool, which it is not shown, change nothing; and the best comes first."""
    data = blobs(90, gap=2.0)
    made = ad.apps.label(partly(data, 5), progress=False)
    best = max(one.log_likelihood for one in made.compared)
    assert made.compared[0].way == made.way
    assert best - made.compared[0].log_likelihood < 0.5
    assert {one.way.method for one in made.compared} >= {"propagate", "nearest", "logistic"}


def test_scores_at_temperature_one_are_the_spread_ones():
    data = partly(blobs(60, gap=2.0), 4)
    way, points = WAYS[0], Points(data.x.double().numpy())
    known = Known(data.y.numpy(), 3)
    expected = spread(points.graph(5), 0.9, one_hot(known.codes, 3))
    np.testing.assert_allclose(scored(way, points, known), expected)
    assert replace(way, alpha=0.99).usual_temperature == pytest.approx(math.sqrt(0.01) ** 0.6)


def test_what_is_refused():
    data = blobs(30)
    bare = ad.LabeledDataset(data.x)
    for arguments, options, message in (
        ((data,), {}, "nothing to label"),
        ((bare,), {}, "at least two classes"),
        ((bare, data.of_class("class 0")), {}, "at least two classes"),
        ((bare, blobs(30, d=5)), {}, "harmonize"),
        ((bare, data), {"method": "propagte"}, "propagate"),
        ((bare, data), {"alpha": 1.0}, "alpha"),
        ((bare, data), {"neighbors": 0}, "neighbors"),
        ((bare, data), {"embedding": "gradient"}, "gradients"),
        ((data.x, data), {}, "LabeledDataset"),
    ):
        with pytest.raises(ad.InputError, match=message):
            ad.apps.label(*arguments, progress=False, **options)
    made = ad.apps.label(partly(blobs(60, gap=0.5), 1), progress=False)
    with pytest.raises(ad.InputError, match="probability"):
        made.confident(1.5)

"""Labels for a pool: by brute force over folds, laws of calibration, and what is refused."""

import numpy as np
import pytest
import torch
from flow_cases import classes_on_axes, partly

import advect as ad
from advect.apps import label_methods
from advect.apps.label_methods import KnownLabels, LabelMethod, Points


def blobs(n=40, k=3, gap=8.0, seed=0, d=4):
    data = classes_on_axes(n, k, d, seed, apart=gap)
    return data.replace(classes=tuple(f"class {code}" for code in range(k)))


METHODS = [LabelMethod("propagate", "features", 5, 0.9), LabelMethod("refine", "features", 5, 0.9)]


@pytest.mark.parametrize("way", METHODS, ids=str)
def test_held_out_labels_are_never_looked_at(way):
    data = partly(blobs(60, gap=2.0), 4)
    codes = data.y.numpy()
    known, points = KnownLabels(codes, 3), Points(data.x.double().numpy())
    found = label_methods.held_out_scores(way, points, known)
    assert found.shape == (12, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    for fold in range(known.folds.max() + 1):
        out = known.folds == fold
        alone = label_methods.all_scores(way, points, np.where(out, -1, codes), 3)
        np.testing.assert_allclose(found[out[known.held_out]], alone[out], atol=1e-6)


def test_folds_have_labels_of_all_classes_and_leave_lone_ones_in():
    codes = np.array([0] * 4 + [1] * 3 + [2] + [-1] * 5)
    known = KnownLabels(codes, 3)
    assert (known.folds[7:] == -1).all() and set(known.held_out) == set(range(7))
    for fold in range(known.folds.max() + 1):
        held = known.folds == fold
        assert len({*codes[held]}) == held.sum() and {*codes[~held]} == {-1, 0, 1, 2}
    assert KnownLabels(np.arange(3000) % 100, 100).folds.max() == 1  # folds times classes are few


def test_refining_survives_points_that_do_not_differ():
    x = np.repeat([[0.0, 0.0], [1.0, 0.0]], 10, axis=0)
    data = partly(ad.LabeledDataset(x, ["a"] * 10 + ["b"] * 10), 2)
    assert ad.apps.label(data, method="refine", progress=False).labels == ["a"] * 10 + ["b"] * 10


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_the_temperature_of_scores_is_found(temperature):
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(20_000, 4)) * 2
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (true.cumsum(axis=1) > generator.random((20_000, 1))).argmax(axis=1)
    scores = true**temperature / (true**temperature).sum(axis=1, keepdims=True)
    found = label_methods.calibrated(scores, codes)
    assert found.temperature == pytest.approx(temperature, rel=0.05)
    np.testing.assert_allclose(found(scores).sum(axis=1), 1)


def test_without_labels_to_hold_out_nothing_is_claimed():
    data = blobs(60)
    made = ad.apps.label(partly(data, 1), progress=False)
    assert made.accuracy is None and made.calibration.interval is None and not made.compared
    assert made.calibration.temperature == made.method.prior_temperature
    assert "unknown" in made.notes[0]
    assert (made.dataset.y == data.y).double().mean() > 0.95


def test_confidence_is_about_right_where_labels_are_uncertain():
    data = blobs(600, gap=2.0, seed=2)
    made = ad.apps.label(partly(data, 20), embedding=None, progress=False)
    given = ~made.known
    right = (made.dataset.y == data.y).numpy()[given]
    assert abs(made.confidence[given].mean() - right.mean()) < 0.1
    low, high = made.calibration.interval
    assert low <= right.mean() <= high
    sure = made.dataset.subset(made.confidence >= 0.9)
    assert set(sure.labels) <= set(data.classes)
    assert len(sure) == int((made.confidence >= 0.9).sum())


@pytest.mark.slow
def test_pool_and_few_are_one_graph_and_names_are_kept():
    data = blobs(80)
    few, pool = partly(data, 3), data.subset(slice(12, 80))
    few = few.subset(few.labeled)
    made = ad.apps.label(ad.LabeledDataset(pool.x), few, progress=False)
    assert made.labels == pool.labels and torch.equal(made.dataset.x, pool.x)
    assert not made.known.any() and len(made) == len(pool)
    some = pool.replace(y=torch.where(torch.arange(len(pool)) < 5, pool.y, -1))
    wrong = some.replace(y=some.y.index_fill(0, torch.tensor([0]), (int(some.y[0]) + 1) % 3))
    kept = ad.apps.label(wrong, few, progress=False)
    assert kept.labels[0] == wrong.labels[0] and kept.confidence[0] == 1 and kept.known.sum() == 5
    assert not set(kept.unsure(80)) & set(range(5)) and len(kept.unsure(80)) == len(pool) - 5


@pytest.mark.slow
def test_answers_depend_on_no_order_of_classes_and_repeat():
    few = partly(blobs(90, gap=3.0), 4)
    made = ad.apps.label(few, progress=False)
    assert np.array_equal(made.probabilities, ad.apps.label(few, progress=False).probabilities)
    names = [("other", 3 - code) for code in range(3)]
    again = ad.apps.label(few.replace(classes=tuple(names)), progress=False)
    assert again.dataset.classes == tuple(names)
    np.testing.assert_allclose(again.probabilities, made.probabilities)
    float32 = ad.apps.label(few.to(dtype=torch.float32), progress=False)
    assert (float32.dataset.y == made.dataset.y).double().mean() > 0.97


def test_the_embedding_may_be_a_network():
    data = blobs(60, gap=3.0)
    noise = 100 * torch.randn(60, 4).double()
    hidden = data.replace(x=torch.cat([data.x, noise], 1), sample_shape=(8,))
    body = torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False), torch.nn.Dropout(0.9))
    body[0].weight.data = torch.eye(4, 8)
    body.train()
    made = ad.apps.label(partly(hidden, 3), embedding=body, progress=False)
    assert (made.dataset.y == data.y).double().mean() > 0.9
    assert made.method.embedding == "Sequential" and body.training


def test_ways_of_large_pools_are_compared_on_a_part(monkeypatch):
    monkeypatch.setattr("advect.apps.label_methods._MAX_COMPARED", 60)
    monkeypatch.setattr("advect.apps.label_methods._MAX_REFINED", 100)
    data = blobs(200)
    made = ad.apps.label(partly(data, 3), progress=False)
    assert torch.equal(made.dataset.y, data.y)
    assert "refine" not in {one.method.method for one in made.compared}


def test_what_is_refused():
    data = blobs(30)
    bare = ad.LabeledDataset(data.x)
    for arguments, options, message in (
        ((data,), {}, "nothing to label"),
        ((bare,), {}, "at least two classes"),
        ((bare, data.of_class("class 0")), {}, "at least two classes"),
        ((bare, blobs(30, d=5)), {}, "harmonize"),
        ((bare, data), {"method": "propagte"}, "propagate"),
        ((bare, data), {"embedding": "gradient"}, "gradients"),
        ((data.x, data), {}, "LabeledDataset"),
    ):
        with pytest.raises(ad.InputError, match=message):
            ad.apps.label(*arguments, progress=False, **options)

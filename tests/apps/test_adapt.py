"""``ad.adapt`` names the shift, its numbers agree with their formulas, and labels of the target decide."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import advect as ad
from advect.apps.adapt import _moved
from advect.apps.label_methods import wilson


def sample(n, seed, share=0.5):
    """A crescent of one class around a blob of the other; n samples, a share of them in the blob."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) >= share * n).astype(int)
    angle = rng.uniform(0, np.pi, n)
    arc = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    x = np.where(y[:, None] == 1, arc, [0.0, 0.5]) + 0.6 * rng.normal(size=(n, 2))
    return x, y


def shifted(kind, n=240, seed=1):
    x, y = sample(n, seed, 0.9 if kind == "class proportions" else 0.5)
    if kind == "conditional":
        x = x @ np.array([[0.6, 0.2], [0.0, 1.3]]) + [4, -2]
    if kind == "covariate":
        x, y = sample(20 * n, seed)
        near = np.exp(-np.square(x - [1.5, 1.5]).sum(axis=1))
        rows = np.random.default_rng(seed).choice(len(x), n, replace=False, p=near / near.sum())
        x, y = x[rows], y[rows]
    return x, y


SOURCE = ad.LabeledDataset(*sample(240, 0))
METHODS = {
    "none": "leave",
    "class proportions": "reweight",
    "conditional": "move",
    "covariate": "select",
}


@pytest.mark.parametrize("kind", METHODS)
def test_the_shift_is_named_and_the_model_gains(kind):
    x, _ = shifted(kind)
    found = ad.adapt(SOURCE, ad.LabeledDataset(x), SVC())
    assert (found.shift, found.method) == (kind, METHODS[kind])
    new, truth = shifted(kind, seed=2)
    before = SVC().fit(SOURCE.x.numpy(), SOURCE.labels).score(new, truth)
    assert found.model.score(new, truth) > max(0.85, before - 0.03)
    assert kind != "conditional" or before < 0.7
    low, high = found.interval
    assert 0 <= low <= found.accuracy <= high <= 1
    assert kind in str(found) and len(found.to_dict()["Evidence"]) == 4


def test_ten_labels_find_classes_that_are_swapped():
    x, y = shifted("none")
    target = ad.LabeledDataset(x, [1 - c if i % 24 == 0 else None for i, c in enumerate(y)])
    found = ad.adapt(SOURCE, target, SVC())
    assert (found.shift, found.method) == ("conditional", "labels")
    assert found.model.score(x, 1 - y) > 0.85
    # the probability of a candidate is ∝ prior · Π (0.9 p + 0.1 / 2)
    known = target.labeled.numpy()
    logs = []
    for each in found.candidates:
        p = each.answers[known, 1 - y[known]]
        prior = 0.98 if each.method == "leave" else 0.005
        logs.append(np.log(prior) + np.log(0.9 * p + 0.05).sum())
    odds = np.exp(np.array(logs) - max(logs))
    assert np.allclose([each.probability for each in found.candidates], odds / odds.sum())
    right = round(found.accuracy * 10)
    assert found.interval == wilson(right, 10)


def test_labels_join_the_training_set():
    x, y = shifted("conditional")
    labels = [c if i % 24 == 0 else None for i, c in enumerate(y)]
    found = ad.adapt(SOURCE, ad.LabeledDataset(x, labels), LogisticRegression())
    assert found.method == "move" and len(found.dataset) == 250
    assert np.array_equal(found.dataset.x[240:].numpy(), x[::24])
    assert float(found.dataset.weights[240:].sum()) == pytest.approx(10 / 110)
    weights = 250 * found.dataset.weights.numpy()
    alone = LogisticRegression().fit(
        found.dataset.x.numpy(), found.dataset.labels, sample_weight=weights
    )
    assert np.array_equal(alone.predict_proba(x), found.model.predict_proba(x))


def test_the_map_takes_moments_to_moments():
    data, _ = shifted("conditional", 4000)
    source, target = ad.LabeledDataset(*sample(4000, 0)), ad.LabeledDataset(data)
    moved = _moved(source, target).x
    assert torch.allclose(moved.mean(dim=0), target.x.mean(dim=0))
    assert torch.allclose(moved.T.cov(), target.x.T.cov(), rtol=1e-2)
    ot = pytest.importorskip("ot")
    exact = ot.da.LinearTransport(reg=1e-12).fit(Xs=source.x.numpy(), Xt=data)
    assert np.allclose(moved, exact.transform(Xs=source.x.numpy()), atol=0.02)


def test_the_estimator_trains_on_the_same_set():
    x, y = shifted("conditional")
    few = np.where(np.arange(240) % 24 == 0, y, -1)
    model = ad.TransportClassifier(SVC(), transport="auto")
    model.fit(SOURCE.x.numpy(), SOURCE.y.numpy(), x, few)
    labels = [None if c < 0 else c for c in few.tolist()]
    alone = ad.adapt(SOURCE, ad.LabeledDataset(x, labels), SVC())
    assert np.array_equal(model.predict(x), alone.model.predict(x))
    assert model.adapted_.reason == alone.reason


def test_what_is_unusual():
    flat = ad.LabeledDataset(np.zeros((12, 3)), [0, 1] * 6)
    tail = np.random.default_rng(0).exponential(size=(40, 2)) ** 4
    for source, target in ((flat, np.zeros((9, 3))), (SOURCE, tail), (SOURCE, tail[:1])):
        assert 0 <= ad.adapt(source, ad.LabeledDataset(target)).accuracy <= 1
    named = ad.LabeledDataset(SOURCE.x, ["ab"[c] for c in SOURCE.labels])
    some = named.subset(range(0, 240, 3))
    found = ad.adapt(named, some.replace(classes=("a", "b", "nobody")), SVC())
    assert found.shift == "none" and set(found.model.predict(named.x.numpy())) == {"a", "b"}


def test_a_class_that_is_not_seen_in_the_target_stays():
    x, y = sample(200, 1, share=1.0)
    found = ad.adapt(SOURCE, ad.LabeledDataset(x), SVC())
    assert found.method == "reweight" and found.model.score(x, y) > 0.97
    assert 0 < float(found.dataset.class_mass[1]) < 0.03


def test_what_is_refused():
    x, _ = shifted("none", 20)
    for call, keyword in (
        (lambda: ad.adapt(SOURCE, ad.LabeledDataset(x, ["z"] * 20)), "classes of the source"),
        (lambda: ad.adapt(ad.LabeledDataset(x), SOURCE), "label"),
        (lambda: ad.adapt(SOURCE, ad.LabeledDataset(x[:, :1])), "feature"),
        (lambda: ad.adapt(SOURCE, SOURCE, "svc"), "classifier"),
        (lambda: ad.adapt(SOURCE, SOURCE, max_samples=10), "max_samples"),
    ):
        with pytest.raises(ad.InputError, match=keyword):
            call()

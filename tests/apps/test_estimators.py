"""``DatasetTransport`` keeps scikit-learn's contract, and carries new samples where the flow would."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import advect as ad
from advect.maps import NearestMap, NeuralMap


def classes(n, seed, turn=False):
    """Two classes above each other, n each; or turned by 60 degrees, and further on."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], n)
    angle = np.pi / 3 if turn else 0.0
    apart = 2 * np.where(y, 1, -1)[:, None] * [np.sin(angle), np.cos(angle)]
    return rng.normal(size=(2 * n, 2)) * 0.4 + apart + (6.0 if turn else 0.0), y


@pytest.mark.parametrize(
    "name",
    ["entropic", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nearest", "neural"))],
)
def test_keeps_the_contract_of_scikit_learn(name):
    chosen = NeuralMap(epochs=1, restarts=1, progress=False) if name == "neural" else name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks that do not apply here warn that they are skipped
        done = check_estimator(ad.DatasetTransport(n_steps=2, map=chosen), on_fail="raise")
    other = {check["check_name"] for check in done if check["status"] != "passed"}
    assert len(done) > 40 and other <= {"check_array_api_input"}


def test_agrees_with_the_flow_and_the_map():
    (xs, ys), (xt, yt) = classes(20, 0), classes(25, 1, turn=True)
    options = {"n_steps": 4, "step_size": 0.3, "label_weight": 2.0, "epsilon": 0.5}
    fitted = ad.DatasetTransport(label=ad.Bures(), **options).fit(xs, ys, xt, yt)
    assert "names" in ad.DatasetTransport(n_steps=1).fit(xs, ys, xt, yt).settings_["cost.label"]
    source, target = ad.LabeledDataset(xs, ys), ad.LabeledDataset(xt, yt)
    cost = ad.GroundCost(label_weight=2.0)
    solver = ad.Sinkhorn(0.5, tol=1e-3)
    objective = ad.OTDD(target, cost=cost, solver=solver)
    result = ad.flow(source, objective, integrator=ad.Euler(0.3), n_steps=4)
    assert np.array_equal(fitted.flowed_, result.dataset.x.numpy())
    expected = ad.maps.EntropicMap(epsilon=0.5, label_weight=2.0).fit(result).transform(xs)
    assert np.array_equal(fitted.transform(xs), expected)


@pytest.mark.slow
def test_without_labels_on_one_side_features_alone_count():
    (xs, ys), (xt, yt) = classes(20, 0), classes(20, 1, turn=True)
    bare = ad.DatasetTransport(n_steps=3).fit(xs, Xt=xt)
    for labels, same in (({"y": ys}, True), ({"yt": yt}, True), ({"y": ys, "yt": yt}, False)):
        fitted = ad.DatasetTransport(n_steps=3).fit(xs, Xt=xt, **labels)
        assert np.array_equal(fitted.flowed_, bare.flowed_) == same


@pytest.mark.slow
@pytest.mark.parametrize("name", ["entropic", "nearest", "neural"])
def test_without_a_target_it_is_the_identity(name):
    x, y = classes(20, 0)
    fitted = ad.DatasetTransport(map=name).fit(x, y)
    new, _ = classes(20, 3)
    assert np.array_equal(fitted.flowed_, x)
    assert np.allclose(fitted.transform(new), new, atol=1e-6)


@pytest.mark.slow
def test_in_a_pipeline():
    (xs, ys), (xt, yt), (new, y) = classes(40, 0), classes(40, 1, turn=True), classes(30, 2)
    scaled = StandardScaler().fit(xs).transform(xt)
    carry = ad.DatasetTransport(n_steps=25, label_weight=5.0)
    steps = [("scale", StandardScaler()), ("carry", carry), ("read", LogisticRegression())]
    pipe = Pipeline(steps).fit(xs, ys, carry__Xt=scaled, carry__yt=yt)
    assert pipe.score(new, y) > 0.98
    assert pipe.set_params(carry__n_steps=1)["carry"].get_params()["n_steps"] == 1
    bare = make_pipeline(StandardScaler(), ad.DatasetTransport())
    assert bare.fit_transform(xs).shape == xs.shape


def test_names_of_features():
    pandas = pytest.importorskip("pandas")
    x, y = classes(10, 0)
    frame = pandas.DataFrame(x, columns=["width", "height"])
    fitted = ad.DatasetTransport(n_steps=2).set_output(transform="pandas")
    moved = fitted.fit(frame, y, frame + 1, y).transform(frame)
    assert list(fitted.feature_names_in_) == list(moved.columns) == ["width", "height"]
    with pytest.raises(ValueError, match="feature names"):
        ad.DatasetTransport().fit(frame, y, frame.rename(columns={"width": "depth"}), y)


def test_errors():
    x, y = classes(10, 0)
    for options, keyword in (
        ({"map": "entropy"}, "Did you mean 'entropic'"),
        ({"map": NearestMap}, "map must be a name"),
        ({"dynamics": "df"}, "unknown dynamics"),
        ({"n_steps": -1}, "n_steps"),
        ({"step_size": 0.0}, "step_size"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"label_weight": -1.0}, "label_weight"),
        ({"step_size": 1e200, "n_steps": 5}, "finite"),
    ):
        with pytest.raises(ad.InputError, match=keyword):
            ad.DatasetTransport(**options).fit(x, y, x + 1, y)
    with pytest.raises(ad.InputError, match="yt without Xt"):
        ad.DatasetTransport().fit(x, y, yt=y)

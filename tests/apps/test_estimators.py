"""The estimators keep scikit-learn's contract, map new samples as the flow does, and predict the target."""

from __future__ import annotations

import warnings

import joblib
import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import advect as ad
from advect.maps import NearestMap, NeuralMap

FAST = NeuralMap(epochs=1, restarts=1, progress=False)


def classes(n, seed, turn=False):
    """Two classes above each other, n each; or turned by 60 degrees, and further on."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], n)
    angle = np.pi / 3 if turn else 0.0
    apart = 2 * np.where(y, 1, -1)[:, None] * [np.sin(angle), np.cos(angle)]
    return rng.normal(size=(2 * n, 2)) * 0.4 + apart + (6.0 if turn else 0.0), y


@pytest.mark.parametrize(
    "model",
    [
        ad.DatasetTransport(n_steps=2),
        ad.TransportClassifier(LogisticRegression()),
        ad.ClassReweighting(LogisticRegression()),
        ad.LabelSpreader(),
        pytest.param(ad.AuditFilter(LogisticRegression()), marks=pytest.mark.slow),
        ad.TransportRegressor(LinearRegression()),
        pytest.param(ad.DatasetTransport(n_steps=2, map="nearest"), marks=pytest.mark.slow),
        pytest.param(ad.DatasetTransport(n_steps=2, map=FAST), marks=pytest.mark.slow),
    ],
)
def test_keeps_the_contract_of_scikit_learn(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks that do not apply here warn that they are skipped
        done = check_estimator(model, on_fail="raise")
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
def test_without_labels_of_the_source_features_alone_count():
    (xs, ys), (xt, yt) = classes(20, 0), classes(20, 1, turn=True)
    bare = ad.DatasetTransport(n_steps=3).fit(xs, X_target=xt)
    for labels, same in (({"y_target": yt}, True), ({"y": ys}, False)):
        fitted = ad.DatasetTransport(n_steps=3).fit(xs, X_target=xt, **labels)
        assert np.array_equal(fitted.flowed_, bare.flowed_) == same


@pytest.mark.slow
@pytest.mark.parametrize("name", ["entropic", "nearest", "neural"])
def test_without_a_target_it_is_the_identity(name):
    x, y = classes(20, 0)
    fitted = ad.DatasetTransport(map=name).fit(x, y)
    new, _ = classes(20, 3)
    assert np.array_equal(fitted.flowed_, x)
    assert np.allclose(fitted.transform(new), new, atol=1e-6)


def shifted(n=100, seed=0):
    """Two classes, and the same samples with the second column 6 higher."""
    X = np.random.default_rng(seed).normal(size=(n, 2)) + 5
    y = (X[:, 0] > 5).astype(int)
    X[:, 1] += 3 * y
    return X, y, X + np.array([0, 6])


def test_a_classifier_predicts_the_target_as_it_is():
    X, y, X_target = shifted(200)
    model = ad.TransportClassifier(LogisticRegression()).fit(X, y, X_target[:100], y[:100])
    assert (
        model.score(X_target, y) > 0.97 and LogisticRegression().fit(X, y).score(X_target, y) < 0.8
    )
    transport = ad.DatasetTransport().fit(X, y, X_target[:100], y[:100])
    alone = LogisticRegression().fit(transport.flowed_, y, sample_weight=200 * transport.weights_)
    assert np.array_equal(model.predict_proba(X_target), alone.predict_proba(X_target))
    shares = [transport.weights_[y == code].sum() for code in (0, 1)]
    assert shares == pytest.approx((np.bincount(y[:100]) + 1) / 102)


@pytest.mark.parametrize("routing", [False, True])
def test_searches_and_pipelines(routing):
    X, y, X_target = shifted()
    more, scale = np.r_[X_target, X_target], StandardScaler()
    model, grid = ad.TransportClassifier(LogisticRegression()), {"estimator__C": [0.1, 1.0]}
    with config_context(enable_metadata_routing=routing):
        found = []
        for rows in (slice(100), slice(200)):  # as long as X, and longer
            whole = clone(model).set_params(target=(more[rows], np.r_[y, y][rows]))
            found.append(GridSearchCV(whole, grid, cv=2, error_score="raise").fit(X, y))
        passed = GridSearchCV(model, grid, cv=2).fit(X, y, X_target=more, y_target=np.r_[y, y])
        cut = GridSearchCV(model, grid, cv=2, error_score="raise")
        with pytest.raises(ad.InputError, match="fold"):
            cut.fit(X[:99], y[:99], X_target=X_target[:99])
        results = [each.cv_results_["mean_test_score"] for each in (*found, passed)]
        assert np.allclose(results[0], results[1]) and np.array_equal(results[1], results[2])
        both = ad.TransportClassifier(LogisticRegression(), transformer=scale).fit(X, y, X_target)
        assert both.score(X_target, y) > 0.97
        if routing:
            steps = [("scale", StandardScaler()), ("model", model)]
            piped = Pipeline(steps, transform_input=["X_target"]).fit(X, y, X_target=X_target)
            assert np.array_equal(piped.predict_proba(X_target), both.predict_proba(X_target))


@pytest.mark.parametrize("routing", [False, True])
def test_class_reweighting(routing, tmp_path):
    (X, y), (more, _) = classes(60, 0), classes(60, 1)
    X_target = more[: 60 + 12]  # 60 and 12 of the classes
    with config_context(enable_metadata_routing=routing):
        model = ad.ClassReweighting(LogisticRegression()).fit(X, y, X_target)
        shares = model.class_shares_.shares
        assert shares == pytest.approx([60 / 72, 12 / 72], abs=0.02)
        counts = 72 * shares + 1
        alone = LogisticRegression().fit(X, y, sample_weight=2 * (counts / counts.sum())[y])
        assert np.allclose(model.predict_proba(X), alone.predict_proba(X))
        doubled = ad.ClassReweighting(LogisticRegression())
        doubled.fit(X, y, X_target, sample_weight=np.full(120, 3.0))  # a scale does not matter
        assert np.allclose(doubled.predict_proba(X), alone.predict_proba(X))
        found = []
        for target in (more[:72], more[:120]):  # of another length than X, and of the same
            whole = clone(model).set_params(target=(target, None))
            grid = {"estimator__C": [0.1, 1.0]}
            found.append(GridSearchCV(whole, grid, cv=2, error_score="raise").fit(X, y))
        assert found[0].best_score_ > 0.97 and found[1].best_score_ > 0.97
        joblib.dump(found[0], tmp_path / "search")
        assert np.array_equal(joblib.load(tmp_path / "search").predict(X), found[0].predict(X))
    with pytest.raises(ad.InputError, match="sample_weight"):
        ad.ClassReweighting(KNeighborsClassifier()).fit(X, y, X_target, sample_weight=np.ones(120))


def test_label_spreader_is_fill_labels():
    (X, y), (new, truth) = classes(40, 0), classes(40, 1)
    few = np.where(np.arange(80) % 20 == 0, y, -1)
    model = ad.LabelSpreader(neighbors=5).fit(X, few)
    labels = [None if code < 0 else code for code in few.tolist()]
    filled = ad.fill_labels(ad.LabeledDataset(X, labels), neighbors=5, soft=True)
    assert np.array_equal(model.label_distributions_, filled.probabilities.numpy())
    assert np.array_equal(model.transduction_, y) and model.score(new, truth) == 1
    assert np.allclose(model.predict_proba(X), model.label_distributions_)  # known samples
    named = np.array(["no", "yes"], dtype=object)[y]
    named[few < 0] = -1
    assert set(ad.LabelSpreader().fit(X, named).predict(new)) == {"no", "yes"}


def test_audit_filter_drops_suspects():
    X, y = classes(40, 0)
    wrong = np.where(np.arange(80) % 16 == 3, 1 - y, y)
    model = ad.AuditFilter(KNeighborsClassifier(1)).fit(X, wrong)
    assert model.score(X, y) == 1 > KNeighborsClassifier(1).fit(X, wrong).score(X, y)
    assert set(model.audit_.wrong) == set(np.flatnonzero(wrong != y))
    trusted = ad.AuditFilter(KNeighborsClassifier(1), target=classes(20, 1)).fit(X, wrong)
    assert trusted.audit_.reference is not None and trusted.score(X, y) == 1


def test_weights_cost_solver_and_the_inverse(tmp_path):
    (xs, ys), (xt, yt) = classes(20, 0), classes(20, 1, turn=True)
    weights = np.where(ys, 3.0, 1.0)
    plain = ad.DatasetTransport(n_steps=5).fit(xs, X_target=xt, sample_weight=weights)
    source = ad.LabeledDataset(xs, weights=weights)
    expected = ad.flow(source, ad.LabeledDataset(xt), n_steps=5).dataset
    assert np.array_equal(plain.flowed_, expected.x.numpy())
    assert plain.weights_ == pytest.approx(weights / weights.sum())
    cost, solver = ad.GroundCost(label_weight=2.0), ad.Sinkhorn(0.5)
    made = ad.DatasetTransport(n_steps=5, cost=cost, solver=solver).fit(xs, ys, xt, yt)
    goal = ad.OTDD(ad.LabeledDataset(xt, yt), cost=cost, solver=solver)
    exact = ad.flow(ad.LabeledDataset(xs, ys), goal, integrator=ad.Euler(0.5), n_steps=5)
    assert np.array_equal(made.flowed_, exact.dataset.x.numpy())
    same = ad.Sinkhorn(0.5, tol=1e-3)  # what epsilon stands for
    found = [
        ad.DatasetTransport(n_steps=5, **options).fit(xs, ys, xt, yt).flowed_
        for options in ({"solver": same}, {"epsilon": 0.5})
    ]
    assert np.array_equal(*found)
    back = ad.DatasetTransport().fit(xs, ys, xt, yt)
    assert np.abs(back.inverse_transform(back.transform(xs)) - xs).mean() < 0.3
    joblib.dump(back, tmp_path / "transport")
    again = joblib.load(tmp_path / "transport")
    assert np.array_equal(again.inverse_transform(xt), back.inverse_transform(xt))
    other = back.inverse_transform(xt)
    assert not np.array_equal(back.fit(xs, ys, xt + 9, yt).inverse_transform(xt), other)


def test_missing_labels_of_the_target_are_filled():
    (xs, ys), (xt, yt), (new, y) = (
        classes(40, 0),
        classes(40, 1, turn=True),
        classes(40, 2, turn=True),
    )
    few = np.where(np.arange(80) % 8 == 0, yt, -1)
    gaps = [few, np.where(few < 0, np.nan, few), [None if code < 0 else code for code in few]]
    made = [ad.DatasetTransport(n_steps=3).fit(xs, ys, xt, part).flowed_ for part in gaps]
    assert all(np.array_equal(part, made[0]) for part in made)
    score = {}
    for name, labels in {"all": yt, "few": few, "none": None}.items():
        score[name] = (
            ad.TransportClassifier(LogisticRegression()).fit(xs, ys, xt, labels).score(new, y)
        )
    assert min(score.values()) > 0.97
    swapped = np.where(few < 0, -1, 1 - few)  # known labels of the target count
    model = ad.TransportClassifier(LogisticRegression()).fit(xs, ys, xt, swapped)
    assert model.score(new, 1 - y) > 0.6
    signs = 2 * ys - 1  # −1 is a class of the source
    model = ad.TransportClassifier(LogisticRegression()).fit(xs, signs, xt, 2 * yt - 1)
    assert model.score(new, 2 * y - 1) > 0.97


def test_continuous_targets():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(80, 2)), rng.normal(size=80)
    y, few = X[:, 0] + 0.01 * noise, np.where(np.arange(80) % 4, np.nan, X[:, 0])
    for known in (y, few, None):
        model = ad.TransportRegressor(LinearRegression()).fit(X, y, X + 6, known)
        assert model.score(X + 6, y) > (0.95 if known is not None else 0.8)
    settings = ad.DatasetTransport(n_steps=1).fit(X, y, X + 6, few).settings_
    assert "TargetValues" in settings["cost.label"]
    with pytest.raises(ad.InputError, match="one kind"):
        ad.DatasetTransport().fit(X, (X[:, 0] > 0).astype(float), X, y)


def test_former_names_of_the_target():
    X, y, X_target = shifted(20)
    with pytest.warns(FutureWarning, match="X_target"):
        former = ad.DatasetTransport(n_steps=1).fit(X, y, Xt=X_target, yt=y)
    assert np.array_equal(
        former.flowed_, ad.DatasetTransport(n_steps=1).fit(X, y, X_target, y).flowed_
    )


def test_names_of_features():
    pandas = pytest.importorskip("pandas")
    x, y = classes(10, 0)
    frame = pandas.DataFrame(x, columns=["width", "height"])
    fitted = ad.DatasetTransport(n_steps=2).set_output(transform="pandas")
    moved = fitted.fit(frame, y, frame + 1, y).transform(frame)
    assert list(fitted.feature_names_in_) == list(moved.columns) == ["width", "height"]
    polars = pytest.importorskip("polars")
    fitted = ad.DatasetTransport(n_steps=2).set_output(transform="polars")
    moved = fitted.fit(polars.DataFrame(frame), y, polars.DataFrame(frame + 1), y)
    moved = moved.transform(polars.DataFrame(frame))
    assert type(moved) is polars.DataFrame and moved.columns == ["width", "height"]
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
    with pytest.raises(ad.InputError, match="transport must be"):
        ad.TransportRegressor(LinearRegression(), transport="auto").fit(x, y, x + 1)
    with pytest.raises(ad.InputError, match="y_target without X_target"):
        ad.DatasetTransport().fit(x, y, y_target=y)

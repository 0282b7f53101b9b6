"""The adapters of skada train on the same samples as the estimators."""

import numpy as np
import pytest
from sklearn import config_context, get_config, set_config
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import advect as ad

BEFORE = get_config()
skada = pytest.importorskip("skada", reason="skada is an optional extra")
set_config(**BEFORE)  # it enables metadata routing

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1], 40)
X = RNG.normal(size=(80, 2)) + 4 * Y[:, None]
TARGET = X[::-1] + np.array([6, -6])
BOTH = np.concatenate([X, TARGET])
DOMAIN = np.repeat([1, -2], 80)
MASKED = np.concatenate([Y, np.full(80, -1)])


@pytest.fixture(autouse=True)
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize(
    "model", [ad.TransportClassifier(SVC(), transport="auto"), ad.ClassReweighting(SVC())]
)
def test_a_classifier(model):
    from advect.apps.skada import DomainClassifier

    made = DomainClassifier(model).fit(BOTH, MASKED, sample_domain=DOMAIN)
    alone = model.fit(X, Y, TARGET, None)
    assert np.array_equal(made.predict(TARGET), alone.predict(TARGET))
    piped = skada.make_da_pipeline(DomainClassifier(model)).fit(BOTH, MASKED, sample_domain=DOMAIN)
    assert np.array_equal(piped.predict(TARGET), alone.predict(TARGET))


def test_an_adapter():
    from advect.apps.skada import TransportAdapter

    transport = ad.DatasetTransport(n_steps=10)
    piped = skada.make_da_pipeline(TransportAdapter(transport), LogisticRegression())
    piped.fit(BOTH, MASKED, sample_domain=DOMAIN)
    alone = LogisticRegression().fit(transport.fit(X, Y, TARGET, np.full(80, -1)).transform(X), Y)
    assert np.allclose(piped.predict_proba(TARGET), alone.predict_proba(TARGET))
    assert piped.score(TARGET, Y[::-1]) > 0.95

"""The table of short names: objects are made from text and described as text."""

import numpy as np
import pytest

import advect as ad
import advect.registry as registry
from advect._util import query

ALL = [(kind, name) for kind in registry.kinds() for name in registry.names(kind)]
PARTS = ("functional", "potential", "interaction", "feature", "stop", "epsilon", "penalty")


@pytest.mark.parametrize(("kind", "name"), ALL, ids=[" ".join(pair) for pair in ALL])
def test_an_object_is_described_as_it_was_made(kind, name):
    assert callable(registry.lookup(kind, name))
    if kind not in (*PARTS, "step_size"):
        table = registry.describe(kind, registry.make(kind, name))
        assert table["name"] == name
        assert registry.describe(kind, registry.make(kind, table)) == table


@pytest.mark.parametrize(
    ("kind", "text", "made"), [("solver", "sinkhorn?epsilon=5%", ad.Sinkhorn(ad.Relative(0.05))),
    ("solver", "sinkhorn?epsilon=0.5&max_iter=9", ad.Sinkhorn(0.5, max_iter=9)),
    ("integrator", "euler?step_size=decay%3Ffirst=1%26half_life=2", None),
    ("dynamics", "fd?bounds=-inf,1", ad.FeatureDriven(bounds=(-np.inf, 1.0))), ("dynamics",
    "jd-fl?bounds=0;1,2&columns=0,2", ad.JointFixedLabels(bounds=(0, (1, 2)), columns=(0, 2))),
    ("dynamics", "fd?columns=a%2Cb,c", ad.FeatureDriven(columns=("a,b", "c"))),
    ("cost", {"label": "names?plus=bures", "label_weight": 2}, None)],
)  # fmt: skip
def test_objects_from_text(kind, text, made):
    found = registry.make(kind, text)
    assert made is None or repr(found) == repr(made)
    assert repr(registry.make(kind, registry.describe(kind, found))) == repr(found)


class Slow(ad.FeatureDriven):
    def velocity(self, rho, gradient):
        return {name: 0.5 * v for name, v in super().velocity(rho, gradient).items()}


@pytest.fixture
def slow():
    ad.register("dynamics", "slow", Slow)
    yield
    registry._NAMES["dynamics"].pop("slow")


def test_register(slow):
    x = np.random.default_rng(0).normal(size=(20, 2))
    made = [ad.DatasetTransport(n_steps=3, dynamics=name) for name in ("slow", "fd")]
    slow, plain = (transport.fit(x, X_target=x + 5).flowed_ for transport in made)
    assert (slow < plain).all()
    ad.register("dynamics", "slow", Slow)
    with pytest.raises(ad.InputError, match="taken"):
        ad.register("dynamics", "fd", Slow)
    with pytest.raises(ad.InputError, match="Did you mean 'dynamics'"):
        ad.register("dynamic", "other", Slow)


def test_values_have_the_types_of_the_signature():
    found = registry.convert("internal", ad.Internal, {"power": "2", "bandwidth": "none"})
    assert found == {"power": 2.0, "bandwidth": None}
    for bad in ({"power": "two"}, {"by_class": "2"}, {"powr": "2"}):
        with pytest.raises(ad.InputError, match="power|by_class"):
            registry.convert("internal", ad.Internal, bad)
    with pytest.raises(ad.InputError, match="once"):
        query.split("a=1&a=2", "x?a=1&a=2")

"""One table of names: read from the sources as from the objects, made and described, added to."""

import subprocess
import sys

import numpy as np
import pytest

import advect as ad
from advect._util import query, registry
from advect._util.signatures import of_object, of_source

ALL = [(kind, name) for kind in registry.kinds() for name in registry.known(kind)]
every = pytest.mark.parametrize(("kind", "name"), ALL, ids=[" ".join(pair) for pair in ALL])


@every
def test_sources_say_what_objects_say(kind, name):
    read, held = registry.options(kind, name), of_object(registry.found(kind, name))
    assert list(read) == list(held)
    for one in read:
        assert read[one].annotation == held[one].annotation and read[one].help == held[one].help
        if held[one].default is None or type(held[one].default) in (bool, int, float):
            assert read[one].default == held[one].default


@every
def test_an_object_is_described_as_it_was_made(kind, name):
    own = registry.options(kind, name)
    if kind not in ("functional", "potential", "interaction", "feature", "stop"):
        said = registry.describe(kind, registry.make(kind, name, {}))
        assert said.pop("name") == name and said.keys() == own.keys()
        assert registry.describe(kind, registry.make(kind, name, said)) == {"name": name, **said}


def test_nothing_is_loaded_to_read_signatures():
    code = (
        "import sys; from advect._util import registry\n"
        "for kind in registry.kinds():\n"
        "    for name in registry.known(kind): registry.options(kind, name)\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Slow(ad.FeatureDriven):
    """Half as fast."""

    def velocity(self, rho, gradient):
        return {name: 0.5 * v for name, v in super().velocity(rho, gradient).items()}


@pytest.fixture
def slow():
    ad.register("dynamics", "slow", Slow)
    yield
    registry._NAMES["dynamics"].pop("slow")


def test_a_name_of_ones_own(slow):
    x = np.random.default_rng(0).normal(size=(20, 2))
    slow, plain = (
        ad.DatasetTransport(n_steps=3, dynamics=name).fit(x, Xt=x + 5).flowed_
        for name in ("slow", "fd")
    )
    assert (slow < plain).all()
    ad.register("dynamics", "slow", Slow)  # again is no other
    with pytest.raises(ad.InputError, match="there is a dynamics of that name"):
        ad.register("dynamics", "fd", Slow)
    with pytest.raises(ad.InputError, match="unknown kind of name.*Did you mean 'dynamics'"):
        ad.register("dynamic", "other", Slow)


def test_values_have_the_types_of_signatures():
    own = of_source("Internal")
    assert query.values(
        {"power": "2", "by_class": "true", "bandwidth": "none"}, own, "internal"
    ) == {
        "power": 2.0,
        "by_class": True,
        "bandwidth": None,
    }
    for bad in ({"power": "two"}, {"by_class": "2"}, {"powr": "2"}):
        with pytest.raises(ad.InputError, match="power|by_class"):
            query.values(bad, own, "internal")
    with pytest.raises(ad.InputError, match="given once"):
        query.split("a=1&a=2", "x?a=1&a=2")

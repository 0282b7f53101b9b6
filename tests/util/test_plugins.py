"""Names that an installed package registers with entry points."""

import sys
from pathlib import Path

import pytest

import advect as ad
from advect import registry
from advect.cli.app import main

MODULE = """
import advect as ad

class Slow(ad.Euler): pass
class Near(ad.Functional):
    def __init__(self, power: float = 1.0): self.power = power
    def __call__(self, rho): return rho.x.square().sum() ** self.power
def read(path, *, scale: float = 1.0):
    return ad.LabeledDataset([[scale], [2 * scale]], ["a", "b"])
def greet(name: str):
    "Greet somebody."
    print("hello", name)
"""
POINTS = """
advect.integrator: slow=extra:Slow  advect.label: close=advect:MeansOnly bures=extra:Gone
advect.solver: gone=extra:Gone number=math:pi  advect.functional: near=extra:Near
advect.format: pairs=extra:read  advect.command: greet=extra:greet lost=missing:run flow=extra:greet
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    info = tmp_path / "site/extra-1.0.dist-info"
    info.mkdir(parents=True)
    Path(info.parent, "extra.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
    lines = (f"[{word[:-1]}]" if word.endswith(":") else word for word in POINTS.split())
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.chdir(tmp_path)
    registry.plugins.cache_clear()
    yield
    registry.plugins.cache_clear()
    sys.modules.pop("extra", None)
    ad.io.loading._READERS.pop("pairs", None)


def test_names_of_a_package(package, capsys):
    assert "slow" in registry.names("integrator") and "extra" not in sys.modules
    for name, label in (("close", ad.MeansOnly()), ("bures", ad.Bures())):  # names of advect first
        assert registry.make("cost", f"ground?label={name}").label == label
    assert ad.datasets.load("pairs:here?scale=3").x.tolist() == [[3.0], [6.0]]
    words = "flow toy:moons?n=9 -f near?power=2 --integrator slow --n-steps 1 -o run -q --no-report"
    assert main(words.split()) == 0
    assert 'name = "slow"' in Path("run/config.toml").read_text()
    capsys.readouterr()
    assert main(["greet", "you"]) == main(["--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("hello you\n") and "Greet somebody." in out and "lost" not in out


def test_a_package_that_cannot_be_used(package, capsys):
    for name in ("gone", "number"):
        with pytest.raises(ad.InputError, match="uninstall extra"):
            registry.make("solver", name)
    assert main(["distance", "--help-all"]) == 0  # without what cannot be used
    assert "gone" not in capsys.readouterr().out
    for name in ("lost", "lots"):
        assert main([name]) == 2 and "Traceback" not in capsys.readouterr().err
    with pytest.raises(ad.InputError, match="Did you mean 'pairs'"):
        ad.datasets.load("pair:here")

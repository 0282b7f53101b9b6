"""Names that an installed package registers with entry points."""

import sys
from pathlib import Path

import pytest

import advect as ad
import advect.registry as registry
from advect.cli.app import main

MODULE = """
import advect as ad

class Slow(ad.Euler):
    pass

class StayNear(ad.Functional):
    def __init__(self, source, strength: float = 1.0):
        self.anchor, self.strength = source.x, strength
    def __call__(self, rho):
        return self.strength * (rho.x - self.anchor).square().sum()

def read_points(path, *, scale: float = 1.0):
    return ad.LabeledDataset([[scale], [2 * scale]], ["a", "b"])

def greet(name: str):
    "Greet somebody."
    print("hello", name)
"""
POINTS = {
    "integrator": "slow = extra_names:Slow",
    "label": "close = advect:MeansOnly\nbures = extra_names:Missing",
    "solver": "gone = extra_names:Gone\nnumber = math:pi",
    "functional": "stay-near = extra_names:StayNear",
    "format": "points = extra_names:read_points",
    "command": "greet = extra_names:greet\nlost = no_such_module:run\nflow = extra_names:greet",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    info = folder / "extra_names-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "extra_names.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-names\nVersion: 1.0\n")
    text = "\n".join(f"[advect.{kind}]\n{lines}\n" for kind, lines in POINTS.items())
    (info / "entry_points.txt").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(tmp_path)
    registry.plugins.cache_clear()
    yield
    registry.plugins.cache_clear()
    sys.modules.pop("extra_names", None)
    ad.io.loading._READERS.pop("points", None)


def test_names_of_a_package(package, capsys):
    assert "slow" in registry.names("integrator") and "extra_names" not in sys.modules
    made = registry.make("integrator", "slow?step_size=0.5")
    assert type(made).__module__ == "extra_names" and made.step_size == 0.5
    assert registry.describe("integrator", made) == {"name": "slow", "step_size": 0.5}
    assert registry.make("cost", "ground?label=close").label == ad.MeansOnly()
    assert registry.make("cost", "ground?label=bures").label == ad.Bures()  # names of advect first
    assert ad.datasets.load("points:here?scale=3").x.tolist() == [[3.0], [6.0]]
    words = (
        "flow toy:gaussians?n=20 -f 0.5*stay-near?strength=2 --integrator slow --n-steps 1 -o run"
    )
    assert main([*words.split(), "--no-report", "-q"]) == 0
    assert 'name = "slow"' in Path("run/config.toml").read_text()
    capsys.readouterr()
    assert main(["greet", "you"]) == 0 and capsys.readouterr().out == "hello you\n"
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "Greet somebody." in out and "lost" not in out


def test_a_package_that_cannot_be_used(package, capsys):
    for name in ("gone", "number"):
        with pytest.raises(ad.InputError, match="uninstall extra-names"):
            registry.make("solver", name)
    for name in ("lost", "lots"):
        assert main([name]) == 2 and "Traceback" not in capsys.readouterr().err
    with pytest.raises(ad.InputError, match="Did you mean 'points'"):
        ad.datasets.load("point:here")

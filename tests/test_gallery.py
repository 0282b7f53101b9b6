"""The gallery: its scripts have an entry for every member of every family, and each runs to its figure."""

import inspect
import re
import runpy
import sys
from pathlib import Path

import pytest

import advect as ad
import advect.registry as registry

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.rglob("plot_*.py"))


def _named() -> set[str]:
    """Whatever has a name on the command line, and every public function of the main rooms."""
    members = {
        found.__name__
        for kind in registry.kinds()
        for found in (registry.lookup(kind, name) for name in registry.names(kind))
        if found.__module__.startswith("advect.")  # other tests register members of their own
    }
    names = ("apps", "questions", "functionals", "transport", "flows", "classes.shares")
    rooms = tuple(f"advect.{room}." for room in names)
    public = {**{name: getattr(ad, name) for name in ad.__all__}, **vars(ad.apps)}
    tasks = {
        name
        for name, value in public.items()
        if inspect.isfunction(value) and f"{value.__module__}.".startswith(rooms)
    }
    return (members | tasks) - {"register"}  # for plug-ins: docs/extending.md


def test_there_are_enough_entries_each_with_a_name_of_its_own():
    assert 20 <= len(SCRIPTS) <= 27
    assert len({path.stem for path in SCRIPTS}) == len(SCRIPTS)
    for folder in {path.parent for path in SCRIPTS}:
        assert (folder / "GALLERY_HEADER.rst").exists(), folder.name
    for path in SCRIPTS:  # they run without network
        assert not re.search(r"fetch_|urlopen|https?://", path.read_text(encoding="utf-8")), path


def test_every_member_has_an_entry():
    seen = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in SCRIPTS)))
    assert sorted(_named() - seen) == [], "these have no entry in docs/gallery"


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_entry_runs_to_its_figure(path, tmp_path, monkeypatch, capsys):
    import matplotlib
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    matplotlib.use("Agg")
    pyplot.close("all")
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("ADVECT_DATA", "")
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    left = runpy.run_path(str(path), run_name="__main__")
    assert not any(here.iterdir()), "it writes to temporary folders alone"
    assert re.search(r"\d", capsys.readouterr().out), "it prints the number that it ends in"
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    figures += [value for value in left.values() if isinstance(value, Figure)]
    assert figures
    for figure in figures:
        assert any(axis.has_data() or axis.images for axis in figure.axes)
    pyplot.close("all")

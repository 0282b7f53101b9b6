"""The gallery: each script is short and says what it shows, together they have an entry for every member
of every family, and each runs to its figure."""

from __future__ import annotations

import ast
import inspect
import os
import re
import resource
import runpy
import sys
import time
from pathlib import Path

import pytest

import advect as ad
import advect.registry as registry

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.rglob("plot_*.py"))
MOST_LINES, MOST_SECONDS = 60, 60.0  # of code; of processor time

# Public functions without an entry of their own, and why.
WITHOUT = {
    "register": "for plug-ins: docs/extending.md",
}


def _named() -> set[str]:
    """What must be seen in the gallery: whatever has a name on the command line, and every public
    function of the rooms that people come for."""
    members = {
        found.__name__
        for kind in registry.kinds()
        for found in (registry.found(kind, name) for name in registry.known(kind))
        if found.__module__.startswith("advect.")  # other tests register members of their own
    }
    rooms = tuple(
        f"advect.{room}."
        for room in ("apps", "questions", "functionals", "transport", "flows", "classes.shares")
    )
    public = {**{name: getattr(ad, name) for name in ad.__all__}, **vars(ad.apps)}
    tasks = {
        name
        for name, value in public.items()
        if inspect.isfunction(value) and f"{value.__module__}.".startswith(rooms)
    }
    return (members | tasks) - set(WITHOUT)


def _code_lines(source: str) -> int:
    tree = ast.parse(source)
    first = tree.body[1].lineno  # after the docstring
    lines = source.splitlines()[first - 1 :]
    return sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))


def test_there_are_enough_entries_each_with_a_name_of_its_own():
    assert len(SCRIPTS) >= 28
    assert len({path.stem for path in SCRIPTS}) == len(SCRIPTS)
    for folder in {path.parent for path in SCRIPTS}:
        assert (folder / "GALLERY_HEADER.rst").exists(), folder.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_entry_says_what_it_shows(path):
    source = path.read_text(encoding="utf-8")
    said = ast.get_docstring(ast.parse(source))
    title, line, empty, *rest = said.splitlines()
    assert set(line) == {"="} and len(line) >= len(title) and not empty
    assert len(re.findall(r"[.:;?](?:\s|$)", " ".join(rest))) >= 2, "say what it shows, and when"
    assert "\n# %%" in source and "print(" in source
    assert _code_lines(source) <= MOST_LINES
    assert not re.search(r"fetch_|urlopen|https?://", source), "entries run without network"


def test_every_member_has_an_entry():
    seen = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in SCRIPTS)))
    assert sorted(_named() - seen) == [], "these have no entry in docs/gallery"


class _Watch:
    """Files that Python opens for writing outside a folder, while it is on."""

    def __init__(self):
        self.inside: Path | None = None
        self.written: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if self.inside is None or event != "open" or isinstance(arguments[0], int):
            return
        if arguments[2] is not None and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            path = Path(os.path.abspath(os.fsdecode(arguments[0])))
            kept = ("/dev/", "/proc/")
            if not path.is_relative_to(self.inside) and not str(path).startswith(kept):
                self.written.append(str(path))


@pytest.fixture(scope="module")
def watch():
    return _Watch()


def _seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_entry_runs_to_its_figure(path, tmp_path, monkeypatch, capsys, watch):
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
    began = _seconds()
    watch.inside, watch.written = scratch, []
    try:
        left = runpy.run_path(str(path), run_name="__main__")
    finally:
        watch.inside = None
    assert _seconds() - began < MOST_SECONDS
    assert watch.written == [] and not any(here.iterdir()), "it writes to temporary folders alone"
    assert re.search(r"\d", capsys.readouterr().out), "it prints the number that it ends in"

    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    figures += [value for value in left.values() if isinstance(value, Figure)]
    assert figures
    for figure in figures:
        drawn = [axis for axis in figure.axes if axis.has_data() or axis.images]
        assert drawn
    pyplot.close("all")

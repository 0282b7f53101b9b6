"""The site: it builds without a warning from a fresh copy, every local link leads somewhere, every
public name and command is on it, and it opens from disk without a request to the network.

The gallery's scripts have tests of their own; one of them runs here. Notebooks are executed."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import browsers
import pytest
import torch

import advect as ad

ROOT = Path(__file__).parents[1]
PARTS = ("sphinx", "furo", "myst_parser", "sphinx_gallery", "sphinx_copybutton", "nbclient")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, PARTS)), reason="advect[docs] is not installed"
    ),
]
STORIES = ("imbalanced", "regression")


def part(name):
    """A module of docs/_site."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_site" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copied(there: Path) -> None:
    """What a clone would have, with changes that are not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
        if name and (ROOT / name).is_file():
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, there / name)


def build(folder: Path) -> str:
    """What the builder says; as ``make docs`` calls it, but for most of the gallery's scripts."""
    copied(folder)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", "out/docs"]
    settings = {
        "PYTHONPATH": str(folder / "src"),
        "ADVECT_DOCS_GALLERY": "first_flow",
        **dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),  # no one is there
    }
    options = {"cwd": folder, "env": os.environ | settings, "capture_output": True, "text": True}
    done = subprocess.run(command, **options)
    return f"{done.stdout}{done.stderr}exit code {done.returncode}"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; processes of one test run share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, said = shared / "site", shared / "site.log"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            said.write_text(build(folder))
    assert said.read_text() == "exit code 0"
    return folder / "out" / "docs"


@pytest.fixture
def visit(built):
    """Open a page from disk; at the end nothing may have been asked of the network, nor complained of."""
    heard = []
    with browsers.opened() as browser:

        def visit(name):
            page = browser.new_page(viewport={"width": 1200, "height": 900})
            browsers.listen(page, heard, built.as_uri())
            page.goto((built / name).as_uri())
            page.wait_for_load_state("networkidle")
            return page

        yield visit
    assert heard == []


def test_no_link_is_dead(built):
    dead, outside = part("links").broken(built)
    assert dead == []
    assert outside  # a checker that sees no link would say so too


def test_every_public_name_and_command_has_a_page(built):
    from advect.cli.app import COMMANDS

    pages = map(part("links").page, (built / "reference").glob("*.html"))
    listed = (ROOT / "tests" / "public_names.txt").read_text().split()
    assert set(listed) <= set().union(*(page.anchors for page in pages))
    for command in COMMANDS:
        text = (built / "reference" / "commands" / f"{command.name}.html").read_text()
        assert f"advect {command.name}" in text
        assert command.has_subcommands or "--json" in text, command.name


def test_the_figure_of_epsilon_computes_what_the_library_does(visit):
    page = visit("solvers.html")
    page.wait_for_selector("#epsilon-figure[data-ready=yes]")
    data = page.evaluate("epsilonFigure.clouds()")
    x, y = (torch.tensor(data[side], dtype=torch.float64) for side in ("source", "target"))
    shown = page.evaluate("epsilonFigure.all(epsilonFigure.clouds())")
    weights = torch.full((len(x),), 1 / len(x), dtype=torch.float64)

    costs = [torch.cdist(a, b).square() / 2 for a, b in ((x, y), (x, x), (y, y))]
    for place in (8, 20, 40):
        now = shown[place]
        solver = ad.Sinkhorn(epsilon=now["epsilon"], tol=1e-9)
        cross, left, right = (solver.solve(cost, weights, weights) for cost in costs)
        assert now["epsilon"] == pytest.approx(now["share"] * float(costs[0].mean()))
        expected = cross.value - (left.value + right.value) / 2
        assert now["divergence"] == pytest.approx(expected, rel=1e-4)
        assert now["biased"] == pytest.approx(cross.value, rel=1e-4)
        assert now["moved"] == pytest.approx(float((cross.plan() * costs[0]).sum()), rel=1e-3)
    before = page.locator("[data-is=divergence]").text_content()
    page.locator("[data-is=slider]").fill("40")
    assert page.locator("[data-is=divergence]").text_content() != before


@pytest.mark.parametrize("name", ["tutorial", *STORIES])
def test_notebooks_run_each_within_a_minute(name, tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = {path.stem: path for path in part("notebooks").write(ROOT / "docs", tmp_path)}
    book = nbformat.read(found[name], as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)
    clock = "import time; print(time.process_time())"  # of the processor: others may be at work too
    book.cells.append(nbformat.v4.new_code_cell(clock))
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=600, kernel_name="python3", resources=where).execute()
    assert float(book.cells[-1].outputs[0].text) < 60
    kinds = {out.output_type for cell in book.cells[:-1] for out in cell.get("outputs", ())}
    assert "stream" in kinds

"""The house rules that a machine can check: one-way imports, a light import, drawing only where it belongs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import advect

ROOT = Path(advect.__file__).parent

# A room may import from rooms of a lower rank, and from its own folder.
RANKS = {
    "errors": 0,
    "_atomic": 1,
    "_lock": 2,
    "_checks": 1,
    "_html": 1,
    "_progress": 1,
    "memory": 1,
    "_threads": 1,
    "_draw": 2,
    "_adapters": 3,
    "files": 2,
    "linalg": 2,
    "nuclear": 2,
    "tables": 1,
    "ot": 3,
    "gaussians": 3,
    "moments": 4,
    "_coerce": 4,
    "data": 5,
    "notes": 6,
    "space": 6,
    "cost": 7,
    "transport": 7.5,
    "distance": 8,
    "integrators": 2,
    "labels": 4,
    "motion": 4,
    "functionals": 8,
    "dynamics": 9,
    "pseudo": 9,
    "matching": 9,
    "storage": 8,
    "logs": 3,
    "recovery": 9,
    "_jobs": 2,
    "_digest": 10,
    "field": 10,
    "snapshots": 10,
    "trajectory": 10,
    "datasets": 11,
    "control": 11,
    "result": 12,
    "flow": 13,
    "callbacks": 14,
    "pairwise": 12,
    "statistics": 12,
    "sweep": 12,
    "distributed": 15,
    "maps": 14,
    "viz": 15,
    "estimators": 15,
    "apps": 16,
    "report": 17,
    "cli": 98,
    "__init__": 99,
    "__main__": 99,
    "demo": 100,
}
DOORS = {("result.py", "report")}  # upward imports that are documented where they are: FlowResult.report
HEAVY = (
    "joblib",
    "imageio_ffmpeg",
    "matplotlib",
    "sklearn",
    "pandas",
    "plotly",
    "ot",
    "PIL",
    "rich",
    "jinja2",
    "cyclopts",
    "geomloss",
    "mlxtend",
)


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "advect":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("advect.")}
    return rooms


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path):
    here = room(path)
    assert here in RANKS, f"give the new room {here} a rank in this test"
    upward = {other for other in imported_rooms(path) - {here} if RANKS.get(other, 99) >= RANKS[here]}
    upward -= {door for file, door in DOORS if path == ROOT / file}
    if here != "demo":  # the demo is a user: it imports the public surface
        assert not upward, f"{path.name} imports from rooms at or above its own: {upward}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_viz_draws(path):
    if room(path) != "viz":
        assert "matplotlib" not in path.read_text()


def test_import_is_light_and_silent():
    code = f"import sys, advect; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_every_public_object_has_a_runnable_example():
    missing = [
        name
        for name in advect.__all__
        if getattr(advect, name).__doc__ is None
        or (">>>" not in getattr(advect, name).__doc__ and not hasattr(getattr(advect, name), "__path__"))
    ]
    assert not missing


def test_public_names_exist():
    assert all(hasattr(advect, name) for name in advect.__all__)


def test_public_names_resolve_at_first_use():
    rooms = {"apps", "datasets", "distributed", "maps", "ot", "pseudo", "viz"}
    assert set(advect._WHERE) | rooms == set(advect.__all__)
    assert all(getattr(advect, name) is not None for name in advect.__all__)
    assert callable(advect.flow) and callable(advect.pairwise) and callable(advect.sweep)  # not the modules of these names

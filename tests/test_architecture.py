"""The house rules that a machine can check: layers, one-way imports, a light import, drawing only where it belongs."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import advect

ROOT = Path(advect.__file__).parent

# A file imports from the layers above its own line, and within a line from the rooms to its left.
LAYERS = (
    ("errors", "_util", "registry"),  # nothing here knows a dataset
    ("ot", "data"),  # measures and costs; labeled datasets
    ("spaces", "io", "cost"),  # where datasets come from; what it costs to move a sample
    ("transport",),  # the debiased problem between two datasets
    ("functionals", "classes"),  # a dataset as a number; its classes
    ("flows",),  # dynamics, integrators, the loop
    ("distributed", "maps", "viz"),
    ("apps", "questions", "report", "testing", "cli"),
)
ROOMS = [room for layer in LAYERS for room in layer]
# Ceilings: files and functions that one call enters, and sizes of the package. They only go down.
WALKS = {"a flow step": (22, 140), "otdd": (18, 110)}
MOST_LINES, MOST_STATEMENTS, MOST_TYPE_TESTS, MOST_TEST_LINES = 32_000, 15_500, 210, 20_000
MOST_NAMES = 120  # public names, those of namespaces included
COMMENTED, LEAST_COMMENTS = ("ot", "cost", "transport", "flows"), 0.02  # share of lines
TYPE_TESTS = {"isinstance", "issubclass", "hasattr", "callable", "check_kind"}
FRONT = ("__init__", "__main__", "datasets")  # the package's own doors: names, and the command line
# upward, by name and on demand: FlowResult.report, LabeledPool.report, and that of an answer
DOORS = {
    ("_util", "report"),
    ("transport", "viz"),
    ("data", "io"),
    ("flows", "report"),
    ("flows", "viz"),
    ("apps", "report"),
    ("questions", "report"),
}
HEAVY = ("joblib", "matplotlib", "sklearn", "pandas", "plotly", "ot", "PIL", "rich", "jinja2")
HEAVY += ("cyclopts", "geomloss", "mlxtend")
FILES = sorted(ROOT.rglob("*.py"))


def room(module: str) -> str:
    return module.split(".")[0]


def module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module(path): path for path in FILES}


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imported_modules(path: Path) -> set[str]:
    """Modules of the package that a file imports, at its top or anywhere else, or names to ``import_module``."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and room(node.module) == "advect":
            base = node.module.removeprefix("advect").removeprefix(".")
            names = [f"{base}.{alias.name}".removeprefix(".") for alias in node.names]
            found |= {name if name in MODULES else base for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name[7:] for alias in node.names if alias.name.startswith("advect.")}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            found |= {
                a.value[7:]
                for a in node.args
                if isinstance(a, ast.Constant) and str(a.value).startswith("advect.")
            }
    return found - {""}


def test_there_are_few_layers_and_few_rooms():
    built = {room(name) for name in MODULES} - set(FRONT)
    assert built == set(ROOMS), "name every room in LAYERS, and no other"
    assert len(LAYERS) <= 8
    assert len(ROOMS) <= 20


def upward(path: Path) -> set[str]:
    """Rooms below or right of its own from which a file imports."""
    here = room(module(path))
    if here in FRONT:
        return set()
    layer = next(k for k, rooms in enumerate(LAYERS) if here in rooms)
    above = {other for rooms in LAYERS[:layer] for other in rooms}
    left = set(LAYERS[layer][: LAYERS[layer].index(here)])
    others = {room(name) for name in imported_modules(path)} - {here}
    return {other for other in others - above - left if (here, other) not in DOORS}


def test_imports_go_one_way():
    found = {name: upward(path) for name, path in MODULES.items()}
    assert not {name: rooms for name, rooms in found.items() if rooms}


def test_no_two_files_import_each_other_even_in_functions():
    graph = {name: imported_modules(path) & set(MODULES) for name, path in MODULES.items()}
    graph = {
        name: {other for other in others if (room(name), room(other)) not in DOORS}
        for name, others in graph.items()
    }
    # a package's file of names stands for its modules: importing a module runs it first, but names no one
    for name in graph:
        graph[name] -= {name}
    TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


def test_formats_know_no_dataset():
    formats = {name: path for name, path in MODULES.items() if name.startswith("io.formats")}
    assert formats
    for name, path in formats.items():
        inside = {other for other in imported_modules(path) if room(other) == "data"}
        assert inside <= {"data.class_names"}, name


def test_only_viz_draws():
    others = {name: path for name, path in MODULES.items() if room(name) != "viz"}
    assert not [
        name
        for name, path in others.items()
        if "import matplotlib" in path.read_text() or "from matplotlib" in path.read_text()
    ]


def test_import_is_light_and_silent():
    code = f"import sys, advect; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_every_public_object_has_a_runnable_example():
    public = {name: getattr(advect, name) for name in advect.__all__}
    objects = {name: value for name, value in public.items() if not hasattr(value, "__spec__")}
    assert not [name for name, value in objects.items() if ">>>" not in (value.__doc__ or "")]
    assert (ROOT / "py.typed").exists()


def lines_with(word: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in FILES
        for line in path.read_text().splitlines()
        if word in line
    ]


def test_nothing_is_hidden_from_the_type_checker():
    assert not lines_with("pyright: ignore") + lines_with("type: ignore")


def test_objects_are_set_by_themselves_alone():
    sets = lines_with("object.__setattr__(")
    assert sets and not [line for line in sets if "__setattr__(self, " not in line]
    assert not lines_with(".__dict__[")


def entered(call: Callable[[], object]) -> dict[str, set[str]]:
    """The functions of the package that a call enters, by file."""
    seen: dict[str, set[str]] = defaultdict(set)

    def note(frame, event, argument):
        code, path = frame.f_code, Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and not code.co_name.startswith("<"):
            seen[path.relative_to(ROOT).as_posix()].add(code.co_qualname)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def test_a_reader_can_follow_a_step_and_a_distance():
    data = (advect.datasets.load(name, n=200) for name in ("digits", "mnist"))
    source, target = advect.harmonize(*data)
    steps = advect.iterate(source, advect.OTDD(target), integrator=advect.Euler(0.2))
    next(steps), next(steps), advect.otdd(source, target)  # imports and first solves
    walks = {
        "a flow step": entered(lambda: next(steps)),
        "otdd": entered(lambda: advect.otdd(source.replace(), target.replace()).value),
    }
    for name, (files, functions) in WALKS.items():
        found = len(walks[name]), sum(map(len, walks[name].values()))
        assert found <= (files, functions) and found[1] <= functions, (name, found)
    guide = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    listed = re.findall(r"^\d+\. `([\w/]+\.py)`", guide, re.M)
    assert len(listed) <= 12
    assert set(listed) <= set(walks["a flow step"])


def is_type_test(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", "")
        return name in TYPE_TESTS or (name == "getattr" and len(node.args) == 3)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(isinstance(s, ast.Call) and getattr(s.func, "id", "") == "type" for s in sides)
    return isinstance(node, ast.MatchClass)


def is_docstring(node: ast.AST) -> bool:
    constant = node.value if isinstance(node, ast.Expr) else None
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)


def test_the_package_does_not_grow():
    every = [node for path in FILES for node in nodes(path)]
    statements = sum(isinstance(node, ast.stmt) and not is_docstring(node) for node in every)
    tests = sum(len(path.read_text().splitlines()) for path in Path(__file__).parent.rglob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in FILES) <= MOST_LINES
    assert statements <= MOST_STATEMENTS
    assert sum(map(is_type_test, every)) <= MOST_TYPE_TESTS
    assert tests <= MOST_TEST_LINES
    names = (Path(__file__).parent / "public_names.txt").read_text().split()
    assert len(names) <= MOST_NAMES


@pytest.mark.parametrize("name", COMMENTED)
def test_hard_steps_have_comments(name):
    lines = [line.strip() for path in (ROOT / name).rglob("*.py") for line in path.open()]
    assert sum(line.startswith("#") for line in lines) >= LEAST_COMMENTS * len(lines)

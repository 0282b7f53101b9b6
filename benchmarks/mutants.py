"""Mutation check: how many random faults in the numerical rooms does the default test suite find?

    python benchmarks/mutants.py                   # 60 mutants, two at a time
    python benchmarks/mutants.py --count 10 --seed 1

A mutant is the package with one operator, comparison, constant or condition changed. The tests of
its room run first; a mutant that survives them meets the whole default suite. The script works on
copies of the tree and prints each survivor with its line.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = {  # the tests that run first, by room
    "ot": ["tests/ot", "tests/attack", "tests/transport"],
    "cost": ["tests/cost", "tests/transport", "tests/attack"],
    "transport": ["tests/transport", "tests/attack", "tests/flows/test_resume.py"],
    "functionals": ["tests/functionals", "tests/conformance"],
    "flows": ["tests/flows", "tests/functionals/test_theory.py"],
    "data/laws": ["tests/data", "tests/cost", "tests/functionals/test_theory.py"],
    "maps": ["tests/maps", "tests/conformance"],
}
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.MatMult: ast.Mult,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "log": "exp", "exp": "log"}


def skipped(tree: ast.AST) -> set[ast.AST]:
    """Nodes that no test can judge: annotations, docstrings, raised errors and their texts."""
    nodes: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            parts = [node]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            parts = [node]
        for part in parts:
            nodes |= set(ast.walk(part)) if part is not None else set()
    return nodes


def changes(tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """All places of a file that can be changed, each with the kind of change."""
    without, places = skipped(tree), []
    for node in ast.walk(tree):
        if node in without:
            continue
        if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
            places.append((node, "operator"))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            places.append((node, "comparison"))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            places.append((node, "sign"))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            places.append((node, "constant"))
        elif isinstance(node, ast.Attribute) and node.attr in CALLS:
            places.append((node, "call"))
    return places


def mutate(node: ast.AST, kind: str) -> str:
    """Change a node in place, and say how."""
    before = ast.unparse(node)
    match node, kind:
        case ast.Compare(), _:
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.UnaryOp(op=ast.Not()), _:
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.UnaryOp(), _:
            node.op = ast.UAdd()
        case ast.Constant(value=bool()), _:
            node.value = not node.value
        case ast.Constant(), _:
            node.value = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 + 0.01
        case ast.Attribute(), _:
            node.attr = CALLS[node.attr]
        case _:
            node.op = SWAPS[type(node.op)]()
    return f"{before}  →  {ast.unparse(node)}"


def passes(tree: Path, tests: list[str], workers: int) -> bool:
    """Whether tests pass in a copy of the project."""
    where = [name for name in tests if (tree / name).exists()]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        str(workers),
        *where,
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, timeout=3600, check=False
    )
    return done.returncode == 0


def judge(mutant: tuple[str, Path, int]) -> dict:
    """Run the tests against one mutant."""
    room, path, place = mutant
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "main")
        ignored = shutil.ignore_patterns(".venv", ".git", "out", "__pycache__", ".hypothesis")
        shutil.copytree(ROOT, tree, ignore=ignored)
        source = ast.parse(path.read_text())
        node, kind = changes(source)[place]
        change = mutate(node, kind)
        Path(tree, path.relative_to(ROOT)).write_text(ast.unparse(source))
        room_passes = passes(tree, TESTS[room], 0)
        survived = room_passes and passes(tree, ["tests", "src"], 0)
    record = {
        "file": str(path.relative_to(ROOT)),
        "line": node.lineno,
        "change": change,
        "survived": survived,
    }
    print(
        ("SURVIVED " if survived else "killed   ") + f"{record['file']}:{node.lineno}  {change}",
        flush=True,
    )
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    places = [
        (room, path, place)
        for room in TESTS
        for path in sorted((ROOT / "src" / "advect" / room).rglob("*.py"))
        for place in range(len(changes(ast.parse(path.read_text()))))
    ]
    chosen = random.Random(options.seed).sample(places, options.count)
    with ThreadPoolExecutor(options.jobs) as pool:
        records = list(pool.map(judge, chosen))
    killed = sum(not record["survived"] for record in records)
    print(
        f"{killed} of {len(records)} mutants killed ({killed / len(records):.0%}) out of {len(places)} places"
    )
    if options.json:
        options.json.write_text(
            json.dumps({"seed": options.seed, "mutants": records}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()

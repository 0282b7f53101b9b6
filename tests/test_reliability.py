"""Each promise of docs/reliability.md has a test, and the tests that it names are there."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(file):
    return {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


def test_the_named_tests_exist():
    named = NAMED.findall(PAGE)
    assert len(named) > 30
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []


def test_every_promise_names_a_test():
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not line.startswith(("| promise", "| ---"))
    ]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row)] == []

"""Each promise of docs/reliability.md has a test, and the tests that it names are there."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def names_in(file):
    return set(re.findall(r"^def (\w+)", (ROOT / file).read_text(encoding="utf-8"), re.M))


def test_every_promise_names_a_test_that_exists():
    named = NAMED.findall(PAGE)
    assert len(named) > 30
    assert [f"{file}::{name}" for file, name in named if name not in names_in(file)] == []
    rows = re.findall(r"^\| (?!promise|---).*", PAGE, re.M)
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row)] == []

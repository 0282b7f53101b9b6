"""Which cases of a grid of parameters run by default: enough for each value, or for each pair of values.

A test that is marked ``every_value`` or ``every_pair`` keeps, of all its cases, a few in which each
value of each parameter occurs, or each pair of values of two parameters. The others become slow.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import pytest

STRENGTHS = {"every_value": 1, "every_pair": 2}


def covering(cases: Sequence[Mapping[str, object]], strength: int) -> set[int]:
    """Places of cases in which each combination of ``strength`` parameters' values occurs.

    The case with most combinations that are still missing is taken next, the first of equals.

    Example:
        >>> grid = [{"a": a, "b": b} for a in range(3) for b in range(3)]
        >>> sorted(covering(grid, 1)), len(covering(grid, 2))
        ([0, 4, 8], 9)
    """
    held = [
        set(combinations(sorted(case.items()), min(strength, len(case))))  # type: ignore[type-var]
        for case in cases
    ]
    missing, chosen = set().union(*held), set()
    while missing:
        best = max(range(len(cases)), key=lambda place: len(held[place] & missing))
        chosen.add(best)
        missing -= held[best]
    return chosen


def mark_the_rest(items: Iterable[pytest.Item]) -> None:
    """Make slow what a covering does not need; cases that are slow anyway do not cover."""
    grids: dict[tuple[object, str], list[pytest.Function]] = {}
    for item in items:
        marked = isinstance(item, pytest.Function) and hasattr(item, "callspec")
        if marked and not item.get_closest_marker("slow"):
            for name in STRENGTHS:
                if item.get_closest_marker(name):
                    grids.setdefault((item.parent, item.originalname, name), []).append(item)
    for (*_, name), cases in grids.items():
        kept = covering([case.callspec.indices for case in cases], STRENGTHS[name])
        for place, case in enumerate(cases):
            if place not in kept:
                case.add_marker("slow")

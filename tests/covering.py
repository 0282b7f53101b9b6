"""Which cases of a test run by default.

Where a test has a grid of parameters, a few of its cases are enough for each value of each parameter to occur; the
others are slow. ``@pytest.mark.every_pair`` keeps enough for each pair of values of two parameters,
``@pytest.mark.every_case`` all. A list of cases without a grid goes through ``first_of_each``, the number of
examples of hypothesis through ``examples``."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import settings

WHOLE = False  # whether slow tests run too; set by conftest.py


def examples(count: int, **options: Any) -> settings:
    """So many examples of hypothesis where slow tests run too, and a quarter of them by default."""
    return settings(max_examples=count if WHOLE else -(-count // 4), deadline=None, **options)


def covering(cases: Sequence[Mapping[str, object]], strength: int) -> set[int]:
    """Places of cases in which each combination of ``strength`` parameters' values occurs.

    The case with most combinations that are still missing is taken next, the first of equals.

    Example:
        >>> grid = [{"a": a, "b": b} for a in range(3) for b in range(3)]
        >>> sorted(covering(grid, 1)), len(covering(grid, 2))
        ([0, 4, 8], 9)
    """
    if any(len({case[name] for case in cases}) == len(cases) for name in cases[0]):
        return set(range(len(cases)))  # each has a value of its own
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


def first_of_each(
    cases: Mapping[str, object], kind: Callable[[str], object], most: int = 1
) -> list[object]:
    """Parameters of a test by name: the first ``most`` of each kind of name, and the others as slow.

    Example:
        >>> cases = first_of_each({"flow, a": 1, "flow, b": 2, "map": 3}, lambda name: name[:3])
        >>> [(case.id, bool(case.marks)) for case in cases]
        [('flow, a', False), ('flow, b', True), ('map', False)]
    """
    seen: dict[object, int] = {}
    made = []
    for name, case in cases.items():
        seen[kind(name)] = seen.get(kind(name), 0) + 1
        marks = () if seen[kind(name)] <= most else (pytest.mark.slow,)
        made.append(pytest.param(case, id=name, marks=marks))
    return made


def one_of_each(names: Iterable[str]) -> list[object]:
    """Names of cases, of which ``OTDD, exact`` is of the kind ``OTDD``: the first of each by default."""
    return first_of_each({name: name for name in names}, lambda name: name.partition(",")[0])


def parameters(case: pytest.Function) -> dict[str, object]:
    """What tells the values of a case from those of others; names that are given together are one."""
    values, found = dict(case.callspec.params), {}
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.replace(" ", "").split(",") if isinstance(names, str) else names
        found[",".join(names)] = tuple(id(values.pop(name)) for name in names)
    return found | {name: id(value) for name, value in values.items()}  # those of fixtures


def mark_the_rest(items: Iterable[pytest.Item]) -> None:
    """Make slow what a covering does not need; cases that are slow anyway do not cover."""
    grids: dict[tuple[object, str], list[pytest.Function]] = {}
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
            and not item.get_closest_marker("slow")
            and not item.get_closest_marker("every_case")
        ):
            grids.setdefault((item.parent, item.originalname), []).append(item)
    for cases in grids.values():
        strength = 2 if cases[0].get_closest_marker("every_pair") else 1
        kept = covering([parameters(case) for case in cases], strength)
        for place, case in enumerate(cases):
            if place not in kept:
                case.add_marker("slow")

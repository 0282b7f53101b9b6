"""The page of a sweep: what each parameter does to a result, the best run, and all runs. One file,
without scripts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advect._util.checks import check_kind
from advect.apps.sweep import Sweep
from advect.errors import InputError
from advect.report.charts import curve_chart
from advect.report.page import made_with, page_place, plain_page, write_page
from advect.report.summary import duration

_MOST_ROWS = 500


def write_sweep_report(
    found: Sweep,
    path: str | Path,
    *,
    key: str | None = None,
    largest: bool = False,
    title: str = "A sweep of parameters",
) -> Path:
    """Write a page about the runs of a sweep, as one HTML file that needs no network and runs no
    script.

    Args:
        found: what ``ad.sweep`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        key: the result that runs are compared by; by default the first that is a number.
        largest: the best run has the largest, not the smallest.
        title: of the page.

    Returns:
        The path of the file.

    Raises:
        InputError: something else than a ``Sweep``, no run with such a number, or a path that is no
            place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> found = ad.sweep(lambda step: {"loss": (step - 2) ** 2}, {"step": [1, 2, 3]}, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = found.report(f"{folder}/sweep.html", title="<Steps>")
        ...     print("&lt;Steps&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    what = "the page of a sweep is made of a Sweep"
    check_kind(what, found, Sweep, "Pass what ad.sweep returned.")
    place = page_place(path)
    return write_page(place, _page(found, key or _first_number(found), largest, title))


def _first_number(found: Sweep) -> str:
    for run in found.runs:
        for name, value in (run.result or {}).items():
            if _is_number(value):
                return name
    raise InputError(
        "no run has a number to compare by", "none", "Let the function return a number."
    )


def _page(found: Sweep, key: str, largest: bool, title: str) -> str:
    best = found.best(key, largest=largest)
    assert best.result is not None
    varied = _varied(found)
    scored = [run for run in found.runs if run.result and _is_number(run.result.get(key))]
    columns = list(dict.fromkeys(name for run in found.runs for name in run.row if name != "error"))
    return plain_page(
        "sweep.html.jinja",
        title=title,
        notes=_notes(found),
        tiles=[
            ("runs", f"{len(found):,}"),
            ("failed", f"{len(found.errors):,}"),
            (f"{'largest' if largest else 'smallest'} {key}", f"{best.result[key]:.4g}"),
            ("time of all runs", duration(sum(run.seconds for run in found.runs))),
        ],
        key=key,
        best=[(name, _text(value)) for name, value in best.parameters.items()],
        charts=[
            curve_chart(
                f"{key} over {name}",
                name,
                key,
                [
                    (_parameter(run.parameters[name]), run.result[key])
                    for run in scored
                    if run.result
                ],
                best=_parameter(best.parameters[name]),
            )
            for name in varied
            if all(name in run.parameters for run in scored)
        ],
        columns=columns,
        rows=[
            {
                "cells": [_cell(name, run.row.get(name, "")) for name in columns],
                "best": run is best,
                "error": run.error,
            }
            for run in found.runs[:_MOST_ROWS]
        ],
        setup=made_with(),
    )


def _notes(found: Sweep) -> list[str]:
    notes = []
    if found.errors:
        notes.append(f"{len(found.errors)} of {len(found)} runs failed: why is in the table.")
    if len(found) > _MOST_ROWS:
        notes.append(f"The table shows the first {_MOST_ROWS} of {len(found):,} runs.")
    return notes


def _varied(found: Sweep) -> list[str]:
    """Parameters with more than one value, ``seed`` left out: draws are averaged."""
    values: dict[str, set[str]] = {}
    for run in found.runs:
        for name, value in run.parameters.items():
            values.setdefault(name, set()).add(repr(value))
    return [name for name, known in values.items() if len(known) > 1 and name != "seed"]


def _parameter(value: Any) -> Any:
    """A place on an axis: a number, or a text."""
    return value if _is_number(value) else _text(value)


def _cell(name: str, value: Any) -> str:
    return duration(value) if name == "seconds" else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return f"{value:.6g}"
    return value if isinstance(value, str) else repr(value)


def _is_number(value: Any) -> bool:
    """A finite number; True and False are names."""
    return type(value) in (int, float) and abs(value) < float("inf")

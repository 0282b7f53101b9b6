"""Tables of ``class_mmd.py``: how long until a frozen model reads flowed data."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from tables import NOT_RUN, Experiment, markdown


def class_mmd_table() -> str:
    """Ways down; seconds and evaluations to each accuracy, and the accuracy at the end."""
    found = Experiment.read("class_mmd")
    levels = [str(level) for level in found.settings.get("LEVELS", [])]
    rows = [
        [way, *(_reached(cells, level) for level in levels), f"{found.mean(way, 'after')} %"]
        for way, cells in found.groups.items()
        if cells
    ]
    head = ["", *(f"to {100 * float(level):.0f} %" for level in levels), "at the end"]
    return markdown(head, rows) if rows else f"*{found.draws}*"


def class_mmd_published() -> str:
    """The authors' own curve in a sentence."""
    found = Experiment.read("class_mmd").settings.get("PUBLISHED", {})
    said = [
        f"{share} % after {int(n):,}"
        for n, share in sorted(found.items(), key=lambda each: int(each[0]))
    ]
    return ", ".join(said) if said else NOT_RUN


def _reached(cells: list[dict[str, Any]], level: str) -> str:
    """Mean seconds and evaluations of the draws that got there, and how many did not."""
    there = [cell["reached"][level] for cell in cells if cell["reached"][level]]
    if not there:
        return "never"
    seconds, steps = (fmean(each[k] for each in there) for k in (1, 0))
    part = "" if len(there) == len(cells) else f" ({len(there)} of {len(cells)} draws)"
    return f"{seconds:.1f} s, {steps + 1:.0f} evaluations{part}"


WORDS = {"class_mmd_table": class_mmd_table, "class_mmd_published": class_mmd_published}

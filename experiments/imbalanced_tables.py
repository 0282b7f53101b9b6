"""Tables of ``imbalanced``: what became of a source with imbalanced classes, and how far shares are off."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

from tables import Experiment, markdown


def imbalanced_table() -> str:
    """One row for each setting and way: accuracy, final value, mass that changed class, mass left."""
    found, rows = Experiment.read("imbalanced"), []
    for setting in found.groups:
        for way in found.columns:
            if not found.values(setting, way):
                continue
            gain = None if way == found.baseline else found.gain(setting, way, found.baseline)
            shown = f"{found.mean(setting, way)} %"
            row = [setting, way, f"{shown.split()[0]} % ({gain})" if gain else shown]
            value, changed, left = (
                fmean(found.values(setting, way, part=part))
                for part in ("value", "changed", "left")
            )
            rows.append([*row, f"{value:.0f}", f"{100 * changed:.0f} %", f"{100 * left:.0f} %"])
    head = ["source and target", "way", "read by the frozen LeNet-5", "final value"]
    head += ["carried mass that changed class", "mass left behind"]
    return markdown(head, rows) if found.cells else f"*{found.draws}*"


def shares_table() -> str:
    """How far estimated shares are from those of the target, in total variation."""
    found = Experiment.read("imbalanced")
    ways = dict.fromkeys(way for cell in found.cells.values() for way in cell.get("shares off", {}))
    rows = []
    for way in ways:
        each = [found.values(setting, way, part="shares off") for setting in found.groups]
        rows.append([way, *(f"{fmean(one):.2f}" if one else "" for one in each)])
    return markdown(["shares by", *found.groups], rows) if found.cells else f"*{found.draws}*"


WORDS: dict[str, Callable[..., Any]] = {
    "imbalanced_table": imbalanced_table,
    "shares_table": shares_table,
}

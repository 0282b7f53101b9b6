"""Tables of ``sliced.py``: how far sliced distances agree with the OTDD."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import rankdata
from tables import Experiment, markdown

RESAMPLES = 2000
TRUTH = "OTDD"
WAYS = (
    *("gaussian", "features alone", "moments, as published"),
    *("index", "difference of means"),
)


def sliced_correlations(what: str) -> str:
    """Correlations with the OTDD over twenty pairs, mean over draws with a bootstrap interval over
    pairs, of the cells whose setting is ``what``.
    """
    found = Experiment.read("sliced")
    cells = found.groups.get(what, [])
    rows = []
    for way in _ways(cells):
        row = [f"**{way}**" if way == found.recommended else way]
        for correlation in (spearman, pearson):
            middle, low, high = interval(cells, way, correlation)
            row.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        ratios = [fmean(cell["values"][way]) / fmean(cell["values"][TRUTH]) for cell in cells]
        # of these the unit is another one
        plain = way in ("difference of means", "moments, as published")
        row.append("" if plain else f"{fmean(ratios):.2f}")
        row.append(f"{fmean(cell['processor seconds of ways'][way] for cell in cells):.2g}")
        rows.append(row)
    spent = fmean(cell["processor seconds of ways"][TRUTH] for cell in cells) if cells else 0.0
    rows.append([TRUTH, "", "", "", f"{spent:.2g}"])
    head = ["", "Spearman", "Pearson", "mean value / OTDD", "processor seconds"]
    return markdown(head, rows) if cells else f"*{found.draws}*"


def sliced_gap(what: str, one: str, other: str) -> str:
    """How much higher the rank correlation of one way is than that of another, on the same
    pairs.
    """
    cells = Experiment.read("sliced").groups.get(what, [])
    if not cells:
        return ""
    middle, low, high = interval(cells, one, spearman, other)
    return f"{middle:+.2f} ({low:+.2f} to {high:+.2f})"


def interval(
    cells: list[dict[str, Any]], way: str, correlation: Any, other: str | None = None
) -> tuple[float, float, float]:
    """A correlation of a way with the truth, less that of another way, as a mean over draws; and
    95 % of it when the pairs of each draw are drawn again.
    """
    rng = np.random.default_rng(0)
    middle, drawn = [], []
    for cell in cells:
        truth = np.array(cell["values"][TRUTH])
        again = rng.integers(len(truth), size=(RESAMPLES, len(truth)))
        rows = np.concatenate([np.arange(len(truth))[None], again])  # first as it is
        found = correlation(truth[rows], np.array(cell["values"][way])[rows])
        if other is not None:
            found = found - correlation(truth[rows], np.array(cell["values"][other])[rows])
        middle.append(float(found[0]))
        drawn.append(found[1:])
    low, high = np.nanquantile(np.mean(drawn, axis=0), [0.025, 0.975])
    return fmean(middle), float(low), float(high)


def pearson(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of each row."""
    x, y = (each - each.mean(axis=1, keepdims=True) for each in (x, y))
    return (x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return pearson(rankdata(x, axis=1), rankdata(y, axis=1))


def _ways(cells: list[dict[str, Any]]) -> list[str]:
    return [way for way in WAYS if way in cells[0]["values"]] if cells else []


WORDS = {"sliced_correlations": sliced_correlations, "sliced_gap": sliced_gap}

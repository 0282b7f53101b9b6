"""Tables of ``sliced.py``: how far sliced forms agree with the OTDD, and how noisy they are."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import rankdata
from tables import Experiment, markdown

RESAMPLES = 2000
TRUTH = "OTDD"


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


def sliced_errors() -> str:
    """The noise of directions on single pairs, relative to the energy: its spread over draws, and
    what each draw says of it.
    """
    found, rows = Experiment.read("sliced"), []
    forms = [
        *("gaussian, plain", "gaussian", "gaussian, principal"),
        *("moments, plain", "moments"),
    ]
    for setting, cells in found.groups.items():
        if not setting.startswith("errors, ") or not cells:
            continue
        cell = cells[0]["forms"]
        row = [setting.removeprefix("errors, ").replace("_", "-")]
        for form in forms:
            one = cell[form]
            row.append(f"{_per_cent(one, 'spread')} ({_per_cent(one, 'said')})")
        exact = cells[0][TRUTH]
        row += [f"{math.sqrt(cell[form]['energy'] / exact):.2f}" for form in (forms[1], forms[2])]
        rows.append(row)
    head = ["pair", *forms, "gaussian / OTDD", "principal / OTDD"]
    return markdown(head, rows) if rows else f"*{found.draws}*"


def sliced_less(form: str, part: str = "spread") -> str:
    """By what factor the control variate, or principal axes, make the error of plain lines smaller,
    over all pairs: "2.1 to 40".
    """
    plain = "moments, plain" if form.startswith("moments") else "gaussian, plain"
    ratios = []
    for setting, cells in Experiment.read("sliced").groups.items():
        if setting.startswith("errors, ") and cells:
            if part == "velocity":
                ratios.append(cells[0][part][plain] / cells[0][part][form])
            else:
                both = [cells[0]["forms"][one] for one in (plain, form)]
                errors = [one[part] / one["energy"] for one in both]
                ratios.append(errors[0] / errors[1])
    return f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else ""


def sliced_large() -> str:
    """All images of two sets."""
    found = Experiment.read("sliced")
    cells = found.groups.get("large", [])
    if not cells:
        return f"*{found.draws}*"
    rows = [
        [name, f"{one['energy']:.4g}", _per_cent(one, "said"), f"{one['processor seconds']:.2g}"]
        for name, one in cells[0]["forms"].items()
    ]
    return markdown(["", "energy", "standard error, %", "processor seconds"], rows)


def sliced_sizes() -> str:
    """How many images these are."""
    cells = Experiment.read("sliced").groups.get("large", [])
    return " and ".join(f"{n:,}" for n in cells[0]["samples"]) if cells else ""


def _ways(cells: list[dict[str, Any]]) -> list[str]:
    return [way for way in cells[0]["values"] if way != TRUTH] if cells else []


def _per_cent(one: dict[str, float], part: str) -> str:
    return f"{100 * one[part] / one['energy']:.2g}"


WORDS = {
    "sliced_correlations": sliced_correlations,
    "sliced_gap": sliced_gap,
    "sliced_errors": sliced_errors,
    "sliced_less": sliced_less,
    "sliced_large": sliced_large,
    "sliced_sizes": sliced_sizes,
}

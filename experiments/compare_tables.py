"""Tables of ``compare.py``: which column notices which damage, and how often nothing is noticed where
nothing is wrong.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from tables import Experiment, markdown

SHORT = {
    "frechet": "Fréchet",
    "share": "share",
    "confusion": "confusion",
    "coverage": "coverage",
    "density": "density",
    "memorised": "memorised",
    "otdd": "OTDD",
    "FID, pooled": "FID, pooled",
    "classifier": "classifier",
}
OWN = [name for name in SHORT if name not in ("FID, pooled", "classifier")]


def compare_table(dataset: str) -> str:
    """Of one dataset: damages down, columns across; how many draws are beyond the floor, and the
    value of the column that should notice with its floor.
    """
    found = Experiment.read("compare")
    expected, rows = found.settings.get("EXPECTED", {}), []
    for setting, cells in found.groups.items():
        if not setting.startswith(f"{dataset}, ") or not cells:
            continue
        damage = cells[0]["arguments"]["damage"]
        column = expected.get(damage)
        counts = []
        for name in SHORT:
            text = f"{sum(bool(cell['beyond'][name]) for cell in cells)}"
            counts.append(f"**{text}**" if name == column else text)
        told = _told(cells, column) if column else ""
        rows.append([setting.removeprefix(f"{dataset}, "), str(len(cells)), told, *counts])
    head = ["damage, strength", "draws", "the column in bold (its floor)", *SHORT.values()]
    return markdown(head, rows) if rows else f"*{found.draws}*"


def _told(cells: list[dict[str, Any]], column: str) -> str:
    value, floor = (fmean(cell[part][column] for cell in cells) for part in ("values", "floors"))
    if column in ("share", "confusion", "coverage", "memorised"):
        return f"{100 * value:.1f} % ({100 * floor:.1f} %)"
    return f"{value:.3g} ({floor:.3g})"


def compare_noticed() -> str:
    """In how many draws at the largest strength, and at all strengths, the column that should notice
    does; and whether its value rises with the strength.
    """
    found = Experiment.read("compare")
    expected = found.settings.get("EXPECTED", {})
    all_draws, strongest, rising, series = [], [], 0, 0
    for dataset in found.settings.get("DATASETS", []):
        for damage, strengths in found.settings.get("STRENGTHS", {}).items():
            column, means = expected[damage], []
            for strength in strengths:
                cells = found.groups.get(f"{dataset}, {damage} {strength}", [])
                seen = [bool(cell["beyond"][column]) for cell in cells]
                all_draws += seen
                strongest += seen if strength == strengths[-1] else []
                gaps = [abs(c["values"][column] - c["floors"][column]) for c in cells]
                means += [fmean(gaps)] if gaps else []
            whole = len(means) == len(strengths)  # a series that is not run does not count
            series += whole
            rising += whole and means == sorted(means)
    if not all_draws:
        return f"*{found.draws}*"
    return (
        f"The column that should notice is beyond its floor in {sum(strongest)} of {len(strongest)} "
        f"draws at the largest strength, in {sum(all_draws)} of {len(all_draws)} at all strengths; "
        f"its distance from the floor grows with the strength in {rising} of {series} series."
    )


def compare_alarms() -> str:
    """How often a fresh real sample is called beyond a floor."""
    from scipy import stats

    found = Experiment.read("compare")
    cells = [cell for name, cell in found.cells.items() if ", fresh" in name]
    if not cells:
        return f"*{found.draws}*"
    counts = {name: sum(bool(cell["beyond"][name]) for cell in cells) for name in SHORT}
    alarms, asked = sum(counts[name] for name in OWN), len(OWN) * len(cells)
    interval = stats.binomtest(alarms, asked).proportion_ci(0.95)
    each = ", ".join(f"{SHORT[name]} {count}" for name, count in counts.items())
    return (
        f"Fresh real samples ({len(cells)}), and how many each column called beyond the floor: {each}. "
        f"Of the seven columns together that is {alarms} of {asked}, {100 * alarms / asked:.1f} % (95 % "
        f"interval {100 * interval.low:.1f} to {100 * interval.high:.1f}, as if they were independent)."
    )


WORDS = {
    "compare_table": compare_table,
    "compare_noticed": compare_noticed,
    "compare_alarms": compare_alarms,
}

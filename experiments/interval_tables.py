"""Tables of docs/results.md: intervals over draws, and first words of
commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import fmean, stdev

from evidence import FOLDER
from tables import NOT_RUN, Experiment, markdown

from advect.apps.label_methods import wilson


def intervals() -> str:
    """How often 95 % intervals hold the mean over draws, and what they do not tell."""
    found = Experiment.read("intervals")
    times = found.settings.get("TIMES", 1)
    rows = []
    for name, cells in found.groups.items():
        if len(cells) < 2 or "low" not in cells[0]:
            continue
        values = [cell["value"] for cell in cells]
        middle = fmean(values)
        inside = sum(cell["low"] <= middle <= cell["high"] for cell in cells)
        low, high = wilson(inside, len(cells))
        stated = fmean(cell["standard error"] for cell in cells)
        pair, size = name.split(", ")[0], int(name.split(", ")[1].split()[0])
        large = found.groups.get(f"{pair}, {times * size} samples", [])
        beyond = f"{fmean(cell['value'] for cell in large):.2f}" if large else ""
        rows.append(
            [
                name,
                str(len(cells)),
                f"{100 * inside / len(cells):.0f} % ({100 * low:.0f} to {100 * high:.0f})",
                f"{middle:.2f}",
                f"{stdev(values):.3f}",
                f"{stated:.3f}",
                beyond,
            ]
        )
    head = [
        "samples of each side",
        "draws",
        "intervals that hold the mean",
        "mean distance",
        "its spread over draws",
        "standard error stated",
        f"mean with {times} times as many",
    ]
    return markdown(head, rows) if rows else f"*{NOT_RUN}*"


def first_words() -> str:
    """Seconds until commands speak, before and after."""
    path = FOLDER.parent / "benchmarks" / "results" / "first_word.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    by_command: dict[str, dict[str, dict]] = {}
    for row in rows:
        by_command.setdefault(row["command"], {})[row["version"]] = row
    measures = ("first word", "first number", "processor")

    def cell(versions: dict, name: str) -> str:
        return " → ".join(
            f"{versions[version][name]:.2f}"
            for version in ("before", "after")
            if name in versions.get(version, {})
        )

    body = [
        [f"`advect {command}`", *(cell(versions, name) for name in measures)]
        for command, versions in by_command.items()
    ]
    head = ["", "first word, s", "first number of the result, s", "processor, s"]
    return markdown(head, body)


WORDS: dict[str, Callable[..., str]] = {"intervals": intervals, "first_words": first_words}

"""The page of a comparison of synthetic with real data: verdicts, every number on the range of its
floor, classes with their samples, the worst first, copies beside their originals. One file, without
scripts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_count
from advect.questions.compare_floor import Column, Entry
from advect.questions.compare_result import Compared
from advect.report.class_tables import MOST_CLASSES, heat
from advect.report.page import filled, page_place, part, versions, write_page
from advect.report.samples import Samples

_SIDE = 56  # pixels of a picture
_MOST_SHOWN = 40  # classes with their samples, the worst first
_WIDE, _HIGH = 96, 16  # of a strip
ABOUT = {
    "frechet": "Squared W₂ of Gaussians with the moments of a class. Few samples make it larger, on the floor too.",
    "share": "How much more often a class comes than in the real data. Of all: half the sum of the differences.",
    "confusion": "The share of a class that transport by features alone sends to real samples of other classes.",
    "coverage": "Real samples with a synthetic one no farther than their k-th nearest real neighbour. Less is missing variety.",
    "density": "How many such neighbourhoods a synthetic sample lies in, by k: 1 for equal laws, less off the data.",
    "memorised": "Synthetic samples nearer to a training sample than nearly all real samples that were held out.",
    "otdd": "Features and labels at once, over all classes.",
}


def write_compare_report(
    found: Compared, path: str | Path, *, title: str = "Synthetic beside real", each: int = 10
) -> Path:
    """Write a page about what ``ad.compare`` found, as one HTML file that needs no network and runs no
    script.

    Args:
        found: what ``ad.compare`` returned.
        path: the file to write, ``….html``; folders on the way are made.
        title: of the page.
        each: how many samples of a kind to show for each class.

    Returns:
        The path of the file.

    Raises:
        InputError: a path that is no place for an HTML file.

    Example:
        >>> import tempfile, advect as ad
        >>> from advect.report import write_compare_report
        >>> one, two = ad.datasets.load("digits", n=400).split(0.5)
        >>> found = ad.compare(one, two, repeats=3, max_samples=50, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_compare_report(found, f"{folder}/page.html", title="<Digits>")
        ...     print("&lt;Digits&gt;" in path.read_text(encoding="utf-8"))
        True
    """
    place, each = page_place(path), check_count("each", each)
    return write_page(place, _page(found, title, each))


def _page(found: Compared, title: str, each: int) -> str:
    from markupsafe import Markup

    shown = found.classes[:_MOST_SHOWN]
    look = _Look(found)
    columns = list(found.columns.values())
    by_class = [column for column in columns if column.classes]
    left = len(found.classes) - len(shown)
    more = (
        [f"{left} more classes, farther from trouble, are not shown with samples."] if left else []
    )
    small = len(found.counts) <= MOST_CLASSES
    return filled(
        "compare.html.jinja",
        title=title,
        style=Markup(part("style.css") + part("labels.css") + part("compare.css")),
        notes=[*found.notes, *more],
        tiles=_tiles(found),
        verdicts=[_verdict(column) for column in columns],
        columns=[{"name": column.name, "title": column.title} for column in by_class],
        rows=[_row(found, name, by_class) for name in (None, *found.classes)],
        groups=[look.group(name, each) for name in shown],
        heads=look.columns,
        pairs=look.pairs(2 * each),
        n_copies=len(found.copies),
        confusion=heat(found.confusion, share=True) if small else None,
        setup={
            **{name: str(value) for name, value in found.settings.items()},
            "versions": versions(),
            "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
    )


def _tiles(found: Compared) -> list[tuple[str, str]]:
    joint = found.columns["otdd"]
    lost = sum(not synthetic for synthetic, real in found.counts.values() if real)
    return [
        ("synthetic samples", f"{len(found.synthetic):,}"),
        ("real samples", f"{len(found.real):,}"),
        ("classes (of them dropped)", f"{len(found.counts):,} ({lost})"),
        ("joint distance (floor)", _with_floor(joint, joint.overall)),
        ("columns beyond their floor", f"{len(found.beyond)} of {len(found.columns)}"),
    ]


def _with_floor(column: Column, entry: Entry) -> str:
    return f"{column.shown(entry.value)} ({column.shown(entry.floor)})"


def _verdict(column: Column) -> dict[str, Any]:
    entry = column.overall
    names = [str(name) for name in column.beyond]
    few = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return {
        "title": column.title,
        "about": ABOUT[column.name],
        "value": column.shown(entry.value),
        "interval": _interval(column, entry),
        "floor": column.shown(entry.floor),
        "verdict": column.verdict,
        "mark": {True: "off", False: "fine"}.get(column.beyond != () or bool(entry.beyond), ""),
        "classes": few,
    }


def _interval(column: Column, entry: Entry) -> str:
    if np.isnan(entry.low) or np.isnan(entry.value):
        return ""
    return f"{column.shown(entry.low)} to {column.shown(entry.high)}"


def _row(found: Compared, name: Any, columns: list[Column]) -> dict[str, Any]:
    """A line of the table of classes, or of all of them (None)."""
    counts = found.counts[name] if name is not None else None
    cells = []
    for column in columns:
        entry = column.overall if name is None else column.classes[name]
        cells.append(
            {
                "value": column.shown(entry.value) or "–",
                "floor": column.shown(entry.floor),
                "mark": "off" if entry.beyond else "",
                "strip": _strip(column, entry, whole=name is None),
                "told": f"{_interval(column, entry)}; {entry.verdict}",
            }
        )
    whole = (len(found.synthetic), len(found.real))
    return {"name": "all" if name is None else str(name), "counts": counts or whole, "cells": cells}


def _strip(column: Column, entry: Entry, whole: bool) -> Any:
    """The value with its interval on the range of its floor: numbers only, nothing to escape."""
    from markupsafe import Markup

    rows = [column.overall] if whole else list(column.classes.values())
    ends = np.array([[e.value, e.low, e.high, e.floor, e.least, e.most] for e in rows])
    ends = ends[np.isfinite(ends)]
    if np.isnan(entry.value) or not ends.size:
        return Markup("")
    low, high = float(ends.min()), float(ends.max())

    def at(value: float) -> float:
        share = (np.clip(value, low, high) - low) / ((high - low) or 1.0)
        return round(3 + float(share) * (_WIDE - 6), 1)

    marks = []
    if entry.beyond is not None:
        left, right, middle = at(entry.least), at(entry.most), at(entry.floor)
        marks.append(
            f'<rect class="band" x="{left}" y="2" width="{max(right - left, 1):.1f}" height="{_HIGH - 4}" rx="2"/>'
            f'<line class="floor" x1="{middle}" x2="{middle}" y1="2" y2="{_HIGH - 2}"/>'
        )
    y = _HIGH / 2
    if not np.isnan(entry.low):
        marks.append(
            f'<line class="whisker" x1="{at(entry.low)}" x2="{at(entry.high)}" y1="{y}" y2="{y}"/>'
        )
    marks.append(f'<circle class="point" cx="{at(entry.value)}" cy="{y}" r="3.2"/>')
    return Markup(
        f'<svg class="strip" viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" height="{_HIGH}" aria-hidden="true">'
        f"{''.join(marks)}</svg>"
    )


class _Look(Samples):
    """How samples of both sides are shown."""

    def __init__(self, found: Compared) -> None:
        super().__init__(found.real, found.synthetic, side=_SIDE)
        self.found = found

    def group(self, name: Any, each: int) -> dict[str, Any]:
        """The samples of one class that are worth looking at."""
        found, odd = self.found, self.found.odd[name]
        n_fake, n_real = found.counts[name]
        off = [column.title for column in found.columns.values() if name in column.beyond]
        told = f"beyond the floor: {', '.join(off)}" if off else "within the floor"
        kinds = [
            ("synthetic, farthest from any real one first", found.synthetic, odd.far[:each]),
            ("real, with no synthetic one near", found.real, odd.uncovered[:each]),
        ]
        return {
            "name": str(name),
            "off": bool(off),
            "about": f"{n_fake:,} synthetic, {n_real:,} real; {told}",
            "kinds": [
                {"title": title, "cards": self.cards(data, rows)} for title, data, rows in kinds
            ],
        }

    def pairs(self, most: int) -> list[dict[str, Any]]:
        """Memorised samples beside the real ones, where there are pictures."""
        if self.shades is None or not len(self.found.copies):
            return []
        pairs = self.found.copies[:most]
        fake = self.cards(self.found.synthetic, pairs[:, 0])
        real = self.cards(self.found.real, pairs[:, 1])
        return [{"synthetic": one, "real": two} for one, two in zip(fake, real, strict=True)]

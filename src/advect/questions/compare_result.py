"""What ``compare`` found: columns of numbers beside their floors, which classes are worst, and what is
worth knowing, as a table, a file or a page.
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.atomic import write_atomically
from advect._util.checks import check_known
from advect.apps.pages import write_page
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.questions.compare_floor import BEYOND, Column, Entry
from advect.questions.compare_sides import Sides

TITLES = {
    "frechet": "Fréchet distance",
    "share": "class share, synthetic − real",
    "confusion": "taken for another class",
    "coverage": "real samples covered",
    "density": "density",
    "memorised": "memorised",
    "otdd": "joint distance (OTDD)",
}
_ALL = "all"
_FEW = 10  # samples of a class below which its numbers say little


@dataclass(frozen=True, eq=False)
class Odd:
    """Rows of one class to look at: synthetic ones that are far from all real ones, and real ones that
    have no synthetic one near them, the worst first.
    """

    far: np.ndarray
    uncovered: np.ndarray


@dataclass(frozen=True, eq=False)
class Compared:
    """Synthetic data beside real data; made by ``ad.compare``.

    Attributes:
        synthetic, real: the datasets.
        columns: the questions by name: ``frechet``, ``share``, ``confusion``, ``coverage``,
            ``density``, ``memorised``, ``otdd``; each with an ``overall`` entry and one for each
            class (value, low, high, floor, least, most, beyond).
        confusion: where the feature-only plan sends each synthetic class, as shares of it.
        counts: of each class, how many synthetic and how many real samples.
        copies: rows of memorised synthetic samples and of the real ones they are near to, (c, 2).
        odd: of each class, rows that are worth looking at.
        notes: what is worth knowing, in sentences.
        settings: how it was computed.

    Example:
        >>> import torch, advect as ad
        >>> real, fake = (ad.datasets.gaussians(90, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
        >>> found = ad.compare(fake.subset(fake.y < 2), real, repeats=4, progress=False)
        >>> found.columns["share"].beyond, found.classes[0]   # the third class was dropped
        ((2,), 2)
        >>> found.columns["coverage"].classes[2].value
        0.0
    """

    synthetic: LabeledDataset
    real: LabeledDataset
    columns: Mapping[str, Column]
    confusion: ClassTable
    counts: Mapping[Hashable, tuple[int, int]]
    copies: np.ndarray
    odd: Mapping[Hashable, Odd]
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """All classes, the worst first: by how far the farthest of its numbers is from its floor."""

        def badness(name: Hashable) -> tuple[int, float]:
            entries = [column.classes[name] for column in self.columns.values() if column.classes]
            known = [entry.excess for entry in entries if entry.beyond is not None]
            return sum(bool(entry.beyond) for entry in entries), max(known, default=0.0)

        return tuple(sorted(self.counts, key=badness, reverse=True))

    @property
    def verdicts(self) -> dict[str, str]:
        """Of each column, whether it is within its floor, or in any row beyond it."""
        return {name: column.verdict for name, column in self.columns.items()}

    @property
    def beyond(self) -> tuple[str, ...]:
        """The columns that are beyond their floor."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict == BEYOND)

    def __getitem__(self, cell: tuple[str, Hashable]) -> Entry:
        """``found["coverage", "cat"]``: one number with its interval and floor."""
        column, name = cell
        check_known("column", column, self.columns)
        if name not in self.columns[column].classes:
            got = f"Classes of {column}: {', '.join(map(str, self.columns[column].classes))}."
            raise InputError("no such class", repr(name), got)
        return self.columns[column].classes[name]

    def __repr__(self) -> str:
        n, m = len(self.synthetic), len(self.real)
        what = f"beyond the floor: {', '.join(self.beyond)}" if self.beyond else "within the floor"
        return f"Compared(synthetic={n}, real={m}, classes={len(self.counts)}, {what})"

    def cells(self) -> list[list[str]]:
        """The table as text: a head, all samples, and classes, the worst first. Numbers have their
        floor in brackets, and a * where they are beyond it.
        """
        head = ["class", "synthetic", "real", *self.columns]
        whole = [sum(each) for each in zip(*self.counts.values(), strict=True)]
        rows = [[_ALL, *map(str, whole), *(_cell(c, c.overall) for c in self.columns.values())]]
        for name in self.classes:
            entries = [(column, column.classes.get(name)) for column in self.columns.values()]
            shown = ["" if entry is None else _cell(column, entry) for column, entry in entries]
            rows.append([str(name), *map(str, self.counts[name]), *shown])
        return [head, *rows]

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [
            row[0].ljust(widths[0])
            + "".join(
                cell.rjust(width + 2) for cell, width in zip(row[1:], widths[1:], strict=True)
            )
            for row in cells
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = [[html.escape(cell) for cell in row] for row in self.cells()]
        lines = "".join(
            f"<tr><th>{row[0]}</th>"
            + "".join(f"<td>{'<b>' + c + '</b>' if c.endswith('*') else c}</td>" for c in row[1:])
            + "</tr>"
            for row in rows
        )
        titles = "".join(f"<th>{cell}</th>" for cell in head)
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        caption = "<caption>Compared: value (floor), * beyond the floor</caption>"
        return f"<table>{caption}<tr>{titles}</tr>{lines}</table><ul>{notes}</ul>"

    def records(self) -> list[dict[str, Any]]:
        """One row for each number: class, column, value, low, high, floor, least, most, beyond. The
        class of the whole is None.

        Example:
            >>> import torch, advect as ad
            >>> real, fake = (ad.datasets.gaussians(60, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
            >>> rows = ad.compare(fake, real, repeats=3, progress=False).records()
            >>> len(rows), list(rows[0])[:4]          # six columns of four rows, and the joint distance
            (25, ['class', 'column', 'value', 'low'])
        """
        found = []
        for column in self.columns.values():
            of = {None: column.overall, **column.classes}
            found += [
                {"class": name, "column": column.name, **entry.facts()}
                for name, entry in of.items()
            ]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything but the samples, as JSON has it."""
        columns = {
            name: {
                "title": column.title,
                "verdict": column.verdict,
                "overall": column.overall.facts(),
                "classes": [
                    {"class": _plain(each), **entry.facts()}
                    for each, entry in column.classes.items()
                ],
            }
            for name, column in self.columns.items()
        }
        shares = [
            [None if np.isnan(share) else share for share in row]
            for row in self.confusion.values.tolist()
        ]
        counts = [
            {"class": _plain(name), "synthetic": s, "real": r}
            for name, (s, r) in self.counts.items()
        ]
        return {
            "verdicts": self.verdicts,
            "worst_first": [_plain(name) for name in self.classes],
            "counts": counts,
            "columns": columns,
            "confusion": {
                "rows": [_plain(name) for name in self.confusion.rows],
                "columns": [_plain(name) for name in self.confusion.columns],
                "values": shares,
            },
            "copies": self.copies.tolist(),
            "notes": list(self.notes),
            "settings": dict(self.settings),
        }

    def save(self, path: str | Path) -> Path:
        """Write the numbers to a file, .csv (a row for each) or .json, whole or not at all.

        Raises:
            InputError: a name that ends otherwise.
        """
        place = Path(path).expanduser()
        match place.suffix.lower():
            case ".json":
                text = json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"
            case ".csv":
                text = _csv(self.records())
            case _:
                raise InputError(
                    "a comparison is written as .csv or .json", place.name, "Rename the file."
                )
        write_atomically(place, text.encode())
        return place

    def seen_as(self, synthetic: LabeledDataset, real: LabeledDataset) -> Compared:
        """The same with other views of the samples, row by row: images, where features of a network
        were compared.
        """
        for before, now in ((self.synthetic, synthetic), (self.real, real)):
            if len(before) != len(now):
                raise InputError(
                    f"a view needs a row for each of the {len(before)} samples",
                    len(now),
                    "Check it.",
                )
        return replace(self, synthetic=synthetic, real=real)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: verdicts, the table, classes with their samples, the worst first; see
        ``advect.report.write_compare_report`` for the options.

        Example:
            >>> import tempfile, torch, advect as ad
            >>> real, fake = (ad.datasets.gaussians(60, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.compare(fake, real, repeats=3, progress=False).report(f"{folder}/compare.html").name
            'compare.html'
        """
        return write_page("write_compare_report", self, path, options)


def _cell(column: Column, entry: Entry) -> str:
    if np.isnan(entry.value):
        return ""
    floor = f" ({column.shown(entry.floor)})" if not np.isnan(entry.floor) else " (no floor)"
    return column.shown(entry.value) + floor + ("*" if entry.beyond else "")


def _plain(name: Hashable) -> Any:
    """A class name as JSON has it."""
    return name if name is None or type(name) in (str, int, float, bool) else str(name)


def _csv(records: list[dict[str, Any]]) -> str:
    lines = io.StringIO()
    writer = csv.DictWriter(lines, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        whole = _ALL if record["class"] is None else record["class"]
        writer.writerow({**record, "class": whole})
    return lines.getvalue()


def notes_of(
    columns: Mapping[str, Column], sides: Sides, within: float, unsolved: int = 0
) -> tuple[str, ...]:
    """What a careful user would want to know, in sentences."""
    fake, true = sides.synthetic.counts, sides.real.counts
    names = np.array([str(name) for name in sides.names], dtype=object)
    notes = []
    if not (np.minimum(fake, true) > 0).any():
        notes.append(
            "No class has the same name on both sides: rename one side's classes (ad.otdd says which "
            "correspond, by class_matching). Only the joint distance and the copies say something."
        )
    else:
        for lacking, other, told in (
            (fake, true, "real samples but no synthetic one: dropped"),
            (true, fake, "synthetic samples but no real one"),
        ):
            gone = names[(lacking == 0) & (other > 0)]
            if len(gone):
                notes.append(f"{_listed(gone)}: {told}.")
    for column in columns.values():
        if column.verdict != BEYOND:
            continue
        which = [str(name) for name in column.beyond]
        where = _listed(which) if which else "all classes together, none alone"
        notes.append(f"Beyond its floor: {column.title} ({where}).")
    few = names[(np.minimum(fake, true) < _FEW) & (np.minimum(fake, true) > 0)]
    if len(few):
        notes.append(
            f"Fewer than {_FEW} samples on a side, so that little can be seen: {_listed(few)}."
        )
    if within == 0:
        notes.append(
            "Real samples that were held out are copies of others: memorised counts exact copies, "
            "beside how many the real data have."
        )
    if unsolved:
        notes.append(
            f"The transport problems of {unsolved} draws did not converge: pass a solver with a larger "
            "epsilon or max_iter."
        )
    return tuple(notes)


def _listed(names: Any, most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")

"""The base class of results: printing, JSON, notebook output and the page all come from here."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_MAX_TEXT_ROWS = 30  # rows of a table in text output; pages and to_dict() have all of them


@dataclass(frozen=True)
class Table:
    """A titled table of a result."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]  # the first cell is the name of the row
    heat: bool = False  # whether pages shade cells by their numbers
    caption: str = ""  # below the table on pages

    def lines(self) -> list[str]:
        """The table as aligned text, numbers on the right."""
        shown = self.rows[:_MAX_TEXT_ROWS]
        cells = [list(map(show, self.columns)), *([show(cell) for cell in row] for row in shown)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [self.title] if self.title else []
        texts = [all(isinstance(row[i], str) for row in shown) for i in range(len(widths))]
        formats = [
            f"{'<' if t else '>'}{w}" for t, w in zip([True, *texts[1:]], widths, strict=True)
        ]
        lines += ["  ".join(map(format, row, formats)).rstrip() for row in cells]
        more = len(self.rows) - len(shown)
        return [*lines, f"… {more} more rows"] if more else lines

    def to_html(self) -> str:
        """The table as HTML, every cell escaped."""
        head = "".join(f"<th>{html.escape(str(name))}</th>" for name in self.columns)
        rows = "".join(
            f"<tr><th>{html.escape(show(row[0]))}</th>"
            + "".join(f"<td>{html.escape(show(cell))}</td>" for cell in row[1:])
            + "</tr>"
            for row in self.rows[:_MAX_TEXT_ROWS]
        )
        return f"<table><caption>{html.escape(self.title)}</caption><tr>{head}</tr>{rows}</table>"


class Result:
    """Base class of everything that a function of advect returns as a result.

    A subclass defines ``_summary`` (headline numbers), and where it has them ``_tables``,
    ``notes``, ``settings`` and ``figures``. The four public methods ``str(result)``, ``to_dict()``,
    ``figures()`` and ``report(path)`` are the whole interface for the command line, notebooks and pages.
    """

    title: ClassVar[str] = "Result"
    notes: Any = ()  # sentences
    settings: Any = MappingProxyType({})  # options by name

    def _summary(self) -> dict[str, Any]:
        """Headline numbers by name, in the order in which they are shown."""
        raise NotImplementedError

    def _tables(self) -> list[Table]:
        return []

    def figures(self) -> dict[str, Any]:
        """Matplotlib figures by title."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready values: plain numbers, strings, lists and dictionaries."""
        tables = {
            table.title: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
            for table in self._tables()
        }
        notes = [str(note) for note in self.notes]
        return plain({**self._summary(), **tables, "notes": notes, "settings": dict(self.settings)})

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the result as one HTML file that needs no network, and return its path."""
        return import_module("advect.report").write_page(self, path, title=title)

    def __str__(self) -> str:
        summary = {name: show(value) or "none" for name, value in self._summary().items()}
        width = max(map(len, summary), default=0)
        blocks = [[f"{name:<{width}}  {value}" for name, value in summary.items()]]
        blocks += [table.lines() for table in self._tables()]
        blocks.append([f"note: {show(note)}" for note in self.notes])
        return "\n\n".join("\n".join(lines) for lines in blocks if lines)

    def _repr_html_(self) -> str:
        summary = Table(self.title, ("", ""), list(self._summary().items()))
        notes = "".join(f"<li>{html.escape(str(note))}</li>" for note in self.notes)
        tables = [summary, *self._tables()]
        return "".join(map(Table.to_html, tables)) + (f"<ul>{notes}</ul>" if notes else "")


def visible(text: str) -> str:
    """Text with escapes in place of control characters (C0, DEL, C1, directions of writing, line ends), so that a
    name in a file cannot control a terminal. The escapes are those of JSON.

    Example:
        >>> print(visible("one\\ntwo \\x1b[2J \\u202e"))
        one\\ntwo \\u001b[2J \\u202e
    """
    return _CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], text)


@singledispatch
def show(value: Any) -> str:
    """A value as text: floats with four significant digits, None as nothing.

    Example:
        >>> show(0.123456), show(True), show(float("nan")), show([1, 2])
        ('0.1235', 'yes', '–', '1, 2')
    """
    is_number = getattr(value, "shape", None) == ()  # of numpy or torch
    return show(value.item()) if is_number else visible(str(value))


show.register(type(None), lambda value: "")
show.register(bool, lambda value: "yes" if value else "no")
show.register(float, lambda value: "–" if math.isnan(value) else f"{value:.4g}")
show.register(list | tuple, lambda value: ", ".join(map(show, value)))
show.register(Mapping, lambda value: ", ".join(f"{show(k)}: {show(v)}" for k, v in value.items()))


@singledispatch
def plain(value: Any) -> Any:
    """A value as JSON allows it: no NaN or infinity, keys as strings, arrays as lists.

    Example:
        >>> plain({("a", 1): [1.5, float("inf")], 2: None})
        {"('a', 1)": [1.5, None], '2': None}
    """
    try:
        return plain(value.tolist())
    except AttributeError:
        return str(value)


plain.register(type(None) | str | int, lambda value: value)
plain.register(float, lambda value: value if math.isfinite(value) else None)
plain.register(list | tuple, lambda value: [plain(part) for part in value])
plain.register(Mapping, lambda value: {str(name): plain(part) for name, part in value.items()})

"""A small matrix with names on both sides, for what is known about pairs of classes."""

from __future__ import annotations

import html
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Numbers for pairs of classes: rows are the source's classes, columns the target's.

    Attributes:
        values: (k, k') array.  rows, columns: class names.

    Example:
        >>> import numpy as np, advect as ad
        >>> table = ad.ClassTable(np.array([[0.0, 1.5], [2.0, 0.25]]), ("cat", "dog"), (0, 1))
        >>> table["cat", 1]
        1.5
        >>> print(table)
               0      1
        cat    0    1.5
        dog    2   0.25
    """

    values: np.ndarray
    rows: tuple[Hashable, ...]
    columns: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        if np.shape(self.values) != self.shape:
            raise InputError(
                f"values must have one number for each of {self.shape} pairs",
                f"shape {np.shape(self.values)}",
                "Give one name for each row and each column.",
            )

    def __getitem__(self, pair: tuple[Hashable, Hashable]) -> float:
        row, column = pair
        if row not in self.rows or column not in self.columns:
            raise InputError(
                "no such pair of classes",
                repr(pair),
                f"Rows: {self.rows}; columns: {self.columns}.",
            )
        return float(self.values[self.rows.index(row), self.columns.index(column)])

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self.values, dtype=dtype, copy=True if copy is None else copy)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    def to_dict(self) -> dict[Hashable, dict[Hashable, float]]:
        """Nested dictionaries: ``{row: {column: value}}``."""
        return {row: {column: self[row, column] for column in self.columns} for row in self.rows}

    def __str__(self) -> str:
        cells = [["", *map(str, self.columns)]]
        cells += [
            [str(name), *(f"{value:.4g}" for value in line)]
            for name, line in zip(self.rows, self.values, strict=True)
        ]
        return aligned(cells)

    def _repr_html_(self) -> str:
        lines = zip(self.rows, self.values, strict=True)
        cells = [[str(name), *(f"{value:.4g}" for value in line)] for name, line in lines]
        return html_table([["", *map(str, self.columns)], *cells])


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """Lines of text with names to the left, and columns of one width to the right."""
    first = max(len(line[0]) for line in cells)
    width = max([6, *(len(cell) for line in cells for cell in line[1:])])
    return "\n".join(
        line[0].ljust(first) + "".join(cell.rjust(width + 1) for cell in line[1:]) for line in cells
    )


def html_table(cells: Sequence[Sequence[str]]) -> str:
    """The same as a table of HTML: names in the first line and the first column."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in cells[0])
    body = "".join(
        f"<tr><th>{html.escape(line[0])}</th>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in line[1:])
        + "</tr>"
        for line in cells[1:]
    )
    return f"<table><tr>{head}</tr>{body}</table>"

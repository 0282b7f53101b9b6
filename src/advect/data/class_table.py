"""A small matrix with named rows and columns, for numbers about pairs of classes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from advect._util import Table, refuse_if


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Numbers for pairs of classes: rows are the source's classes, columns the target's.

    Attributes:
        values: (k, k') array.  rows, columns: class names.

    Example:
        >>> import numpy as np, advect as ad
        >>> from advect.data.class_table import ClassTable
        >>> table = ClassTable(np.array([[0.0, 1.5], [2.0, 0.25]]), ("cat", "dog"), (0, 1))
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

    def __getitem__(self, pair: tuple[Hashable, Hashable]) -> float:
        row, column = pair
        refuse_if(
            row not in self.rows or column not in self.columns,
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

    def _table(self) -> Table:
        rows = [(str(n), *map(float, row)) for n, row in zip(self.rows, self.values, strict=True)]
        return Table("", ("", *map(str, self.columns)), rows)

    def __str__(self) -> str:
        return "\n".join(self._table().lines())

    def _repr_html_(self) -> str:
        return self._table().to_html()

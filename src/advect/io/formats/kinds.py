"""The original types of table columns, so that a table is written with them again.

Features are floats. A ``Table`` travels with them and remembers the columns of whole numbers,
truth values and categories, and the names of the label and weights columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

_WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_DTYPES = ("bool", "category", "text", "float16", "float32", "float64", *_WHOLE)
EXACT = {4: 2.0**24, 8: 2.0**53}  # from here on floats of so many bytes skip whole numbers


@dataclass(frozen=True)
class Column:
    """A column: its name, its dtype, and the values of a category, each of which has a feature."""

    name: str
    dtype: str
    values: tuple[str | int, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of its features."""
        return [f"{self.name}={value}" for value in self.values] or [self.name]

    def restore(self, x: np.ndarray) -> np.ndarray:
        """Its features (n, k) in the original type; positions in ``values`` for a category."""
        if self.values:
            return x.argmax(axis=1)
        x = x[:, 0]
        if self.dtype == "bool":
            return x >= 0.5
        if self.dtype not in _WHOLE:
            with np.errstate(over="ignore"):
                narrow = x.astype(self.dtype)
            return narrow if bool(np.isfinite(narrow).all()) else x
        exact, bounds = EXACT[max(x.dtype.itemsize, 4)], np.iinfo(self.dtype)
        if float(np.abs(x).max()) >= exact:
            return x
        low, high = max(float(bounds.min), -exact), min(float(bounds.max), exact)
        return np.clip(np.rint(x.astype(np.float64)), low, high).astype(self.dtype)


@dataclass(frozen=True)
class Table:
    """Columns that were not plain floats, and the names of the label and weights columns.

    Example:
        >>> table = Table((Column("coat", "text", ("long", "short")), Column("indoors", "bool")), label="kind")
        >>> x = np.array([[4.5, 0.2, 0.7, 0.9]])
        >>> [numbers.tolist() for _, numbers, _ in table.cells(("kilos", "coat=long", "coat=short", "indoors"), x)]
        [[4.5], [1], [True]]
    """

    columns: tuple[Column, ...] = ()
    label: str | None = None
    weights: str | None = None

    def cells(
        self, names: Sequence[str], x: np.ndarray
    ) -> list[tuple[str, np.ndarray, Column | None]]:
        """Name, values and type of the columns of features (n, d), in their original types.

        Whole numbers are rounded, a category is the one with the largest feature. A column with
        missing categories stays numbers."""
        position = {name: at for at, name in enumerate(names)}
        cells: dict[int, tuple[str, np.ndarray, Column | None]] = {}
        used: set[int] = set()
        for column in self.columns:
            features = [position[name] for name in column.names if name in position]
            complete = len(features) == len(column.names) and used.isdisjoint(features)
            if complete and not (column.values and column.name in position):
                cells[min(features)] = (column.name, column.restore(x[:, features]), column)
                used.update(features)
        cells |= {at: (name, x[:, at], None) for name, at in position.items() if at not in used}
        return [cells[at] for at in sorted(cells)]

    @property
    def without_kinds(self) -> Table:
        """Only the names of labels and weights, for features in other units."""
        return Table((), self.label, self.weights)

    def to_dict(self) -> dict[str, Any]:
        """As lists, dictionaries and strings."""
        facts = asdict(self)
        columns = [column | {"values": list(column["values"])} for column in facts["columns"]]
        return facts | {"columns": columns}

    @classmethod
    def from_dict(cls, facts: Any) -> Table:
        """The inverse of ``to_dict``; ValueError for anything else."""
        try:
            columns = [(part["name"], part["dtype"], part["values"]) for part in facts["columns"]]
            table = cls(
                tuple(Column(name, dtype, tuple(values)) for name, dtype, values in columns),
                facts["label"],
                facts["weights"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the description of a table: {error!r}") from None
        if not all(name is None or type(name) is str for name in (table.label, table.weights)):
            raise ValueError("names of columns must be text")
        for column in table.columns:
            has_values = (column.dtype in ("category", "text")) == bool(column.values)
            plain = all(type(value) in (str, int) for value in column.values)
            if not (type(column.name) is str and column.dtype in _DTYPES and has_values and plain):
                raise ValueError(f"not a column of a table: {column!r:.200}")
        return table

"""The original types of table columns, so that a table is written with them again.

Features are floats. A ``Table`` travels with them and remembers the columns of whole numbers,
truth values and categories, and the names of the label and weights columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_DTYPES = ("bool", "category", "text", "float16", "float32", "float64", *WHOLE)
EXACT = {"float32": 2.0**24, "float64": 2.0**53}  # from here on floats skip whole numbers


@dataclass(frozen=True)
class Column:
    """A column: its name, its dtype, and the values of a category, each of which has a feature."""

    name: str
    dtype: str
    values: tuple[str | int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its features."""
        own = tuple(f"{self.name}={value}" for value in self.values)
        return own if self.values else (self.name,)


class Cells(NamedTuple):
    """A column to write: ``numbers`` are values, or positions in ``column.values``."""

    name: str
    numbers: np.ndarray
    column: Column | None = None


@dataclass(frozen=True)
class Table:
    """Columns that were not plain floats, and the names of the label and weights columns.

    Example:
        >>> table = Table((Column("coat", "text", ("long", "short")), Column("indoors", "bool")), label="kind")
        >>> x = np.array([[4.5, 0.2, 0.7, 0.9]])
        >>> [cells.numbers.tolist() for cells in table.cells(("kilos", "coat=long", "coat=short", "indoors"), x)]
        [[4.5], [1], [True]]
    """

    columns: tuple[Column, ...] = ()
    label: str | None = None
    weights: str | None = None

    def cells(self, names: Sequence[str], x: np.ndarray) -> list[Cells]:
        """The columns of features (n, d) in their original types.

        Whole numbers are rounded, a category is the one with the largest feature. A column with
        missing categories stays numbers."""
        place = {name: at for at, name in enumerate(names)}
        first: dict[int, Column] = {}
        done: set[int] = set()
        for column in self.columns:
            own = {place[name] for name in column.names if name in place}
            free = column.name not in place or not column.values
            if len(own) == len(column.names) and free and not done & own:
                first[min(own)] = column
                done |= own
        cells = []
        for at, name in enumerate(names):
            if (column := first.get(at)) is not None:
                own = x[:, [place[part] for part in column.names]]
                cells.append(Cells(column.name, _restored(column, own), column))
            elif at not in done:
                cells.append(Cells(name, x[:, at]))
        return cells

    @property
    def without_kinds(self) -> Table:
        """Only the names of labels and weights, for features in other units."""
        return Table((), self.label, self.weights)

    def to_dict(self) -> dict[str, Any]:
        """As lists, dictionaries and strings."""
        facts = asdict(self)
        facts["columns"] = [one | {"values": list(one["values"])} for one in facts["columns"]]
        return facts

    @classmethod
    def from_dict(cls, facts: Any) -> Table:
        """The inverse of ``to_dict``; ValueError for anything else."""
        try:
            columns = tuple(
                Column(one["name"], one["dtype"], tuple(one["values"])) for one in facts["columns"]
            )
            label, weights = facts["label"], facts["weights"]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the description of a table: {error!r}") from None
        if not all(name is None or type(name) is str for name in (label, weights)):
            raise ValueError("names of columns must be text")
        for one in columns:
            valued = one.dtype in ("category", "text")
            fine = type(one.name) is str and one.dtype in _DTYPES and valued == bool(one.values)
            if not fine or not all(type(value) in (str, int) for value in one.values):
                raise ValueError(f"not a column of a table: {one!r:.200}")
        return cls(columns, label, weights)


def warn_rounded(where: object, largest: Mapping[str, float], dtype: np.dtype) -> None:
    """Warn if this dtype rounds whole numbers of columns, given with the largest of each."""
    rounded = [repr(name) for name, most in largest.items() if most >= EXACT[dtype.name]]
    if rounded:
        power = 24 if dtype == np.float32 else 53
        more = f" and {len(rounded) - 8} more" if len(rounded) > 8 else ""
        warnings.warn(
            f"{dtype.name} rounds whole numbers from 2**{power} on, which {where} has: column "
            f"{', '.join(rounded[:8])}{more}",
            stacklevel=6,
        )


def _restored(column: Column, x: np.ndarray) -> np.ndarray:
    if column.values:
        return x.argmax(axis=1)
    x = x[:, 0]
    if column.dtype == "bool":
        return x >= 0.5
    if column.dtype not in WHOLE:
        with np.errstate(over="ignore"):
            narrow = x.astype(column.dtype)
        return narrow if bool(np.isfinite(narrow).all()) else x
    exact = EXACT["float32" if x.dtype.itemsize <= 4 else "float64"]
    if float(np.abs(x).max()) >= exact:
        return x
    bounds = np.iinfo(column.dtype)
    low, high = max(float(bounds.min), -exact), min(float(bounds.max), exact)
    return np.clip(np.rint(x.astype(np.float64)), low, high).astype(column.dtype)

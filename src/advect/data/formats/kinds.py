"""What the numbers of a table were before they became numbers, and the way back: truth values,
whole numbers, categories.

Features are floats. A ``Table`` travels with them and remembers what their columns were, and what
the columns of labels and weights are called, so that a table is written as the user's own was."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WHOLE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_DTYPES = ("bool", "category", "text", "float16", "float32", "float64", *WHOLE)
EXACT = {"float32": 2.0**24, "float64": 2.0**53}  # from here on floats are whole whatever they were


@dataclass(frozen=True)
class Column:
    """A column as it was: its name, its dtype, and the values of a category (or of text), each of
    which has a feature.

    Example:
        >>> Column("coat", "text", ("long", "short")).names
        ('coat=long', 'coat=short')
    """

    name: str
    dtype: str
    values: tuple[str | int, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of its features."""
        return (
            tuple(f"{self.name}={value}" for value in self.values) if self.values else (self.name,)
        )


@dataclass(frozen=True)
class Cells:
    """A column to be written: ``numbers`` are values, or positions in those of a category."""

    name: str
    numbers: np.ndarray
    column: Column | None = None


@dataclass(frozen=True)
class Table:
    """Columns that were not plain floats, by name, and the names of the columns of labels and
    weights.

    Example:
        >>> table = Table((Column("coat", "text", ("long", "short")), Column("indoors", "bool")), label="kind")
        >>> for cells in table.cells(("kilos", "coat=long", "coat=short", "indoors"), np.array([[4.5, 0.2, 0.7, 0.9]])):
        ...     print(cells.name, cells.numbers.tolist())
        kilos [4.5]
        coat [1]
        indoors [True]
    """

    columns: tuple[Column, ...] = ()
    label: str | None = None
    weights: str | None = None

    def cells(self, names: Sequence[str], x: np.ndarray) -> list[Cells]:
        """The columns of features (n, d) as they were: the nearest truth value or whole number, the
        largest category.

        What is not here any more, or has only some of its categories, stays a number.
        """
        place = {name: at for at, name in enumerate(names)}
        first: dict[int, Column] = {}
        done: set[int] = set()
        for column in self.columns:
            own = [place[name] for name in column.names if name in place]
            free = column.name not in place or not column.values
            if len(own) == len(column.names) and free and not done & set(own):
                first[min(own)] = column
                done |= set(own)
        found = []
        for at, name in enumerate(names):
            column = first.get(at)
            if column is not None:
                own = x[:, [place[part] for part in column.names]]
                found.append(Cells(column.name, _restored(column, own), column))
            elif at not in done:
                found.append(Cells(name, x[:, at]))
        return found

    @property
    def without_kinds(self) -> Table:
        """Names of labels and weights alone: for features in other units than the table's."""
        return Table((), self.label, self.weights)

    def to_dict(self) -> dict[str, Any]:
        """In lists, dictionaries and strings."""
        columns = [
            {"name": one.name, "dtype": one.dtype, "values": list(one.values)}
            for one in self.columns
        ]
        return {"columns": columns, "label": self.label, "weights": self.weights}

    @classmethod
    def from_dict(cls, facts: Any) -> Table:
        """What ``to_dict`` wrote; ValueError for anything else."""
        try:
            columns = tuple(
                Column(one["name"], one["dtype"], tuple(one["values"])) for one in facts["columns"]
            )
            label, weights = facts["label"], facts["weights"]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"not a description of a table: {type(error).__name__}: {error}"
            ) from None
        if not all(name is None or type(name) is str for name in (label, weights)):
            raise ValueError("names of columns must be text")
        for one in columns:
            valued = one.dtype in ("category", "text")
            fine = type(one.name) is str and one.dtype in _DTYPES and valued == bool(one.values)
            if not fine or not all(type(value) in (str, int) for value in one.values):
                raise ValueError(f"not a column of a table: {one!r:.200}")
        return cls(columns, label, weights)


def onehot_names(table: Table | None) -> dict[str, str]:
    """The features of categories, and the column that each belongs to."""
    columns = () if table is None else table.columns
    return {name: one.name for one in columns if one.values for name in one.names}


def plain_values(values: Iterable[Any]) -> tuple[str | int, ...]:
    """Values of a category as text, or as the whole numbers that they are."""
    known = tuple(values)
    return known if all(type(value) is int for value in known) else tuple(map(str, known))


def warn_rounded(where: object, largest: Mapping[str, float], dtype: np.dtype) -> None:
    """Say which columns of whole numbers, given with the largest of each, this dtype rounds."""
    rounded = [repr(name) for name, most in largest.items() if most >= EXACT[dtype.name]]
    if rounded:
        names = ", ".join(rounded[:8]) + (
            f" and {len(rounded) - 8} more" if len(rounded) > 8 else ""
        )
        power = 24 if dtype == np.float32 else 53
        warnings.warn(
            f"{dtype.name} rounds whole numbers from 2**{power} on, which {where} has: column "
            f"{names}",
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
    return np.clip(np.rint(x.astype(np.float64)), math.ceil(low), math.floor(high)).astype(
        column.dtype
    )

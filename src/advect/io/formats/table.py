"""Shared by CSV, Parquet and data frames: roles, names and types of columns.

Features are floats. A ``Table`` travels with them and remembers the columns of whole numbers,
truth values and categories, and the names of the label and weights columns, so that a table is
written as it was."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from advect._util import InputError, check_known, one_or_more, refuse_if

LABEL, WEIGHT = "label", "sample_weight"  # what our own files call these columns
# 007 is a name; pandas writes 1.0 where labels are missing
_WHOLE = re.compile(r"(0|-?[1-9]\d*)(\.0)?", re.ASCII)
_GRID = re.compile(r"x((?:\[\d+\])+)")
_SOFT = "probability["  # columns of soft labels in our own files: probability[cat], …

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_CATEGORIES = ("category", "text")
EXACT = {4: 2.0**24, 8: 2.0**53}  # from here on floats of so many bytes skip whole numbers

Probabilities = str | int | bool | Sequence[str | int | bool] | None


@dataclass(frozen=True)
class Column:
    """A column: its name, its dtype, and the values of a category, each of which has a feature."""

    name: str
    dtype: str
    values: tuple[str | int, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in ("bool", "float16", "float32", "float64", *_INTEGERS, *_CATEGORIES):
            raise ValueError(f"not the type of a column: {self.dtype!r:.200}")
        if (self.dtype in _CATEGORIES) != bool(self.values):
            raise ValueError(f"not the values of a column: {self.values!r:.200}")

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
        if self.dtype not in _INTEGERS:
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
    """Columns that were not plain floats, and the names of the label and weights columns."""

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
        from pydantic import TypeAdapter

        return TypeAdapter(cls).validate_python(facts)


class Layout(NamedTuple):
    """Names of the columns by role, and the classes of the soft labels."""

    features: list[str]
    label: str | None
    weights: str | None
    targets: list[str]
    probabilities: list[str]
    classes: tuple[Any, ...]

    @property
    def used(self) -> set[str | None]:
        """The columns that are read."""
        roles = (self.features, self.targets, self.probabilities)
        return {self.label, self.weights, *(name for names in roles for name in names)}


def layout(
    path: object,
    names: Sequence[str],
    *,
    label: Any = None,
    weights: Any = None,
    columns: Sequence[str | int] | None = None,
    target: Any = None,
    probabilities: Probabilities = None,
    ignored: Sequence[str] = (),
) -> Layout:
    """The role of each column. None stands for the usual names if they occur, False for none."""

    def find(key: Any, what: str) -> str:
        if type(key) is int and -len(names) <= key < len(names):
            return names[key]
        refuse_if(
            type(key) is not str,
            f"{what} must be a name or a position in {path}",
            f"{key!r} for {len(names)} columns",
            "Name one.",
        )
        if key not in names:
            check_known(f"{what} in {path}", key, names)
        return str(key)

    def special(key: Any, usual: str, what: str) -> str | None:
        if key is None:
            return usual if usual in names and usual not in targets else None
        return None if key is False else find(key, what)

    check_names(path, names)
    soft, classes = _soft_labels(path, names, probabilities, find)
    targets = [] if target is None else [find(key, "target column") for key in one_or_more(target)]
    label = special(label, LABEL, "label column")
    weights = special(weights, WEIGHT, "weights column")
    taken = {label, weights, *targets, *soft}
    others = [name for name in names if name not in ignored and not name.startswith(_SOFT)]
    chosen = others if columns is None else [find(key, "feature column") for key in columns]
    features = [name for name in chosen if name not in taken]
    refuse_if(
        columns is not None and len(set(features)) < len(columns),
        f"columns must be different features of {path}",
        columns,
        "Leave out the label, weights and targets.",
    )
    refuse_if(
        not features,
        f"a table needs a column of features in {path}",
        ", ".join(names[:20]) or "no columns",
        "Add one.",
    )
    return Layout(features, label, weights, targets, soft, classes)


def _soft_labels(
    path: object, names: Sequence[str], asked: Any, find: Callable[[Any, str], str]
) -> tuple[list[str], tuple[Any, ...]]:
    """Columns of soft labels and their classes: by our names, by a prefix, or one by one."""
    keys = list(asked) if type(asked) in (list, tuple) else [_SOFT if asked is None else asked]
    if keys in ([False], []):
        return [], ()
    if len(keys) == 1 and keys[0] not in names and type(keys[0]) is str:
        columns = [name for name in names if name.startswith(keys[0])]
        end = "]" if "[" in keys[0] else ""
        texts = [name.removeprefix(keys[0]).removesuffix(end) for name in columns]
    else:
        texts = columns = [find(key, "column of probabilities") for key in keys]
    refuse_if(
        (asked is not None and len(columns) < 2) or len(set(texts)) < len(texts) or "" in texts,
        f"probabilities need two or more columns of {path}",
        ", ".join(columns) or repr(asked),
        f"Name the columns or their prefix. Columns: {', '.join(names[:20])}.",
    )
    return columns, tuple(map(text_labels(texts), texts))


def check_names(path: object, names: Sequence[str]) -> None:
    """Columns must have different names."""
    refuse_if(
        "" in names,
        f"each column needs a name in {path}",
        f"none in one of {len(names)}",
        "Save it without the index (pandas: index=False), or name the column.",
    )
    twice = [name for name, count in Counter(names).items() if count > 1]
    refuse_if(twice, f"columns must have different names in {path}", twice, "Rename one.")


def not_a_number(path: object, row: int, column: str, cell: object) -> InputError:
    """The error for a cell that is empty, not finite, or text."""
    where, remedy = (
        f"row {row}, column {column!r} of {path}",
        "Fill it in, or pass missing='median', 'drop' or 'indicator'.",
    )
    if cell is None or cell == "":
        return InputError("features must not be missing", f"an empty cell in {where}", remedy)
    if type(cell) is float:
        large = " Pass dtype='float64' if it is too large for float32." if np.isinf(cell) else ""
        return InputError("features must be finite", f"{cell} in {where}", remedy + large)
    remedy = f"Pass categorical='onehot', label={column!r} if it is the label, or columns=[…]."
    return InputError("features must be numbers", f"{cell!r:.80} in {where}", remedy)


def text_labels(texts: Iterable[str]) -> Callable[[str], str | int]:
    """How to read labels from text: as ints if all are whole numbers, else as they are."""
    whole = all(_WHOLE.fullmatch(text) for text in texts)
    return (lambda text: int(text.removesuffix(".0"))) if whole else str


def grid_names(sample_shape: tuple[int, ...], name: str = "x") -> tuple[str, ...]:
    """Columns x[0][0], x[0][1], … for samples without column names; they tell the shape."""
    return tuple(name + "".join(f"[{i}]" for i in index) for index in np.ndindex(*sample_shape))


def grid_shape(names: Sequence[str]) -> tuple[int, ...] | None:
    """The sample shape that ``grid_names`` named, or None for any other names."""
    last = _GRID.fullmatch(names[-1])
    if last is None:
        return None
    shape = tuple(int(i) + 1 for i in last[1][1:-1].split("]["))
    fits = np.prod(shape, dtype=float) == len(names) and grid_names(shape) == tuple(names)
    return shape if fits else None


def data_frame(content: Any, names: Sequence[str], label: str | None, weights: str | None) -> Any:
    """A pandas frame: columns in their original types, targets, labels, weights, soft labels."""
    import pandas as pd

    columns: list[tuple[str, Any]] = []
    table, classes = content.table or Table(), content.classes or ()
    for name, values, column in table.cells(names, content.x.reshape(len(content.x), -1)):
        if column is not None and column.values:
            values = pd.Categorical.from_codes(values, categories=list(column.values))
            values = values if column.dtype == "category" else values.astype(object)
        columns.append((name, values))
    if content.targets is not None:
        columns += zip(content.target_columns or (), content.targets.T, strict=True)
    if label is not None:
        categories = pd.Index(list(classes), dtype=object, tupleize_cols=False)
        columns.append((label, pd.Categorical.from_codes(content.codes, categories=categories)))
    if content.weights is not None and weights is not None:
        columns.append((weights, content.weights.astype(np.float64)))
    if content.probabilities is not None:
        refuse_if(
            not all(type(name) in (str, int) for name in classes),
            "classes with soft labels must be whole numbers or text in a table",
            content.classes,
            "Rename them, or save as .npz.",
        )
        soft = [f"{_SOFT}{name}]" for name in classes]
        columns += zip(soft, content.probabilities.T, strict=True)
    check_names("the table to write", [name for name, _ in columns])
    return pd.DataFrame(dict(columns))

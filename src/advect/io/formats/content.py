"""Samples of a file as plain arrays: labels at once, features of chosen rows in blocks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from advect._util import InputError, check_known, refuse_if
from advect.io.formats.guard import check_size, reading
from advect.io.formats.table import Table

Advance = Callable[[int], object]
CHUNK = 1 << 22  # bytes of a block
_BY_ROW = ("labels", "weights", "probabilities", "targets")


@dataclass(eq=False)
class Content:
    """Samples as plain arrays, read from a file or to be written.

    ``x`` is an array (n, …), possibly mapped from a file, or anything with ``shape``, ``dtype``
    and rows by position. ``labels`` has the class name of each row, None where it is missing; it
    is None without labels. ``probabilities`` are soft labels (n, k), ``targets`` are (n, q)."""

    x: Any
    labels: Any = None
    classes: Any = None
    columns: tuple[str, ...] | None = None
    weights: Any = None
    table: Table | None = None
    probabilities: Any = None
    targets: Any = None
    target_columns: tuple[str, ...] | None = None
    path: Any = Path("x")

    def __post_init__(self) -> None:
        try:
            np.dtype(self.x.dtype)
        except (AttributeError, TypeError):
            self.x = np.asarray(self.x)
        refuse_if(
            not self.x.shape or 0 in self.x.shape,
            "features must hold at least one sample",
            f"shape {self.x.shape} in {self.path}",
            "Add some samples.",
        )
        self.x = self.x[:, None] if len(self.x.shape) == 1 else self.x
        self.shape, self.dtype = self.x.shape[1:], number_dtype(self.x, self.path)
        for name in ("weights", "probabilities", "targets"):
            if (values := getattr(self, name)) is not None:
                setattr(self, name, np.asarray(values))
        if self.labels is not None:
            self.labels = [plain(label) for label in self.labels]
            names = class_names(self.labels) if self.classes is None else self.classes
            self.classes = tuple(plain(name) for name in names)
        elif self.probabilities is not None and self.probabilities.ndim == 2:
            k = self.probabilities.shape[1]
            self.classes = self.classes or tuple(range(k))
            if len(self.classes) == k:  # the most likely class of each row
                codes = self.probabilities.argmax(axis=1).tolist()
                self.labels = [self.classes[code] for code in codes]
        else:
            self.classes = None
        self._check_parts()

    def _check_parts(self) -> None:
        """Labels, weights, columns, soft labels and targets must fit the features."""
        n, k = len(self), len(self.classes or ())
        shapes = {"probabilities": (n, k), "labels": (n,), "weights": (n,), "targets": (n,)}
        for name, wanted in shapes.items():
            values = getattr(self, name)
            shape = (len(values),) if type(values) is list else np.shape(values)
            refuse_if(
                values is not None and shape[: len(wanted)] != wanted,
                f"{name} must fit the {n} samples of {self.path}",
                f"shape {shape}, not {wanted}",
                "Fix it.",
            )

    def __len__(self) -> int:
        return self.x.shape[0]

    def read(self, rows: np.ndarray | None = None, advance: Advance = lambda k: None) -> np.ndarray:
        """Features of the rows at these positions, (k, …), read in blocks; None for all. Bytes of
        images are scaled to 0 … 1."""
        width, count = math.prod(self.shape), len(self) if rows is None else len(rows)
        check_size(self.path, count * (width * self.dtype.itemsize + 8))
        rows = np.arange(count) if rows is None else rows
        x = np.empty((count, *self.shape), self.dtype)
        step = max(1, CHUNK // (width * self.x.dtype.itemsize))
        for first in range(0, count, step):
            some = rows[first : first + step]
            with reading(self.path, "a file", Exception):
                x[first : first + step] = self.x[some].astype(self.dtype)
            if are_images(self.x.dtype, self.shape):
                x[first : first + step] /= 255
            advance(len(some))
        return x

    @property
    def codes(self) -> np.ndarray:
        """Positions in ``classes``, −1 where the label is missing."""
        position: dict[Any, int] = {None: -1}
        position |= {name: code for code, name in enumerate(self.classes or ())}
        labels = [None] * len(self) if self.labels is None else self.labels
        unknown = list(set(labels) - position.keys())
        refuse_if(
            unknown,
            "labels must be among classes",
            f"{unknown[:1]} with classes {self.classes} in {self.path}",
            "Name all classes.",
        )
        return np.array([position[label] for label in labels], np.int64)


def without_missing(content: Content, missing: str | None) -> tuple[Content, np.ndarray | slice]:
    """The samples without NaN, and which rows stay; ``missing=None`` changes nothing."""
    rows: np.ndarray | slice = slice(None)
    if missing is None:
        return content, rows
    check_known("missing", missing, ("median", "drop", "indicator"))
    x = np.asarray(content.x).reshape(len(content), -1)
    gaps, columns = np.isnan(x), content.columns
    done = "filled with the medians of their columns"
    if missing == "drop":
        rows = np.flatnonzero(~gaps.any(axis=1))
        done = f"dropped with their {len(x) - np.size(rows)} rows"
    elif gaps.any():
        at, remedy = int(gaps.all(axis=0).argmax()), "Leave it out: columns=[…]."
        name = columns[at] if columns else at
        refuse_if(gaps[:, at].all(), "a column needs at least one value", f"none in {name}", remedy)
        x = np.where(gaps, np.nanmedian(x, axis=0), x).astype(x.dtype)
    if gaps.any():
        warnings.warn(f"{gaps.sum():,} missing cells of {content.path} are {done}", stacklevel=2)
    shape = content.shape
    if missing == "indicator":  # for all columns, so that it fits data with gaps elsewhere
        x, shape = np.concatenate([x, gaps.astype(x.dtype)], axis=1), (2 * x.shape[1],)
        columns = columns and (*columns, *(f"{name} missing" for name in columns))
    parts = {name: getattr(content, name) for name in _BY_ROW}
    parts = {
        name: [part[row] for row in np.arange(len(part))[rows].tolist()]
        if type(part) is list
        else part[rows]
        for name, part in parts.items()
        if part is not None
    }
    return replace(content, x=x[rows].reshape(-1, *shape), columns=columns, **parts), rows


def class_names(labels: Iterable[Any]) -> tuple[Any, ...]:
    """The names that occur, sorted if they can be compared, else in order of appearance."""
    distinct = dict.fromkeys(label for label in labels if label is not None)
    try:
        return tuple(sorted(distinct))
    except TypeError:
        return tuple(distinct)


def plain(label: Any) -> Any:
    """A label as a Python object; NaN, and NA and NaT of pandas, are missing labels."""
    if getattr(label, "ndim", None) == 0:  # scalars of numpy and torch
        label = label.item()
    if getattr(label, "ndim", 0):  # an array is not a label: callers refuse it
        return label
    return None if type(label).__name__ in ("NAType", "NaTType") or label != label else label


def by_name(labels: Iterable[Any], classes: Sequence[Any] | None) -> list[Any]:
    """Labels by name: whole numbers are positions in ``classes``, if known; −1 is missing."""
    if classes is None:
        return list(labels)
    names = []
    for label in map(plain, labels):
        is_position = type(label) in (int, bool, float) and label % 1 == 0
        refuse_if(
            is_position and not -1 <= label < len(classes),
            f"labels that are whole numbers must be positions among classes, of which {len(classes)} are known",
            label,
            "Name all classes, or pass labels by name. −1 is a missing label.",
        )
        if is_position:
            label = None if label < 0 else classes[int(label)]
        names.append(label)
    return names


def as_names(y: np.ndarray, where: object) -> list[Any]:
    """An array of labels as names: whole floats as ints, NaN as None, bytes as text."""
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"labels must be UTF-8 in {where}", error, "Store str.") from None
    refuse_if(
        y.ndim != 1 or y.dtype.kind not in "iubfU",
        f"labels must be a vector of numbers or text in {where}",
        f"shape {y.shape} and {y.dtype}",
        "Convert one-hot rows with argmax(1).",
    )
    names = [plain(label) for label in y.tolist()]
    if y.dtype.kind == "f" and all(name is None or name.is_integer() for name in names):
        names = [None if name is None else int(name) for name in names]
    return names


def number_dtype(x: Any, where: object) -> np.dtype:
    """The floating dtype for features that are stored like this: float64 for whole numbers that
    float32 would round."""
    kind, size = x.dtype.kind, x.dtype.itemsize
    refuse_if(
        kind not in "fiub",
        f"features must be {'real' if kind == 'c' else 'numbers'} in {where}",
        x.dtype,
        "Store plain numbers.",
    )
    wide = kind == "f" and size > 4
    if kind in "iu" and size >= 4 and x.size:
        wide = max(int(x.max()), -int(x.min())) >= 2**24
    return np.dtype(np.float64 if wide else np.float32)


def are_images(dtype: np.dtype, sample_shape: tuple[int, ...]) -> bool:
    """Whether values are brightness: uint8 samples of two or more axes."""
    return dtype == np.uint8 and len(sample_shape) >= 2

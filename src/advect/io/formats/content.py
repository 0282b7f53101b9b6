"""Samples of a file as plain arrays: labels at once, features of chosen rows in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from advect.errors import InputError
from advect.io.formats.guard import check_size, damaged, reading
from advect.io.formats.kinds import Table

Advance = Callable[[int], object]


class Source:
    """A file that is open for reading.

    ``labels`` has the class name of each row, None where it is missing; it is None for files
    without labels. ``probabilities`` are soft labels (n, k), ``targets`` are (n, q)."""

    labels: list[Any] | None = None
    classes: tuple[Any, ...] | None = None
    columns: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    table: Table | None = None
    probabilities: np.ndarray | None = None
    targets: np.ndarray | None = None
    target_columns: tuple[str, ...] | None = None
    path: Any = Path()
    shape: tuple[int, ...]
    dtype: np.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        raise NotImplementedError

    def blocks(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """What ``batches`` gives; subclasses say how it is read."""
        raise NotImplementedError

    def batches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Features of the rows at these increasing positions, a block at a time."""
        with reading(self.path, "a file", Exception):
            yield from self.blocks(rows)

    def read(self, rows: np.ndarray | None = None, advance: Advance = lambda k: None) -> np.ndarray:
        """Features of the rows at these increasing positions, (k, …); None for all."""
        width = math.prod(self.shape) * self.dtype.itemsize
        check_size(self.path, (len(self) if rows is None else len(rows)) * (width + 8))
        rows = np.arange(len(self)) if rows is None else rows
        x, done = np.empty((len(rows), *self.shape), self.dtype), 0
        for block in self.batches(rows):
            x[done : done + len(block)] = block
            done += len(block)
            advance(len(block))
        if done < len(rows):
            raise damaged(self.path, "a file", f"only {done} of {len(rows)} rows")
        return x

    @property
    def codes(self) -> np.ndarray:
        """Positions in ``classes``, −1 where the label is missing."""
        position: dict[Any, int] = {None: -1}
        position |= {name: code for code, name in enumerate(self.classes or ())}
        labels = [None] * len(self) if self.labels is None else self.labels
        if unknown := set(labels) - position.keys():
            got = f"{unknown.pop()!r} with classes {self.classes} in {self.path}"
            raise InputError("labels must be among classes", got, "Name all classes.")
        return np.array([position[label] for label in labels], np.int64)

    def set_probabilities(self, probabilities: np.ndarray, classes: tuple[Any, ...]) -> None:
        """Soft labels; the label of a row is its most likely class unless the file has labels."""
        self.probabilities, self.classes = probabilities, classes
        if self.labels is None and probabilities.shape[1] == len(classes):
            self.labels = [classes[code] for code in probabilities.argmax(axis=1).tolist()]

    def check_parts(self) -> None:
        """Labels, weights, columns, soft labels and targets must fit the features."""
        n, k = len(self), len(self.classes or ())
        parts = ("probabilities", (n, k)), ("labels", (n,)), ("weights", (n,)), ("targets", (n,))
        for name, wanted in parts:
            values = getattr(self, name)
            shape = np.shape(values) if name != "labels" else (len(values or ()),)
            if values is not None and shape[: len(wanted)] != wanted:
                got = f"shape {shape}, not {wanted}"
                raise InputError(f"{name} must fit the {n} samples of {self.path}", got, "Fix it.")
        if self.weights is not None and self.weights.dtype.kind not in "fiu":
            raise InputError("weights must be numbers", self.weights.dtype, "Store numbers.")
        if self.columns is not None and (len(set(self.columns)),) != self.shape:
            what = f"columns must fit the {self.shape} features of {self.path}"
            raise InputError(what, f"{len(self.columns)} names", "Use different names.")


@dataclass(eq=False)
class Content(Source):
    """Samples in memory, for writers and registered formats; see ``Source`` for the fields."""

    x: Any
    labels: Any = None
    classes: Any = None
    columns: tuple[str, ...] | None = None
    weights: Any = None
    table: Table | None = None
    probabilities: Any = None
    targets: Any = None
    target_columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        x = np.asarray(self.x)
        self.dtype = number_dtype(x.dtype, "x")
        self.x = (x[:, None] if x.ndim == 1 else x).astype(self.dtype, copy=False)
        self.shape = self.x.shape[1:]
        if self.x.ndim < 2 or self.x.size == 0:
            raise InputError("features must be an array (n, …)", x.shape, "Pass some samples.")
        if self.labels is not None:
            self.labels = [plain(label) for label in self.labels]
            names = class_names(self.labels) if self.classes is None else self.classes
            self.classes = tuple(plain(name) for name in names)
        for name in ("weights", "probabilities", "targets"):
            if (values := getattr(self, name)) is not None:
                setattr(self, name, np.asarray(values))
        self.check_parts()

    def __len__(self) -> int:
        return len(self.x)

    def blocks(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        yield self.x[rows]


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
    if type(label).__name__ in ("NAType", "NaTType"):
        return None
    return None if type(label) is float and math.isnan(label) else label


def as_names(y: np.ndarray, where: object) -> list[Any]:
    """An array of labels as names: whole floats as ints, NaN as None, bytes as text."""
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"labels must be UTF-8 in {where}", error, "Store str.") from None
    if y.ndim != 1 or y.dtype.kind not in "iubfU":
        got, remedy = f"shape {y.shape} and {y.dtype}", "Convert one-hot rows with argmax(1)."
        raise InputError(f"labels must be a vector of numbers or text in {where}", got, remedy)
    names = [plain(label) for label in y.tolist()]
    if y.dtype.kind == "f" and all(name is None or name.is_integer() for name in names):
        names = [None if name is None else int(name) for name in names]
    return names


def number_dtype(dtype: np.dtype, where: object) -> np.dtype:
    """The floating dtype for features of this stored dtype."""
    if dtype.kind not in "fiub":
        what = "real" if dtype.kind == "c" else "numbers"
        raise InputError(f"features must be {what} in {where}", dtype, "Store plain numbers.")
    return np.dtype(np.float64 if dtype.kind == "f" and dtype.itemsize > 4 else np.float32)


def are_images(dtype: np.dtype, sample_shape: tuple[int, ...]) -> bool:
    """Whether values are brightness: uint8 samples of two or more axes."""
    return dtype == np.uint8 and len(sample_shape) >= 2

"""What a file of samples holds, as arrays: features, class names, names of columns, weights.

Class names are kept as they are, through JSON where a format has no place for their kind. Where the
numbers lie in each format is for its own file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from advect._util.memory import check_room
from advect.data.formats.kinds import Cells, Table
from advect.errors import InputError

Advance = Callable[[int], object]


def quiet(k: int) -> None:
    """The ``advance`` of those who do not look."""


class Source(Protocol):
    """A file that is open for reading: labels at once, features of chosen rows in one pass.

    Attributes:
        labels: the name of each row's class, None where it is missing; None when the file has no
            labels at all.
        classes: the class names in order; None when there are no labels.
        columns: names of tabular features.  weights: (n,), or None.
        table: what the columns were before they became numbers, or None.
        probabilities: of labels with doubt, (n, k) for the k classes, or None.
        targets: continuous targets (n, q), or None.  target_columns: their names; without
            ``targets``, which of ``columns`` they are.

    Example:
        >>> import tempfile, numpy as np
        >>> from pathlib import Path
        >>> from advect.data.formats import open_source
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "data.npz")
        ...     np.savez(path, x=np.arange(8.0).reshape(4, 2), y=["a", "b", "a", "a"])
        ...     source = open_source(path)
        ...     print(len(source), source.labels, source.classes)
        ...     print(source.read(np.array([1, 3])).tolist())
        4 ['a', 'b', 'a', 'a'] ('a', 'b')
        [[2.0, 3.0], [6.0, 7.0]]
    """

    labels: list[Any] | None = None
    classes: tuple[Any, ...] | None = None
    columns: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    table: Table | None = None
    probabilities: np.ndarray | None = None
    targets: np.ndarray | None = None
    target_columns: tuple[str, ...] | None = None

    def __len__(self) -> int: ...

    def read(self, rows: np.ndarray | None = None, advance: Advance = quiet) -> np.ndarray:
        """Features of the rows at these increasing positions, (k, …); None for all."""
        ...

    def blocks(self, size: int, advance: Advance = quiet) -> Iterator[np.ndarray]:
        """Features of all rows in their order, at most ``size`` at a time, in one pass."""
        for first in range(0, len(self), size):
            yield self.read(np.arange(first, min(first + size, len(self))), advance)


@dataclass(eq=False)
class Content(Source):
    """Samples as plain arrays, ready to be written; what a reader returns that has them all.

    Args:
        x: features (n, …). Floating dtypes are kept, half precision becomes float32, whole numbers
            become float32.
        labels: the name of each sample's class, None where it is missing; None for no labels at
            all.
        classes: the names in order; by default those that occur, sorted where they can be.
        columns: names of the features of tabular samples.
        weights: n numbers, or None.
        table: what the columns were, if they are to be written as such.
        probabilities: of labels with doubt, (n, k), a column for each of ``classes``; or None.
        targets: continuous targets (n, q), or None.
        target_columns: their names.

    Raises:
        InputError: parts that do not fit together.

    Example:
        >>> import numpy as np
        >>> from advect.data.formats import Content
        >>> content = Content(np.zeros((3, 2)), ["dog", None, "cat"])
        >>> content.classes, content.codes.tolist()
        (('cat', 'dog'), [1, -1, 0])
    """

    x: np.ndarray
    labels: list[Any] | None = None
    classes: tuple[Any, ...] | None = None
    columns: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    table: Table | None = None
    probabilities: np.ndarray | None = None
    targets: np.ndarray | None = None
    target_columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        x = np.asarray(self.x)
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim == 0 or x.size == 0:
            raise InputError(
                "features must hold at least one sample and one number",
                f"shape {x.shape}",
                "Pass an array (n, …).",
            )
        self.x = x.astype(number_dtype(x.dtype, "features"), copy=False)
        self._check_labels()
        if self.columns is not None:
            self.columns = check_columns(self.columns, x.shape[1:])
        if self.weights is not None:
            self.weights = np.asarray(self.weights)
            if self.weights.shape != (len(x),) or self.weights.dtype.kind not in "fiu":
                raise InputError(
                    f"weights must be {len(x)} numbers",
                    f"shape {self.weights.shape}",
                    "Pass one for each sample, or None.",
                )
        if self.probabilities is not None:
            self.probabilities = np.asarray(self.probabilities)
            if self.probabilities.shape != (len(x), len(self.classes or ())):
                raise InputError(
                    f"probabilities must be {len(x)} rows, with one number for each of the classes",
                    f"shape {self.probabilities.shape} with classes {self.classes}",
                    "Pass classes too, or leave them out.",
                )

    def _check_labels(self) -> None:
        if self.classes is not None:
            self.classes = tuple(plain(name) for name in self.classes)
        if self.labels is None:
            if self.classes:
                raise InputError(
                    "classes need labels",
                    "labels=None",
                    "Pass a label for each sample, None where it is missing.",
                )
            return
        self.labels = [plain(label) for label in self.labels]
        if len(self.labels) != len(self.x):
            raise InputError(
                f"{len(self.x)} samples need as many labels",
                len(self.labels),
                "Pass one for each sample, None if missing.",
            )
        if self.classes is None:
            self.classes = class_names(self.labels)
        if unknown := set(self.labels) - {None, *self.classes}:
            raise InputError(
                "labels must be among classes", repr(unknown.pop()), f"Classes: {self.classes}."
            )

    def __len__(self) -> int:
        return len(self.x)

    def target_cells(self, taken: Iterable[str]) -> list[Cells]:
        """The targets as columns of a table whose other columns have these names."""
        if self.targets is None:
            return []
        q = self.targets.shape[1]
        names = self.target_columns or ("target", *(f"target{k}" for k in range(1, q)))
        if both := set(names) & set(taken):
            raise InputError(
                "targets and features must have columns of their own",
                repr(min(both)),
                "Name the targets: target_columns=….",
            )
        return [Cells(name, self.targets[:, k]) for k, name in enumerate(names)]

    def read(self, rows: np.ndarray | None = None, advance: Advance = quiet) -> np.ndarray:
        x = self.x if rows is None else self.x[check_rows(rows, len(self))]
        advance(len(x))
        return x

    @property
    def codes(self) -> np.ndarray:
        """Positions in ``classes``, −1 where the label is missing."""
        position = {name: code for code, name in enumerate(self.classes or ())}
        labels = [None] * len(self.x) if self.labels is None else self.labels
        return np.array([-1 if label is None else position[label] for label in labels], np.int64)


def check_columns(
    columns: Iterable[Any], shape: tuple[int, ...], where: str = ""
) -> tuple[str, ...]:
    """Different names, one for each feature of samples of this shape."""
    names = tuple(map(str, columns))
    if shape != (len(names),) or len(set(names)) != len(names):
        raise InputError(
            f"columns must be different names for samples of shape {shape}{where}",
            f"{len(names)} names: {', '.join(names[:8])}",
            "Give one for each feature.",
        )
    return names


def class_names(labels: Iterable[Any]) -> tuple[Any, ...]:
    """The names that occur, sorted where they compare, else in order of appearance."""
    distinct = dict.fromkeys(label for label in labels if label is not None)
    try:
        return tuple(sorted(distinct))
    except TypeError:
        return tuple(distinct)


def plain(label: Any) -> Any:
    """A label as a Python object; NaN, and pandas' NA and NaT, are missing ones."""
    if getattr(label, "ndim", None) == 0:  # scalars of numpy and torch
        label = label.item()
    if type(label).__name__ in ("NAType", "NaTType"):
        return None
    return None if type(label) is float and math.isnan(label) else label


def as_names(y: np.ndarray, where: object) -> list[Any]:
    """An array of labels as a list of names: whole floats as ints, None for NaN, bytes as text."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(
            f"labels must be one for each sample in {where}",
            f"shape {y.shape}",
            "Store a vector; turn one-hot rows to labels with argmax(1).",
        )
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"labels must be UTF-8 text in {where}", error, "Store them as str."
            ) from None
    if y.dtype.kind not in "iubfU":
        raise InputError(
            f"labels must be whole numbers or text in {where}",
            y.dtype,
            "Store them with a plain dtype.",
        )
    names = [plain(label) for label in y.tolist()]
    if y.dtype.kind == "f" and all(name is None or name.is_integer() for name in names):
        names = [None if name is None else int(name) for name in names]
    return names


def number_dtype(dtype: np.dtype, where: object) -> np.dtype:
    """The floating dtype that features of this stored dtype get."""
    if dtype.kind == "f":
        return np.dtype(np.float32 if dtype.itemsize <= 4 else np.float64)
    if dtype.kind in "iub":
        return np.dtype(np.float32)
    if dtype.kind == "c":
        raise InputError(
            f"features must be real in {where}",
            dtype,
            "Split real and imaginary parts into features.",
        )
    raise InputError(
        f"features must be numbers in {where}",
        dtype,
        "Store them as an array of a plain numeric dtype.",
    )


def are_images(dtype: np.dtype, sample_shape: tuple[int, ...], raw: bool) -> bool:
    """Whether bytes are brightness: uint8 samples of two or more axes, unless ``raw`` is set."""
    return dtype == np.uint8 and len(sample_shape) >= 2 and not raw


def check_rows(rows: np.ndarray | None, n: int) -> np.ndarray:
    """Increasing positions among n rows; None stands for all."""
    if rows is None:
        check_room(f"what is asked, {n} rows,", 8 * n, "Read fewer: n=…, or max_samples=….")
        return np.arange(n)
    rows = np.asarray(rows)
    whole = rows.ndim == 1 and rows.dtype.kind in "iu"
    fine = whole and bool((np.diff(rows.astype(np.int64)) > 0).all())
    if not fine or len(rows) == 0 or rows[0] < 0 or rows[-1] >= n:
        raise InputError(
            f"rows must be increasing positions below {n}", rows, "Pass np.unique(rows)."
        )
    return rows.astype(np.int64)

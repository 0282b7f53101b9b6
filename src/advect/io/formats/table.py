"""What CSV, Parquet and data frames share: which column holds what, and names of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from advect._util.checks import check_known, one_or_more
from advect.errors import InputError
from advect.io.formats.content import Content
from advect.io.formats.kinds import Cells, Table

LABEL, WEIGHT = "label", "sample_weight"  # what our own files call these columns
MOST_VALUES = 1000
# 007 is a name; pandas writes 1.0 where labels are missing
_WHOLE = re.compile(r"(0|-?[1-9]\d*)(\.0)?", re.ASCII)
_GRID = re.compile(r"x((?:\[\d+\])+)")
_OPEN, _CLOSE = "probability[", "]"  # around the class, in columns of soft labels

Key = str | int
Probabilities = Key | bool | Sequence[Key | bool] | None


class Layout(NamedTuple):
    """Positions of the columns by role, and the classes of the soft labels."""

    features: list[int]
    label: int | None
    weights: int | None
    targets: list[int]
    probabilities: list[int]
    classes: tuple[Any, ...]


def layout(
    path: object,
    names: Sequence[str],
    label: Any = None,
    weights: Any = None,
    columns: Sequence[Key] | None = None,
    target: Any = None,
    probabilities: Probabilities = None,
    ignored: Sequence[str] = (),
    **options: Any,
) -> Layout:
    """The role of each column. None stands for the usual names if they occur, False for none."""

    def find(key: Any, what: str) -> int:
        if type(key) is int and -len(names) <= key < len(names):
            return key % len(names)
        if type(key) is not str:
            got = f"{key!r} for {len(names)} columns"
            raise InputError(f"{what} must be a name or a position in {path}", got, "Name one.")
        if key not in names:
            check_known(f"{what} in {path}", key, names)
        return names.index(key)

    check_names(path, names)
    soft, classes = _soft_labels(path, names, probabilities, find)
    targets = [] if target is None else [find(key, "target column") for key in one_or_more(target)]
    places: list[int | None] = []
    for key, usual, what in ((label, LABEL, "label column"), (weights, WEIGHT, "weights column")):
        if key is None:
            at = names.index(usual) if usual in names else None
            places.append(None if at in targets else at)
        else:
            places.append(None if key is False else find(key, what))
    taken = {*places, *targets, *soft}
    rest = [at for at, name in enumerate(names) if name not in ignored and not _is_soft(name)]
    chosen = rest if columns is None else [find(key, "feature column") for key in columns]
    features = [at for at in chosen if at not in taken]
    if columns is not None and len(set(features)) < len(columns):
        remedy = "Leave out the label, weights and targets."
        raise InputError(f"columns must be different features of {path}", list(columns), remedy)
    if not features:
        got = ", ".join(names[:20]) or "no columns"
        raise InputError(f"a table needs a column of features in {path}", got, "Add one.")
    return Layout(features, places[0], places[1], targets, soft, classes)


def _is_soft(name: str) -> bool:
    return name.startswith(_OPEN) and name.endswith(_CLOSE)


def _soft_labels(
    path: object, names: Sequence[str], asked: Any, find: Callable[[Any, str], int]
) -> tuple[list[int], tuple[Any, ...]]:
    """Columns of soft labels and their classes: by our names, by a prefix, or one by one."""
    keys = asked if type(asked) in (list, tuple) else [asked]
    if keys in ([False], [], ()):
        return [], ()
    if asked is None:
        found = [at for at, name in enumerate(names) if _is_soft(name)]
        texts = [names[at][len(_OPEN) : -len(_CLOSE)] for at in found]
    elif len(keys) == 1 and keys[0] not in names and type(keys[0]) is str:
        found = [at for at, name in enumerate(names) if name.startswith(keys[0])]
        end = _CLOSE if "[" in keys[0] else ""
        texts = [names[at].removeprefix(keys[0]).removesuffix(end) for at in found]
    else:
        found = [find(key, "column of probabilities") for key in keys]
        texts = [names[at] for at in found]
    few = asked is not None and len(found) < 2
    if few or len(set(texts)) < len(texts) or "" in texts:
        got = ", ".join(names[at] for at in found) or f"{asked!r}"
        remedy = f"Name the columns or their prefix. Columns: {', '.join(names[:20])}."
        raise InputError(f"probabilities need two or more columns of {path}", got, remedy)
    how = text_labels(texts)
    return found, tuple(how(text) for text in texts)


def check_names(path: object, names: Sequence[str]) -> None:
    """Columns must have different names."""
    if "" in names:
        remedy = "Save it without the index (pandas: index=False), or name the column."
        raise InputError(f"each column needs a name in {path}", names.index(""), remedy)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"columns must have different names in {path}", repr(twice), "Rename one.")


def not_a_number(path: object, row: int, column: str, cell: object) -> InputError:
    """The error for a cell that is empty, not finite, or text."""
    at = f"row {row}, column {column!r} of {path}"
    if cell is None or cell == "":
        remedy = "Fill it in, or drop the row or column."
        return InputError("features must not be missing", f"an empty cell in {at}", remedy)
    if type(cell) is float:
        large = " Pass dtype='float64' if it is too large for float32." if np.isinf(cell) else ""
        remedy = f"Fill it in, or drop the row or column.{large}"
        return InputError("features must be finite", f"{cell} in {at}", remedy)
    remedy = f"Pass categorical='onehot', label={column!r} if it is the label, or columns=[…]."
    return InputError("features must be numbers", f"{cell!r:.80} in {at}", remedy)


def text_labels(texts: Iterable[str]) -> Callable[[str], str | int]:
    """How to read labels from text: as ints if all are whole numbers, else as they are."""
    whole = all(_WHOLE.fullmatch(text) for text in texts)
    return (lambda text: int(text.removesuffix(".0"))) if whole else str


def grid_names(sample_shape: tuple[int, ...]) -> tuple[str, ...]:
    """Columns x[0][0], x[0][1], … for samples without column names; they tell the shape."""
    return tuple("x" + "".join(f"[{i}]" for i in index) for index in np.ndindex(*sample_shape))


def grid_shape(names: Sequence[str]) -> tuple[int, ...] | None:
    """The sample shape that ``grid_names`` named, or None for any other names."""
    last = _GRID.fullmatch(names[-1])
    if last is None:
        return None
    shape = tuple(int(i) + 1 for i in last[1][1:-1].split("]["))
    fits = np.prod(shape, dtype=float) == len(names) and grid_names(shape) == tuple(names)
    return shape if fits else None


def data_frame(
    content: Content, names: Sequence[str], label: str | None, weights: str | None
) -> Any:
    """A pandas frame: columns in their original types, targets, labels, weights, soft labels."""
    import pandas as pd

    cells = (content.table or Table()).cells(names, content.x.reshape(len(content.x), -1))
    if content.targets is not None:
        own = content.target_columns or ()
        cells += [Cells(name, content.targets[:, k]) for k, name in enumerate(own)]
    parts: list[tuple[str, Any]] = []
    for name, numbers, column in cells:
        values: Any = numbers.copy()
        if column is not None and column.values:
            values = pd.Categorical.from_codes(numbers, categories=list(column.values))
            values = values if column.dtype == "category" else values.astype(object)
        parts.append((name, values))
    if label is not None:
        kinds = pd.Index(list(content.classes or ()), dtype=object, tupleize_cols=False)
        parts.append((label, pd.Categorical.from_codes(content.codes, categories=kinds)))
    if content.weights is not None and weights is not None:
        parts.append((weights, content.weights.astype(np.float64)))
    if content.probabilities is not None:
        own = [f"{_OPEN}{name}{_CLOSE}" for name in content.classes or ()]
        if not all(type(name) in (str, int) for name in content.classes or ()):
            what = "classes with soft labels must be whole numbers or text in a table"
            raise InputError(what, content.classes, "Rename them, or save as .npz.")
        parts += zip(own, content.probabilities.T, strict=True)
    check_names("the table to write", [name for name, _ in parts])
    return pd.DataFrame(dict(parts))

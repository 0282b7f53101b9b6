"""What tables of any format share: which column is what, and how columns of text become numbers.

``text`` and ``parquet`` read the cells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from advect._util.checks import check_known
from advect.errors import InputError

LABEL, WEIGHT = "label", "sample_weight"  # what our own files call these columns
# behind the name of a column of labels that text cannot tell: 1 and "1", tuples, text with line
# ends
JSON = ":json"
MOST_VALUES = 1000
# 007 is a name; pandas writes 1.0 where labels are missing
_WHOLE = re.compile(r"(0|-?[1-9]\d*)(\.0)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_GRID = re.compile(r"x((?:\[\d+\])+)")

Key = str | int


@dataclass(frozen=True)
class Layout:
    """Positions of the features, and of the columns of labels and weights if there are any."""

    features: tuple[int, ...]
    label: int | None
    weights: int | None


def layout(
    path: Path,
    names: Sequence[str],
    label: Key | bool | None,
    weights: Key | bool | None,
    columns: Sequence[Key] | None,
    default: str = LABEL,
    ignored: Sequence[str] = (),
) -> Layout:
    """Which columns are what: None takes our own names if they occur, False none."""

    def find(key: Key, what: str) -> int:
        if type(key) is int and -len(names) <= key < len(names):
            return key % len(names)
        if isinstance(key, str):
            if key not in names:
                check_known(f"{what} in {path}", key, names)
            return names.index(key)
        raise InputError(
            f"{what} must be a name or a position in {path}",
            repr(key),
            f"Its {len(names)} columns: {', '.join(names[:20])}.",
        )

    def special(key: Key | bool | None, own: str, what: str) -> int | None:
        if key is None:
            return names.index(own) if own in names else None
        return None if key is False else find(key, what)

    y, w = special(label, default, "label column"), special(weights, WEIGHT, "weights column")
    rest = [position for position, name in enumerate(names) if name not in ignored]
    chosen = rest if columns is None else [find(key, "feature column") for key in columns]
    features = tuple(position for position in chosen if position not in (y, w))
    if columns is not None and len(set(features)) != len(columns):
        raise InputError(
            f"columns must be different features of {path}",
            list(columns),
            "Leave out the columns of labels and weights.",
        )
    if not features:
        raise InputError(
            f"a table needs a column of features in {path}",
            ", ".join(names) or "no columns",
            "Add one.",
        )
    return Layout(features, y, w)


def special_names(
    names: Sequence[str], label: str | None, weights: str | None, *also: str
) -> tuple[str, str]:
    """Names for the columns of labels and weights: as they were, or our own; never a feature's."""
    chosen = (label or LABEL, weights or WEIGHT)
    for taken in (*chosen, *also):
        if taken in names:
            raise InputError(
                "a column has a name that tables keep for labels or weights",
                repr(taken),
                "Rename the column.",
            )
    if chosen[0] == chosen[1]:
        raise InputError(
            "labels and weights must have columns of their own",
            repr(chosen[0]),
            "Rename one of them.",
        )
    return chosen


def refuse_dates(path: object, column: str, kind: object) -> InputError:
    """The error for points in time, which have no unit of their own and are no categories."""
    return InputError(
        "a date or time must become a number first, in a unit of your choice",
        f"column {column!r} of {path} ({kind})",
        "Store the days since a date of yours, say; in pandas (df[c] - df[c].min()) / "
        "pd.Timedelta(days=1). Or leave it out.",
    )


def are_dates(values: Iterable[str]) -> bool:
    """Whether all of some different texts are dates or times as ISO 8601 writes them."""
    found = list(values)
    return len(found) > 0 and all(_DATE.match(value) and _is_date(value) for value in found)


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def check_names(path: Path, names: Sequence[str]) -> None:
    """Every column has a name of its own."""
    seen: set[str] = set()
    for position, name in enumerate(names):
        if not name:
            raise InputError(
                f"every column needs a name in {path}",
                f"none for column {position}, perhaps an index",
                "Save it without the index (pandas: index=False), or name the column.",
            )
        if name in seen:
            raise InputError(
                f"columns must have different names in {path}", repr(name), "Rename one of them."
            )
        seen.add(name)


def not_a_number(path: Path, row: str, column: str, cell: object) -> InputError:
    """The error for a cell that is empty, NaN or text where a number should be."""
    at = f"{row}, column {column!r} of {path}"
    if cell is None or cell == "":
        return InputError(
            "features must not be missing",
            f"an empty cell in {at}",
            "Fill it in, or drop the row or column.",
        )
    if type(cell) is float:
        large = ", or pass dtype='float64' if it is too large for float32" if np.isinf(cell) else ""
        return InputError(
            "features must be finite",
            f"{cell} in {at}",
            f"Fill it in, or drop the row or column{large}.",
        )
    return InputError(
        "features must be numbers",
        f"{cell!r} in {at}",
        f"Pass categorical='onehot' for a column for each value, label={column!r} if it is that, "
        "or columns=[…] without it.",
    )


def check_categorical(categorical: str | None) -> bool:
    """Whether columns of text become one column for each value."""
    if categorical is not None:
        check_known("categorical", categorical, ("onehot",))
    return categorical is not None


def check_dtype(dtype: str | np.dtype | type | None) -> np.dtype | None:
    """float32, float64 or None."""
    name = getattr(dtype, "__name__", str(dtype))
    if dtype is not None:
        check_known("dtype", name, ("float32", "float64"))
    return None if dtype is None else np.dtype(name)


def category_values(path: object, column: str, values: Iterable[str]) -> tuple[str, ...]:
    """The distinct values of a column of text, sorted; too many are an error, and so are dates."""
    found = tuple(sorted(set(values)))
    if are_dates(found):
        raise refuse_dates(path, column, found[0])
    if len(found) > MOST_VALUES:
        raise InputError(
            f"a column with more than {MOST_VALUES} values is not a category",
            f"column {column!r} of {path}",
            "Leave it out: columns=[…].",
        )
    return found


def text_labels(texts: Iterable[str]) -> Callable[[str], str | int]:
    """How to read labels from text: as ints if each is written as one, else as they are."""
    return _whole if all(_WHOLE.fullmatch(text) for text in texts) else str


def _whole(text: str) -> int:
    return int(text.removesuffix(".0"))


def grid_names(sample_shape: tuple[int, ...]) -> list[str]:
    """Columns x[0][0], x[0][1], … for samples without names, which tell their shape."""
    return ["x" + "".join(f"[{i}]" for i in index) for index in np.ndindex(*sample_shape)]


def grid_shape(names: Sequence[str]) -> tuple[int, ...] | None:
    """The sample shape that ``grid_names`` named, or None for any other names."""
    last = _GRID.fullmatch(names[-1])
    if last is None:
        return None
    shape = tuple(int(i) + 1 for i in last[1][1:-1].split("]["))
    fits = np.prod(shape, dtype=float) == len(names) and grid_names(shape) == list(names)
    return shape if fits else None

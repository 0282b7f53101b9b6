"""Data frames of pandas: numbers in named columns, one column of labels; and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from advect._util.checks import check_kind, check_known, needed
from advect.data.formats.doubt import column_names, probability_columns, set_aside
from advect.data.formats.kinds import EXACT, WHOLE, Column, Table, plain_values, warn_rounded
from advect.data.formats.table import (
    category_values,
    check_categorical,
    grid_names,
    grid_shape,
    refuse_dates,
)
from advect.errors import InputError

_DATES = ("datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period")


def frame_fields(
    frame: Any,
    label: Hashable | None,
    weights: Any,
    categorical: str | None,
    probabilities: Any = None,
) -> dict[str, Any]:
    """Features, labels, weights, class names and names of columns of a data frame."""
    pandas, onehot = _pandas(), check_categorical(categorical)
    remedy = "Arrays go to LabeledDataset(x, y)."
    check_kind("from_pandas takes a DataFrame", frame, pandas.DataFrame, remedy)
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError("columns must have different names", repr(twice), "Rename one of them.")
    special = [] if label is None else [_find(frame, label, "label column")]
    fields: dict[str, Any] = {}
    named: list[str | None] = [str(label) if type(label) is str else None, None]
    if label is not None:
        fields |= _labels(frame[label])
    if isinstance(weights, str) and (weights in frame.columns or weights != "balanced"):
        special.append(_find(frame, weights, "weights column"))
        named[1], weights = weights, _numbers(frame[[weights]], np.dtype(np.float64))[:, 0]
    places, classes = probability_columns("the frame", names, probabilities)
    if places:
        special += [frame.columns[at] for at in places]
        shares = _numbers(frame[[frame.columns[at] for at in places]], np.dtype(np.float64))
        fields |= {"probabilities": shares, "classes": classes}
    aside = set_aside(names, places, probabilities)
    special += [
        c
        for c, name in zip(frame.columns, names, strict=True)
        if name in aside and c not in special
    ]
    features = frame.drop(columns=special)
    if features.shape[1] == 0 or len(frame) == 0:
        raise InputError(
            "a frame needs a row and a column of features", f"shape {features.shape}", "Add some."
        )
    features, kinds = _encoded(features, onehot)
    whole = [name for name, kind in features.dtypes.items() if kind.kind in "iu"]
    largest = {str(name): _largest(features[name]) for name in whole}
    wide = any(most >= EXACT["float32"] for most in largest.values())
    wide = wide or any(_dtype(kind) == np.float64 for kind in features.dtypes)
    x = _numbers(features, np.dtype(np.float64 if wide else np.float32))
    warn_rounded("the frame", largest, x.dtype)
    columns = tuple(map(str, features.columns))
    shape = grid_shape(columns)
    if shape is None:
        fields |= {"x": x, "columns": columns, "table": Table(kinds, *named)}
    else:
        fields |= {"x": x.reshape(len(x), *shape), "table": Table((), *named)}
    return {"weights": weights, **fields}


def to_frame(
    x: Tensor,
    y: Tensor,
    weights: Tensor,
    classes: Sequence[Hashable],
    columns: Sequence[str] | None,
    sample_shape: tuple[int, ...],
    table: Table,
    label: str | bool | None,
    weights_column: str | None,
    probabilities: Tensor | None = None,
) -> Any:
    """A frame with columns as they were, and one of categories for the labels."""
    pandas = _pandas()
    label = (table.label or "label") if label is True else label or None
    if columns is not None:
        names = list(columns)
    elif len(sample_shape) == 1:
        names = [f"x{position}" for position in range(sample_shape[0])]
    else:
        names = grid_names(sample_shape)
    for name in (label, weights_column):
        if name is not None and (type(name) is not str or name in names or label == weights_column):
            raise InputError(
                "labels and weights must have columns of their own",
                repr(name),
                "Pass another name, or None to leave them out.",
            )
    parts = {}
    for cells in table.cells(names, x.detach().cpu().numpy().copy()):
        column = cells.column
        if column is None or not column.values:
            parts[cells.name] = cells.numbers
            continue
        values = pandas.Categorical.from_codes(cells.numbers, categories=list(column.values))
        parts[cells.name] = values if column.dtype == "category" else values.astype(object)
    frame = pandas.DataFrame(parts)
    if label is not None:
        kinds = pandas.Index(list(classes), tupleize_cols=False)
        frame[label] = pandas.Categorical.from_codes(y.cpu().numpy(), categories=kinds)
    if weights_column is not None:
        frame[weights_column] = weights.cpu().numpy().copy()
    if probabilities is not None:
        shares = column_names(tuple(classes), list(frame.columns))
        added = pandas.DataFrame(probabilities.cpu().numpy().copy(), columns=shares)
        frame = pandas.concat([frame, added], axis=1)
    return frame


def _labels(column: Any) -> dict[str, Any]:
    """Names, None where missing; a column of categories also has the classes in their order."""
    both = zip(column.tolist(), column.isna().tolist(), strict=True)
    names = [None if missing else label for label, missing in both]
    classes = {"classes": column.cat.categories.tolist()} if hasattr(column, "cat") else {}
    return {"y": names, **classes}


def _encoded(features: Any, onehot: bool) -> tuple[Any, tuple[Column, ...]]:
    """Only columns of numbers, and what they were; others have a column for each value."""
    others = [name for name, kind in features.dtypes.items() if _dtype(kind) is None]
    numbers = {str(n): kind for n, kind in features.dtypes.items() if n not in others}
    kinds = {name: Column(name, _plain_kind(kind)) for name, kind in numbers.items()}
    if not others:
        return features, tuple(kinds.values())
    for name in others:
        column = features[name]
        kind = _pandas().api.types.infer_dtype(
            column.cat.categories if hasattr(column, "cat") else column, skipna=True
        )
        if kind in _DATES:
            raise refuse_dates("the frame", str(name), column.dtype)
    if not onehot:
        raise InputError(
            "features must be numbers",
            ", ".join(f"column {str(name)!r} of {features[name].dtype}" for name in others[:8]),
            "Pass categorical='onehot' for a column for each value, or drop them: "
            "df.drop(columns=[…]).",
        )
    _check_missing(features)
    parts: dict[str, Any] = {}
    for name in features.columns:
        column = features[name]
        if name not in others:
            parts[str(name)] = column
            continue
        texts, known = column.astype(str), hasattr(column, "cat")
        found = column.cat.categories.tolist() if known else set(texts)
        values = plain_values(found if known else category_values("the frame", name, found))
        parts |= {f"{name}={value}": (texts == str(value)).astype(np.float32) for value in values}
        kinds[str(name)] = Column(str(name), "category" if known else "text", values)
    return type(features)(parts), tuple(kinds.values())


def _plain_kind(kind: Any) -> str:
    """numpy's name of a dtype of pandas that holds numbers or truth values."""
    name = str(np.dtype(getattr(kind, "numpy_dtype", getattr(kind, "subtype", kind))))
    return name if name in ("bool", "float16", "float32", "float64", *WHOLE) else "float64"


def _largest(column: Any) -> float:
    """The largest size of whole numbers; 0 if all are missing."""
    ends = [float(end) for end in (column.min(), column.max()) if not _pandas().isna(end)]
    return max(map(abs, ends), default=0.0)


def _numbers(features: Any, dtype: np.dtype) -> np.ndarray:
    _check_missing(features)
    try:
        return features.to_numpy(dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InputError(
            "columns must be numbers", error, "Convert them, or drop them: df.drop(columns=[…])."
        ) from None


def _check_missing(features: Any) -> None:
    counts = features.isna().sum()
    bad = counts[counts > 0]
    if len(bad):
        listed = ", ".join(
            f"{count} in column {str(name)!r}" for name, count in list(bad.items())[:8]
        )
        raise InputError(
            "features must not be missing",
            f"empty cells: {listed}{' …' if len(bad) > 8 else ''}, of {len(features)} rows",
            "Fill them in (df.fillna), or drop the rows (df.dropna) or columns.",
        )


def _dtype(kind: Any) -> np.dtype | None:
    """The floating dtype that a column becomes; None for what is not a number."""
    if getattr(kind, "kind", "O") not in "fiub":
        return None
    kind = np.dtype(getattr(kind, "numpy_dtype", getattr(kind, "subtype", kind)))
    return np.dtype(np.float64 if kind.kind == "f" and kind.itemsize > 4 else np.float32)


def _find(frame: Any, name: Hashable, what: str) -> Hashable:
    if not isinstance(name, Hashable):
        raise InputError(f"{what} must be the name of one column", repr(name), "Pass one name.")
    if name not in frame.columns:
        known = [str(column) for column in frame.columns]
        check_known(what, repr(name) if str(name) in known else str(name), known)
    return name


def _pandas() -> Any:
    return needed("pandas", "data frames")

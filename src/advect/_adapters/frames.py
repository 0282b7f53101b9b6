"""Data frames of pandas: numbers in named columns, one column of labels; and back."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from advect._checks import check_known
from advect.errors import InputError
from advect.files.table import category_values, check_categorical, grid_names, grid_shape


def frame_fields(frame: Any, label: Hashable | None, weights: Any, categorical: str | None) -> dict[str, Any]:
    """Features, labels, weights, class names and names of columns of a data frame."""
    pandas, onehot = _pandas(), check_categorical(categorical)
    if not isinstance(frame, pandas.DataFrame):
        raise InputError("from_pandas takes a DataFrame", type(frame).__name__, "Arrays go to LabeledDataset(x, y).")
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError("columns must have different names", repr(twice), "Rename one of them.")
    special = [] if label is None else [_find(frame, label, "label column")]
    fields: dict[str, Any] = {}
    if label is not None:
        fields |= _labels(frame[label])
    if isinstance(weights, str) and (weights in frame.columns or weights != "balanced"):
        special.append(_find(frame, weights, "weights column"))
        weights = _numbers(frame[[weights]], np.dtype(np.float64))[:, 0]
    features = frame.drop(columns=special)
    if features.shape[1] == 0 or len(frame) == 0:
        raise InputError("a frame needs a row and a column of features", f"shape {features.shape}", "Add some.")
    features = _encoded(features, onehot)
    wide = any(_dtype(kind) == np.float64 for kind in features.dtypes)
    x = _numbers(features, np.dtype(np.float64 if wide else np.float32))
    columns = tuple(map(str, features.columns))
    shape = grid_shape(columns)
    if shape is not None:
        return {"x": x.reshape(len(x), *shape), "weights": weights, **fields}
    return {"x": x, "weights": weights, "columns": columns, **fields}


def to_frame(
    x: Tensor,
    y: Tensor,
    weights: Tensor,
    classes: Sequence[Hashable],
    columns: Sequence[str] | None,
    sample_shape: tuple[int, ...],
    label: str | None,
    weights_column: str | None,
) -> Any:
    """A frame with a column for each feature, and one of categories for the labels."""
    pandas = _pandas()
    if columns is not None:
        names = list(columns)
    elif len(sample_shape) == 1:
        names = [f"x{position}" for position in range(sample_shape[0])]
    else:
        names = grid_names(sample_shape)
    for name in (label, weights_column):
        if name is not None and (not isinstance(name, str) or name in names or label == weights_column):
            raise InputError(
                "labels and weights must have columns of their own", repr(name), "Pass another name, or None to leave them out."
            )
    frame = pandas.DataFrame(x.detach().cpu().numpy().copy(), columns=names)
    if label is not None:
        kinds = pandas.Index(list(classes), tupleize_cols=False)
        frame[label] = pandas.Categorical.from_codes(y.cpu().numpy(), categories=kinds)
    if weights_column is not None:
        frame[weights_column] = weights.cpu().numpy().copy()
    return frame


def _labels(column: Any) -> dict[str, Any]:
    """Names, None where missing; a column of categories also has the classes in their order."""
    missing = column.isna().to_numpy()
    names = [None if gone else label for label, gone in zip(column.tolist(), missing.tolist(), strict=True)]
    return {"y": names, "classes": column.cat.categories.tolist()} if hasattr(column, "cat") else {"y": names}


def _encoded(features: Any, onehot: bool) -> Any:
    """Only columns of numbers; others become a column for each of their values."""
    others = [name for name, kind in features.dtypes.items() if _dtype(kind) is None]
    if not others:
        return features
    if not onehot:
        raise InputError(
            "features must be numbers",
            ", ".join(f"column {str(name)!r} of {features[name].dtype}" for name in others[:8]),
            "Pass categorical='onehot' for a column for each value, or drop them: df.drop(columns=[…]).",
        )
    _check_missing(features)
    parts: dict[str, Any] = {}
    for name in features.columns:
        column = features[name]
        if name not in others:
            parts[str(name)] = column
            continue
        texts = column.astype(str)
        values = map(str, column.cat.categories) if hasattr(column, "cat") else category_values("the frame", name, set(texts))
        parts |= {f"{name}={value}": (texts == value).astype(np.float32) for value in values}
    return type(features)(parts)


def _numbers(features: Any, dtype: np.dtype) -> np.ndarray:
    _check_missing(features)
    try:
        return features.to_numpy(dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InputError("columns must be numbers", error, "Convert them, or drop them: df.drop(columns=[…]).") from None


def _check_missing(features: Any) -> None:
    counts = features.isna().sum()
    bad = counts[counts > 0]
    if len(bad):
        listed = ", ".join(f"{count} in column {str(name)!r}" for name, count in list(bad.items())[:8])
        raise InputError(
            "features must not be missing",
            f"empty cells: {listed}{' …' if len(bad) > 8 else ''}, of {len(features)} rows",
            "Fill them in (df.fillna), or drop the rows (df.dropna) or columns.",
        )


def _dtype(kind: Any) -> np.dtype | None:
    """The floating dtype that a column becomes; None for what is not a number."""
    pandas = _pandas()
    if isinstance(kind, pandas.CategoricalDtype) or getattr(kind, "kind", "O") not in "fiub":
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
    try:
        import pandas
    except ImportError as error:
        raise InputError("data frames need pandas", str(error), "Install it: pip install 'advect[tables]'.") from None
    return pandas

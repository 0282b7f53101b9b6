"""Features, labels, weights and targets of Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types

from advect._util import check_known, refuse_if
from advect.io.formats.content import Content, are_images, as_names, number_dtype
from advect.io.formats.guard import check_size, damaged
from advect.io.formats.table import Column, Layout, Table, grid_names, grid_shape, not_a_number

pc: Any = import_module("pyarrow.compute")  # its functions are made at run time
_F64 = np.dtype(np.float64)
_MAX_VALUES = 1000  # of a category


class Feature(NamedTuple):
    """A column of features: numbers (n, width), the lengths of its lists, and its type."""

    name: str
    numbers: np.ndarray
    lengths: tuple[int, ...] = ()
    column: Column | None = None

    @property
    def names(self) -> tuple[str, ...]:
        if self.column is not None:
            return tuple(self.column.names)
        return grid_names(self.lengths, self.name)


def table_content(
    path: Any,
    table: Any,
    roles: Layout,
    *,
    categories: Mapping[str, Column] = {},
    categorical: str | None = None,
    dtype: str | None = None,
    labels: list[Any] | None = None,
    narrow: bool = False,
    gaps: bool = False,
) -> Content:
    """The samples of an Arrow table. ``path`` is the file, or a name of the table for messages.

    Args:
        categories: columns of categories whose values are known.
        labels: what the label column holds, if it is known.
        narrow: read floats of 64 bits as float32, unless ``dtype`` says otherwise.
        gaps: read missing features as NaN."""
    if categorical is not None:
        check_known("categorical", categorical, ("onehot",))
    if dtype is not None:
        check_known("dtype", str(dtype), ("float32", "float64"))
    refuse_if(len(table) == 0, "a table needs at least one row", f"none in {path}", "Add rows.")
    features = [
        _feature(path, name, _cells(table, name), bool(categorical), categories.get(name), gaps)
        for name in roles.features
    ]
    names = tuple(name for feature in features for name in feature.names)
    lists = len(features) == 1 and features[0].lengths
    grid = lists or grid_shape(names)
    if lists and are_images(features[0].numbers.dtype, lists):
        x = features[0].numbers
    else:
        stored = [f.numbers for f in features if not (narrow and f.numbers.dtype.kind == "f")]
        dtypes = [number_dtype(numbers, path) for numbers in stored]
        x = _joined(path, features, np.dtype(dtype or np.result_type(np.float32, *dtypes)), gaps)
    if roles.label is not None and labels is None:
        labels = _labels(path, roles.label, _cells(table, roles.label))
    columns = [f.column for f in features if f.column and not grid]
    if narrow:
        columns = [column for column in columns if not column.dtype.startswith("float")]
    numbers = {
        role: _joined(path, [_feature(path, key, _cells(table, key)) for key in keys])
        for role, keys in (("targets", roles.targets), ("probabilities", roles.probabilities))
        if keys
    }
    if roles.weights is not None:
        weights = [_feature(path, roles.weights, _cells(table, roles.weights))]
        numbers["weights"] = _joined(path, weights)[:, 0]
    return Content(
        x.reshape(len(x), *(grid or (len(names),))),
        labels,
        roles.classes or None,
        columns=None if grid else names,
        table=Table(tuple(columns), roles.label, roles.weights),
        target_columns=tuple(roles.targets) or None,
        path=path,
        **numbers,
    )


def _cells(table: Any, name: str) -> Any:
    return pa.concat_arrays(table.column(name).chunks)


def _joined(
    path: Any, features: list[Feature], dtype: np.dtype = _F64, gaps: bool = False
) -> np.ndarray:
    """The numbers of several columns, (n, width); all must be finite, or NaN with ``gaps``."""
    n, width = len(features[0].numbers), sum(feature.numbers.shape[1] for feature in features)
    check_size(path, n * width * dtype.itemsize)
    with np.errstate(over="ignore"):
        parts = [feature.numbers.astype(dtype, copy=False) for feature in features]
    numbers = np.concatenate(parts, axis=1)
    bad = np.isinf(numbers) if gaps else ~np.isfinite(numbers)
    if bad.any():
        row, at = np.argwhere(bad)[0]
        name = [name for feature in features for name in feature.names][at]
        raise not_a_number(path, int(row), name, float(numbers[row, at]))
    return numbers


def _feature(
    path: Any,
    name: str,
    cells: Any,
    onehot: bool = False,
    known: Column | None = None,
    gaps: bool = False,
) -> Feature:
    """A column as numbers, by its type; missing ones are NaN with ``gaps``, else an error."""
    n, lengths, declared = len(cells), [], cells.type
    while (
        types.is_list(cells.type)
        or types.is_large_list(cells.type)
        or types.is_fixed_size_list(cells.type)
    ):
        _check_present(path, name, cells, n)
        sizes = pc.list_value_length(cells).to_numpy(zero_copy_only=False)
        if sizes[0] == 0:
            raise not_a_number(path, 0, name, None)
        row = int(np.argmax(sizes != sizes[0]))  # 0 if all are alike
        refuse_if(
            sizes[row] != sizes[0],
            f"lists of column {name!r} must have one length in {path}",
            f"{sizes[row]} in row {row * n // len(cells)} where row 0 has {sizes[0]}",
            "Make all samples of one shape.",
        )
        lengths.append(int(sizes[0]))
        cells = cells.flatten()
    is_category = types.is_dictionary(cells.type)
    kind = cells.type.value_type if is_category else cells.type
    if known is not None and not lengths:
        return _one_hot(path, name, cells, known, gaps)
    if not gaps or lengths:
        _check_present(path, name, cells, n)
    if (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
    ):
        cells = cells.dictionary_decode() if is_category else cells
        as_float = types.is_decimal(kind) or (types.is_boolean(kind) and cells.null_count)
        cells = cells.cast("float64") if as_float else cells
        numbers = cells.to_numpy(zero_copy_only=False).reshape(n, -1)
        typed = not lengths and not types.is_decimal(kind)
        column = Column(name, str(numbers.dtype)) if typed else None
        return Feature(name, numbers, tuple(lengths), column)
    got = f"column {name!r} of {path} ({declared})"
    refuse_if(
        types.is_temporal(kind),
        "a date or time must become a number first, in a unit of your choice",
        got,
        "In pandas: (df[c] - df[c].min()) / pd.Timedelta(days=1). Or leave it out.",
    )
    refuse_if(
        lengths or not is_text(kind),
        "features must be numbers",
        got,
        "Convert it, or pass columns=[…].",
    )
    if not onehot:
        texts = cells.to_pylist()
        row = next((row for row, text in enumerate(texts) if text and not is_number(text)), 0)
        raise not_a_number(path, row, name, texts[row])
    values = {text.strip() for text in cells.unique().to_pylist() if text is not None} - {""}
    refuse_if(
        len(values) > _MAX_VALUES,
        f"a column with more than {_MAX_VALUES} values is not a category",
        f"column {name!r} of {path}",
        "Leave it out: columns=[…].",
    )
    category = "category" if is_category else "text"
    return _one_hot(path, name, cells, Column(name, category, tuple(sorted(values))), gaps)


def _check_present(path: Any, name: str, cells: Any, n: int) -> None:
    """Refuse empty cells; of lists, ``cells`` may be those of all n rows one after another."""
    if cells.null_count:
        at = int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
        raise not_a_number(path, at * n // len(cells), name, None)


def _one_hot(path: Any, name: str, cells: Any, column: Column, gaps: bool) -> Feature:
    texts = pc.utf8_trim_whitespace(cells.cast("string"))
    codes = pc.index_in(texts, pa.array([str(value) for value in column.values], "string"))
    codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
    numbers = np.eye(len(column.values), dtype=np.float32)[codes]
    for row in np.flatnonzero(codes < 0).tolist():
        if texts[row].as_py():
            raise damaged(path, "a table", f"unknown category in {name!r}")
        if not gaps:
            raise not_a_number(path, row, name, None)
        numbers[row] = np.nan
    return Feature(name, numbers, (), column)


def _labels(path: Any, name: str, cells: Any) -> list[Any]:
    """Labels of rows; equal ones are one object."""
    is_category = types.is_dictionary(cells.type)
    kind = cells.type.value_type if is_category else cells.type
    tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_null, is_text)
    refuse_if(
        not any(test(kind) for test in tests),
        "labels must be whole numbers or text",
        f"column {name!r} of {kind} in {path}",
        "Convert it first.",
    )
    cells = cells if is_category else cells.dictionary_encode()
    names = cells.dictionary.to_pylist()
    codes = np.where(cells.is_valid(), cells.indices.fill_null(0), -1)
    labels = [None if code < 0 else names[code] for code in codes.tolist()]
    return as_names(np.array(labels, np.float64), path) if types.is_floating(kind) else labels


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_number(text: str | None) -> bool:
    """Whether a cell is a number."""
    try:
        return text is not None and "_" not in text and float(text) is not None
    except ValueError:
        return False

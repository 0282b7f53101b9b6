"""Features, labels, weights and targets of tables that are read in Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from advect._util.checks import check_known
from advect.errors import InputError
from advect.io.formats.content import Source, are_images, as_names, class_names
from advect.io.formats.guard import damaged
from advect.io.formats.kinds import EXACT, Column, Table
from advect.io.formats.table import Layout, grid_names, grid_shape, not_a_number

pc: Any = import_module("pyarrow.compute")  # its functions are made at run time
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
_MAX_VALUES = 1000  # of a category


@dataclass(frozen=True)
class Feature:
    """A column of features: numbers, lists of numbers with these lengths, or a category."""

    name: str
    dtype: np.dtype = _F32
    kind: str | None = None
    lengths: tuple[int, ...] = ()
    values: tuple[str | int, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        if self.values is not None:
            return tuple(f"{self.name}={value}" for value in self.values)
        return grid_names(self.lengths, self.name)


class TableSource(Source):
    """A table that is read in batches; ``path`` is the file or what to call the table."""

    options = ("label", "weights", "columns", "target", "probabilities")
    wide_floats = True  # whether columns of float64 make features of float64

    def __init__(
        self,
        path: Any,
        schema: Any,
        n: int,
        roles: Layout,
        *,
        categories: Mapping[str, Column] = {},
        categorical: str | None = None,
        dtype: str | None = None,
    ) -> None:
        if categorical is not None:
            check_known("categorical", categorical, ("onehot",))
        if dtype is not None:
            check_known("dtype", str(dtype), ("float32", "float64"))
        if n == 0:
            raise InputError("a table needs at least one row", f"none in {path}", "Add rows.")
        self.path, self._schema, self._n, self._categories = path, schema, n, categories
        self._features = [self._feature(name, bool(categorical)) for name in roles.features]
        whole = [feature.name for feature in self._features if "int" in (feature.kind or "")]
        wide = any(feature.dtype == _F64 for feature in self._features)
        self.dtype = _F64 if wide or (whole and self._largest(whole) >= EXACT[4]) else _F32
        self.dtype = self.dtype if dtype is None else np.dtype(dtype)
        if roles.label is not None:
            self.labels = self._read_labels(roles.label)
            self.classes = class_names(self.labels)
        if roles.weights is not None:
            self.weights = self._columns([roles.weights])[:, 0]
        if roles.targets:
            self.target_columns = tuple(roles.targets)
            self.targets = self._columns(roles.targets)
        if roles.probabilities:
            self.set_probabilities(self._columns(roles.probabilities), roles.classes)
        names = tuple(name for feature in self._features for name in feature.names)
        lists = len(self._features) == 1 and self._features[0].lengths
        grid = lists or grid_shape(names)
        self.shape, self.columns = grid or (len(names),), None if grid else names
        typed = [f for f in self._features if f.kind and not f.lengths and not grid]
        columns = tuple(Column(f.name, str(f.kind), f.values or ()) for f in typed)
        self.table = Table(columns, roles.label, roles.weights)

    def __len__(self) -> int:
        return self._n

    def _stream(self, names: list[str], rows: np.ndarray | None) -> Iterator[tuple[int, Any]]:
        """Batches of some columns, at least those that hold any of ``rows``, each with the
        position of its first row."""
        raise NotImplementedError

    def blocks(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        bright = self._features[0].kind == "uint8" and are_images(np.dtype("uint8"), self.shape)
        for numbers in self._numbers(self._features, rows, self.dtype):
            if bright and len(self._features) == 1:
                numbers /= 255
            yield numbers.reshape(len(numbers), *self.shape)

    def _numbers(
        self, features: list[Feature], rows: np.ndarray, dtype: np.dtype
    ) -> Iterator[np.ndarray]:
        """The numbers of these rows, (k, width), a batch at a time."""
        done = 0
        for first, batch in self._stream([feature.name for feature in features], rows):
            end = int(np.searchsorted(rows, first + len(batch)))
            here, done = rows[done:end], end
            if len(here) == 0:
                continue
            batch = batch.take(pa.array(here - first)) if len(here) < len(batch) else batch
            parts = [self._cells(f, batch.column(at), here) for at, f in enumerate(features)]
            with np.errstate(over="ignore"):
                numbers = np.concatenate(parts, axis=1).astype(dtype)
            if not np.isfinite(numbers).all():
                row, at = np.argwhere(~np.isfinite(numbers))[0]
                name = [name for feature in features for name in feature.names][at]
                raise not_a_number(self.path, int(here[row]), name, float(numbers[row, at]))
            yield numbers
            if done == len(rows):
                return

    def _columns(self, names: list[str]) -> np.ndarray:
        """Whole columns of plain numbers, (n, k) float64."""
        features = [self._feature(name, False) for name in names]
        if any(feature.lengths for feature in features):
            raise InputError(f"columns must be numbers in {self.path}", names, "Name others.")
        return np.concatenate(list(self._numbers(features, np.arange(self._n), _F64)))

    def _cells(self, feature: Feature, cells: Any, rows: np.ndarray) -> np.ndarray:
        """A column of these rows as (k, width) numbers."""
        width = 1
        for length in (*feature.lengths, None):
            if cells.null_count:
                at = int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
                raise not_a_number(self.path, int(rows[at // width]), feature.name, None)
            if length is not None:
                sizes = pc.list_value_length(cells).to_numpy(zero_copy_only=False)
                if (sizes != length).any():
                    at = int(np.argmax(sizes != length))
                    what = f"lists of column {feature.name!r} must have one length in {self.path}"
                    got = f"{sizes[at]} in row {rows[at // width]} where row 0 has {length}"
                    raise InputError(what, got, "Make all samples of one shape.")
                cells, width = cells.flatten(), width * length
        if feature.values is not None:
            return self._one_hot(feature.name, feature.values, cells, rows)
        cells = cells.dictionary_decode() if types.is_dictionary(cells.type) else cells
        cells = cells.cast("float64") if types.is_decimal(cells.type) else cells
        return cells.to_numpy(zero_copy_only=False).reshape(len(rows), width)

    def _one_hot(self, name: str, values: Any, cells: Any, rows: np.ndarray) -> np.ndarray:
        texts = pc.utf8_trim_whitespace(cells.cast("string"))
        codes = pc.index_in(texts, pa.array([str(value) for value in values], "string"))
        codes = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        if codes.min() < 0:
            row = int(np.argmin(codes))
            if not texts[row].as_py():
                raise not_a_number(self.path, int(rows[row]), name, None)
            raise damaged(self.path, "a table", f"unknown category in {name!r}")
        return np.eye(len(values), dtype=np.float32)[codes]

    def _feature(self, name: str, onehot: bool) -> Feature:
        """What a column is, by its type."""
        kind, lengths, first = self._schema.field(name).type, [], None
        if name in self._categories and not types.is_nested(kind):
            column = self._categories[name]
            return Feature(name, _F32, column.dtype, (), column.values)
        while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            if not lengths:
                _, batch = next(self._stream([name], np.zeros(1, np.int64)))
                first = batch.column(0)[0].as_py()
            if type(first) is not list or not first:
                raise not_a_number(self.path, 0, name, None)
            lengths.append(len(first))
            kind, first = kind.value_type, first[0]
        category = types.is_dictionary(kind)
        kind = kind.value_type if category else kind
        if types.is_null(kind):
            raise not_a_number(self.path, 0, name, None)
        if types.is_floating(kind) and not self.wide_floats:
            return Feature(name, lengths=tuple(lengths))
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            dtype = np.dtype(bool) if types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype())
            return Feature(name, _F64 if dtype == _F64 else _F32, str(dtype), tuple(lengths))
        if types.is_decimal(kind):
            return Feature(name, _F64, None, tuple(lengths))
        got = f"column {name!r} of {self.path} ({self._schema.field(name).type})"
        if types.is_temporal(kind):
            what = "a date or time must become a number first, in a unit of your choice"
            remedy = "In pandas: (df[c] - df[c].min()) / pd.Timedelta(days=1). Or leave it out."
            raise InputError(what, got, remedy)
        if not is_text(kind) or lengths:
            raise InputError("features must be numbers", got, "Convert it, or pass columns=[…].")
        return Feature(
            name, _F32, "category" if category else "text", (), self._distinct(name, onehot)
        )

    def _distinct(self, name: str, onehot: bool) -> tuple[str, ...]:
        """The values of a text column, sorted; without ``onehot`` the error for the first."""
        values: set[str] = set()
        for first, batch in self._stream([name], None):
            texts = batch.column(0)
            for row, cell in enumerate(() if onehot else texts.to_pylist()):
                if not is_number(cell):
                    raise not_a_number(self.path, first + row, name, cell)
            values |= {text.strip() for text in texts.unique().to_pylist() if text is not None}
            if len(values - {""}) > _MAX_VALUES:
                what = f"a column with more than {_MAX_VALUES} values is not a category"
                got = f"column {name!r} of {self.path}"
                raise InputError(what, got, "Leave it out: columns=[…].")
        return tuple(sorted(values - {""}))

    def _largest(self, names: list[str]) -> float:
        """The largest absolute value of columns of whole numbers."""
        largest = 0.0
        for _, batch in self._stream(names, None):
            for cells in batch.columns:
                while types.is_nested(cells.type):
                    cells = cells.flatten()
                cells = cells.dictionary_decode() if types.is_dictionary(cells.type) else cells
                extremes = pc.min_max(cells).as_py().values()
                largest = max(largest, *(abs(float(value or 0)) for value in extremes))
        return largest

    def _read_labels(self, name: str) -> list[Any]:
        """Labels of rows; equal ones are one object."""
        kind = self._schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_null, is_text)
        if not any(test(kind) for test in tests):
            got = f"column {name!r} of {kind} in {self.path}"
            raise InputError("labels must be whole numbers or text", got, "Convert it first.")
        labels: list[Any] = []
        for _, batch in self._stream([name], None):
            cells = batch.column(0)
            cells = cells if types.is_dictionary(cells.type) else cells.dictionary_encode()
            names = cells.dictionary.to_pylist()
            codes = np.where(cells.is_valid(), cells.indices.fill_null(0), -1)
            labels += [None if code < 0 else names[code] for code in codes.tolist()]
        floats = types.is_floating(kind)
        return as_names(np.array(labels, np.float64), self.path) if floats else labels


class MemoryTable(TableSource):
    """An Arrow table in memory."""

    def __init__(self, path: Any, table: Any, roles: Layout, **options: Any) -> None:
        self._table = table
        super().__init__(path, table.schema, len(table), roles, **options)

    def _stream(self, names: list[str], rows: np.ndarray | None) -> Iterator[tuple[int, Any]]:
        first = 0
        for batch in self._table.select(names).to_batches(max_chunksize=1 << 16):
            yield first, batch
            first += len(batch)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_number(text: str | None) -> bool:
    """Whether a cell is a number."""
    try:
        return text is not None and "_" not in text and float(text) is not None
    except ValueError:
        return False

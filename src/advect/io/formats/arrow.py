"""Features, labels, weights and targets of tables that are read in Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from advect._util.checks import check_known
from advect.errors import InputError
from advect.io.formats.content import Source, are_images, as_names, class_names, likeliest
from advect.io.formats.guard import damaged, reading
from advect.io.formats.kinds import EXACT, Column, Table, warn_rounded
from advect.io.formats.table import MOST_VALUES, Layout, grid_shape, not_a_number

# Batches of some columns with the position of their first row; all that hold any of some rows.
Stream = Callable[[list[str], np.ndarray | None], Iterator[tuple[int, Any]]]
pc: Any = import_module("pyarrow.compute")  # its functions are made at run time
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True)
class Feature:
    """A column of features: numbers, lists of numbers with these lengths, or a category."""

    name: str
    dtype: np.dtype = _F32
    kind: str | None = None
    lengths: tuple[int, ...] = ()
    values: tuple[str | int, ...] | None = None

    @property
    def names(self) -> list[str]:
        if self.values is not None:
            return [f"{self.name}={value}" for value in self.values]
        return [self.name + "".join(f"[{i}]" for i in index) for index in np.ndindex(*self.lengths)]


class TableSource(Source):
    """A table that is read in batches: ``path`` is the file or what to call the table."""

    options = ("label", "weights", "columns", "target", "probabilities", "categorical", "dtype")

    def __init__(
        self,
        path: Any,
        stream: Stream,
        schema: Any,
        n: int,
        place: Layout,
        known: Mapping[str, Column] = {},
        largest: dict[str, float] | None = None,
        categorical: str | None = None,
        dtype: str | None = None,
        **roles: Any,
    ) -> None:
        if categorical is not None:
            check_known("categorical", categorical, ("onehot",))
        if dtype is not None:
            check_known("dtype", str(dtype), ("float32", "float64"))
        if n == 0:
            raise InputError("a table needs at least one row", f"none in {path}", "Add rows.")
        self.path, self._stream, self._schema, self._n = path, stream, schema, n
        self._known, wanted = known, None if dtype is None else np.dtype(dtype)
        names = [str(name) for name in schema.names]
        self._features = [self._feature(names[at], bool(categorical)) for at in place.features]
        if largest is None:
            largest = self._largest([f.name for f in self._features if "int" in (f.kind or "")])
        least = _F64 if any(most >= EXACT["float32"] for most in largest.values()) else _F32
        self.dtype = wanted or np.result_type(least, *(f.dtype for f in self._features))
        warn_rounded(path, largest, self.dtype)
        if place.label is not None:
            self.labels = self._read_labels(names[place.label])
            self.classes = class_names(self.labels)
        if place.weights is not None:
            self.weights = self._columns([names[place.weights]])[:, 0]
        if place.targets:
            self.target_columns = tuple(names[at] for at in place.targets)
            self.targets = self._columns(list(self.target_columns))
        if place.probabilities:
            self.probabilities = self._columns([names[at] for at in place.probabilities])
            self.classes = place.classes
            if self.labels is None:
                self.labels = likeliest(self.probabilities, self.classes)
        own = [name for feature in self._features for name in feature.names]
        lists = len(self._features) == 1 and self._features[0].lengths
        grid = None if lists else grid_shape(own)
        self.shape = lists or grid or (len(own),)
        self.columns = None if lists or grid else tuple(own)
        kinds = [] if self.columns is None else self._features
        columns = [
            Column(f.name, f.kind, f.values or ()) for f in kinds if f.kind and not f.lengths
        ]
        special = [None if at is None else names[at] for at in (place.label, place.weights)]
        self.table = Table(tuple(columns), *special)

    def __len__(self) -> int:
        return self._n

    def batches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        bright = self._features[0].kind == "uint8" and are_images(np.dtype("uint8"), self.shape)
        for numbers in self._numbers(self._features, rows, self.dtype):
            if bright and len(self._features) == 1:
                numbers /= 255
            yield numbers.reshape(len(numbers), *self.shape)

    def _numbers(
        self, features: list[Feature], rows: np.ndarray | None, dtype: np.dtype
    ) -> Iterator[np.ndarray]:
        """The numbers of these rows, (k, width), a batch at a time."""
        done = 0
        for first, batch in self._batches([one.name for one in features], rows):
            here = np.arange(first, first + len(batch))
            if rows is not None:
                end = int(np.searchsorted(rows, first + len(batch)))
                here, done = rows[done:end], end
            if len(here):
                some = batch.take(pa.array(here - first)) if len(here) < len(batch) else batch
                parts = [self._cells(f, some.column(at), here) for at, f in enumerate(features)]
                with np.errstate(over="ignore"):
                    numbers = np.concatenate(parts, axis=1).astype(dtype)
                if not np.isfinite(numbers).all():
                    row, at = np.argwhere(~np.isfinite(numbers))[0]
                    name = [name for feature in features for name in feature.names][at]
                    raise not_a_number(self.path, int(here[row]), name, float(numbers[row, at]))
                yield numbers

    def _batches(self, names: list[str], rows: np.ndarray | None = None) -> Iterator[Any]:
        with self._reading():
            for first, batch in self._stream(names, rows):
                yield first, batch
                if rows is not None and first + len(batch) > rows[-1]:
                    return

    def _reading(self) -> Any:
        return reading(self.path, "a table", pa.ArrowException, ValueError, KeyError, UnicodeError)

    def _columns(self, names: list[str]) -> np.ndarray:
        """Whole columns of plain numbers, (n, k) float64."""
        features = [self._feature(name, False) for name in names]
        if any(feature.lengths for feature in features):
            raise InputError(f"columns must be numbers in {self.path}", names, "Name others.")
        return np.concatenate(list(self._numbers(features, None, _F64)))

    def _cells(self, feature: Feature, cells: Any, rows: np.ndarray) -> np.ndarray:
        """A column of these rows as (k, width) numbers."""
        per = 1
        for length in (*feature.lengths, None):
            if cells.null_count:
                bad = int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
                raise not_a_number(self.path, int(rows[bad // per]), feature.name, None)
            if length is not None:
                sizes = pc.list_value_length(cells).to_numpy(zero_copy_only=False)
                if (sizes != length).any():
                    bad = int(np.argmax(sizes != length))
                    what = f"lists of column {feature.name!r} must have one length in {self.path}"
                    got = f"{sizes[bad]} in row {rows[bad // per]} where row 0 has {length}"
                    raise InputError(what, got, "Make all samples of one shape.")
                cells, per = cells.flatten(), per * length
        if feature.values is not None:
            values = pa.array([str(value) for value in feature.values], "string")
            texts = pc.utf8_trim_whitespace(cells.cast("string"))
            codes = pc.index_in(texts, values).fill_null(-1).to_numpy(zero_copy_only=False)
            if len(codes) and codes.min() < 0:
                row = int(np.argmin(codes))
                if not texts[row].as_py():
                    raise not_a_number(self.path, int(rows[row]), feature.name, None)
                raise damaged(self.path, "a table", f"unknown category in {feature.name!r}")
            return np.eye(len(values), dtype=np.float32)[codes]
        cells = cells.dictionary_decode() if types.is_dictionary(cells.type) else cells
        cells = cells.cast("float64") if types.is_decimal(cells.type) else cells
        return cells.to_numpy(zero_copy_only=False).reshape(len(rows), per)

    def _feature(self, name: str, onehot: bool) -> Feature:
        """What a column is, by its type."""
        kind, lengths, first = self._schema.field(name).type, [], None
        if name in self._known and not types.is_nested(kind):
            return Feature(name, _F32, self._known[name].dtype, (), self._known[name].values)
        while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            if not lengths:
                _, batch = next(self._batches([name], np.zeros(1, np.int64)))
                first = batch.column(0)[0].as_py()
            if type(first) is not list or not first:
                raise not_a_number(self.path, 0, name, None)
            lengths.append(len(first))
            kind, first = kind.value_type, first[0]
        category = types.is_dictionary(kind)
        kind = kind.value_type if category else kind
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
        values = self._distinct(name, onehot)
        return Feature(name, _F32, "category" if category else "text", (), values)

    def _distinct(self, name: str, onehot: bool) -> tuple[str, ...]:
        """The values of a text column, sorted; without ``onehot`` the error for the first."""
        found: set[str] = set()
        for first, batch in self._batches([name]):
            texts = batch.column(0)
            for row, cell in enumerate(() if onehot else texts.to_pylist()):
                if not is_number(cell):
                    raise not_a_number(self.path, first + row, name, cell)
            found |= {text.strip() for text in texts.unique().to_pylist() if text is not None}
            if len(found - {""}) > MOST_VALUES:
                what = f"a column with more than {MOST_VALUES} values is not a category"
                got = f"column {name!r} of {self.path}"
                raise InputError(what, got, "Leave it out: columns=[…].")
        return tuple(sorted(found - {""}))

    def _largest(self, names: list[str]) -> dict[str, float]:
        """The largest absolute value of columns of whole numbers."""
        largest = dict.fromkeys(names, 0.0)
        for _, batch in self._batches(names) if names else ():
            for name, cells in zip(names, batch.columns, strict=True):
                while types.is_nested(cells.type):
                    cells = cells.flatten()
                cells = cells.dictionary_decode() if types.is_dictionary(cells.type) else cells
                ends = [abs(float(end)) for end in pc.min_max(cells).as_py().values() if end]
                largest[name] = max(largest[name], *ends, 0.0)
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
        for _, batch in self._batches([name]):
            cells = batch.column(0)
            cells = cells if types.is_dictionary(cells.type) else cells.dictionary_encode()
            names = cells.dictionary.to_pylist()
            codes = np.where(cells.is_valid(), cells.indices.fill_null(0), -1)
            labels += [None if code < 0 else names[code] for code in codes.tolist()]
        floats = types.is_floating(kind)
        return as_names(np.array(labels, np.float64), self.path) if floats else labels


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_number(text: str | None) -> bool:
    """Whether a cell is a number."""
    try:
        return (
            text is not None and "_" not in text and bool(text.strip()) and float(text) is not None
        )
    except ValueError:
        return False

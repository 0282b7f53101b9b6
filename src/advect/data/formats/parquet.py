"""Parquet tables: a column for each feature, or a column of lists such as flattened images.

Only the columns and groups of rows that are needed are read, a batch at a time. Our own files keep
sample shape and class names in the file's metadata."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advect.data.formats.content import (
    Advance,
    Source,
    are_images,
    as_names,
    check_rows,
    class_names,
    quiet,
)
from advect.data.formats.doubt import Asked, labels_of, probability_columns, set_aside
from advect.data.formats.guard import check_growth, damaged, empty, reading
from advect.data.formats.kinds import EXACT, Column, Table, warn_rounded
from advect.data.formats.names import dump_name
from advect.data.formats.parquet_columns import (
    KIND,
    META,
    ParquetColumn,
    is_text,
    own_facts,
    pyarrow,
)
from advect.data.formats.stored import CHUNK
from advect.data.formats.table import (
    LABEL,
    MOST_VALUES,
    Key,
    category_values,
    check_categorical,
    check_dtype,
    check_names,
    layout,
    not_a_number,
    refuse_dates,
)
from advect.errors import InputError

_LONG = ("int32", "int64", "uint32", "uint64")  # kinds that may have more digits than float32


class ParquetSource(Source):
    """A table of numbers; one column may hold labels, one weights.

    Files of our own are read as they were saved: with their column of labels, whatever it is
    called, and their categories. A single column of (nested) lists of one length holds samples of
    that shape; bytes of two or more axes are images, which are scaled to 0 … 1. Booleans are 0 and
    1. A null or NaN label is a missing one.

    Args:
        path: the file.
        label: name or position of the column of labels; None takes one called ``label``, False
            none.
        weights: name or position of the column of weights; None takes one called ``sample_weight``,
            False none.
        columns: names or positions of the features; None for all other columns.
        categorical: ``"onehot"`` turns each column of text into a column ``name=value`` for each of
            its values.
        dtype: ``"float32"`` or ``"float64"``; by default float64 if any column is, or has whole
            numbers from 2²⁴ on, which float32 would round.
        raw: keep the values of uint8 images.
        probabilities: for labels with doubt, names or positions of the columns with the probabilities
            of the classes, which are then the classes' names; or what their names begin with, and
            classes are called by the rest. None takes columns ``probability[…]``, False none.

    Raises:
        InputError: a file that cannot be used, or pyarrow is not installed.

    Example:
        >>> import tempfile
        >>> from advect.data.formats import Content, write
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "data.parquet")
        ...     write(path, Content(np.eye(3), ["a", "b", None], columns=("u", "v", "w")))
        ...     source = ParquetSource(path)
        ...     print(source.labels, source.columns, source.read(np.array([2])).tolist())
        ['a', 'b', None] ('u', 'v', 'w') [[0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        path: Path,
        *,
        label: Key | bool | None = None,
        weights: Key | bool | None = None,
        columns: Sequence[Key] | None = None,
        categorical: str | None = None,
        dtype: str | None = None,
        raw: bool = False,
        probabilities: Asked = None,
    ) -> None:
        self._path, self._raw, self._arrow, self._texts = path, raw, pyarrow(), []
        onehot, self._wanted = check_categorical(categorical), check_dtype(dtype)
        with self._open() as file, self._reading():
            schema, self._n = file.schema_arrow, file.metadata.num_rows
            self._check_growth(file.metadata)
            index = (schema.pandas_metadata or {}).get("index_columns", [])
            own = own_facts(path, (schema.metadata or {}).get(META))
        names = [str(name) for name in schema.names]
        check_names(path, names)
        self._texts = [field.name for field in schema if is_text(self._arrow.types, field.type)]
        if self._n == 0:
            raise InputError("a table needs at least one row", f"none in {path}", "Add rows.")
        was: Table = own.get("table", Table())
        label = was.label if label is None and was.label in names else label
        weights = was.weights if weights is None and was.weights in names else weights
        known = {column.name: column for column in was.columns if column.values}
        doubt, classes = probability_columns(path, names, probabilities)
        aside = set_aside(names, doubt, probabilities)
        ignored = [name for name in names if name in index or name in aside]
        place = layout(path, names, label, weights, columns, ignored=ignored)
        if place.label is not None:
            self.labels, self.classes = self._read_labels(schema.field(place.label), own)
        if place.weights is not None:
            self.weights = self._read_weights(schema.field(place.weights))
        if doubt:
            self.probabilities = np.stack(
                [self._read_weights(schema.field(at)) for at in doubt], axis=1
            )
            self.labels = labels_of(path, self.probabilities, self.labels, classes)
            self.classes = classes
        self._features = [
            self._feature(schema.field(at), onehot, known.get(names[at])) for at in place.features
        ]
        plain = [f for f in self._features if not f.lengths and not f.values]
        largest = self._largest([feature.name for feature in plain if feature.was in _LONG])
        self._wide = any(most >= EXACT["float32"] for most in largest.values())
        warn_rounded(path, largest, self._dtype)
        self._sample_shape, self.columns = self._shape(own)
        if own.get("targets") and set(own["targets"]) <= set(self.columns or ()):
            self.target_columns = own["targets"]
        special = [None if at is None else names[at] for at in (place.label, place.weights)]
        found = [feature.column for feature in self._features if not feature.lengths]
        self.table = Table(tuple(column for column in found if column is not None), *special)

    def __len__(self) -> int:
        return self._n

    def read(self, rows: np.ndarray | None = None, advance: Advance = quiet) -> np.ndarray:
        rows = check_rows(rows, self._n)
        out = empty(self._path, KIND, (len(rows), *self._sample_shape), self._dtype)
        done = 0
        for samples in self._samples(rows, len(rows), advance):
            out[done : done + len(samples)] = samples
            done += len(samples)
        return out

    def blocks(self, size: int, advance: Advance = quiet) -> Iterator[np.ndarray]:
        return self._samples(np.arange(self._n), size, advance)

    def _samples(self, rows: np.ndarray, size: int, advance: Advance) -> Iterator[np.ndarray]:
        """The samples at ``rows``, increasing, at most ``size`` at a time."""
        names, row_bytes = [one.name for one in self._features], 8 * self._width
        done = 0
        for first, batch in self._batches(names, rows, row_bytes):
            upto = int(np.searchsorted(rows, first + len(batch)))
            while done < upto:
                here = rows[done : min(done + size, upto)]
                yield self._taken(batch, first, here)
                advance(len(here))
                done += len(here)
        if done < len(rows):
            raise damaged(self._path, KIND, f"only {done} of {len(rows)} rows")

    @property
    def _dtype(self) -> np.dtype:
        least = np.float64 if self._wide else np.float32
        return self._wanted or np.result_type(
            least, *(f.dtype for f in self._features if f.dtype.kind == "f")
        )

    @property
    def _width(self) -> int:
        return sum(feature.width for feature in self._features)

    def _taken(self, batch: Any, first: int, rows: np.ndarray) -> np.ndarray:
        """The samples at ``rows`` of the file from a batch that begins with row ``first``."""
        parts = []
        for feature in self._features:
            with self._reading():
                cells = batch.column(feature.name).take(self._arrow.array(rows - first))
            parts.append(self._numbers(feature, cells, rows, self._dtype))
        out = np.concatenate(parts, axis=1)
        stored = self._features[0].dtype
        if len(self._features) == 1 and are_images(stored, self._sample_shape, self._raw):
            out /= 255
        return out.reshape(len(rows), *self._sample_shape)

    def _reading(self) -> Any:
        return reading(
            self._path, KIND, self._arrow.ArrowException, ValueError, KeyError, UnicodeError
        )

    def _open(self) -> Any:
        from pyarrow import parquet

        with self._reading():
            if self._path.is_dir():  # pyarrow would say that it is damaged
                raise IsADirectoryError
            # texts stay references to the different ones: a long one that is repeated takes no more
            # than once
            return parquet.ParquetFile(
                self._path, pre_buffer=False, buffer_size=1 << 16, read_dictionary=self._texts
            )

    def _check_growth(self, facts: Any) -> None:
        """What the groups of rows say that they hold, against the size of the file."""
        # not by their columns: the facts of a damaged one end the process
        groups = [facts.row_group(at) for at in range(facts.num_row_groups)]
        width = 8 * sum(_values(field.type) for field in facts.schema.to_arrow_schema())
        size = sum(max(width * group.num_rows, group.total_byte_size) for group in groups)
        check_growth(self._path, "a table", size, self._path.stat().st_size)

    def _batches(
        self, columns: list[str], rows: np.ndarray, row_bytes: int
    ) -> Iterator[tuple[int, Any]]:
        """(first row, batch) of the groups that have any of ``rows``."""
        size, first = max(1, CHUNK // row_bytes), 0
        options = {"columns": columns, "use_threads": False}
        with self._open() as file, self._reading():
            for group in range(file.num_row_groups):
                end = first + file.metadata.row_group(group).num_rows
                lo, hi = np.searchsorted(rows, [first, end])
                batches = file.iter_batches(size, [group], **options) if lo < hi else ()
                at = first
                for batch in batches:
                    yield at, batch
                    at += len(batch)
                    if at > rows[hi - 1]:
                        break
                first = end

    def _largest(self, names: list[str]) -> dict[str, float]:
        """The largest size of the whole numbers of some columns."""
        found = dict.fromkeys(names, 0.0)
        for _, batch in self._batches(names, np.arange(self._n), 8 * len(names)) if names else ():
            for name in names:
                with self._reading():
                    ends = self._compute().min_max(self._decoded(batch.column(name))).as_py()
                sizes = [abs(float(end)) for end in ends.values() if end is not None]
                found[name] = max(found[name], *sizes, 0.0)
        return found

    def _decoded(self, cells: Any) -> Any:
        return cells.dictionary_decode() if self._arrow.types.is_dictionary(cells.type) else cells

    def _read_weights(self, field: Any) -> np.ndarray:
        feature, rows = self._feature(field, onehot=False), np.arange(self._n)
        if feature.lengths:
            raise InputError(
                f"weights must be numbers in {self._path}",
                f"column {field.name!r} of {field.type}",
                "Name another.",
            )
        parts, wide = [], np.dtype(np.float64)
        for first, batch in self._batches([field.name], rows, 8):
            here = rows[first : first + len(batch)]
            parts.append(self._numbers(feature, batch.column(field.name), here, wide))
        return np.concatenate(parts)[:, 0]

    def _read_labels(self, field: Any, own: dict[str, Any]) -> tuple[list[Any], tuple[Any, ...]]:
        """Names of rows; equal ones are one object, which saves memory."""
        types, name, labels = self._arrow.types, field.name, []
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_null)
        if not is_text(types, kind) and not any(test(kind) for test in tests):
            raise InputError(
                f"labels must be whole numbers or text in {self._path}",
                f"column {name!r} of {field.type}",
                "Convert it first.",
            )
        for _, batch in self._batches([name], np.arange(self._n), 8):
            with self._reading():
                cells = batch.column(name)
                cells = cells if types.is_dictionary(cells.type) else cells.dictionary_encode()
                names = cells.dictionary.to_pylist()
                codes = np.where(cells.is_valid(), cells.indices.fill_null(0), -1)
            if types.is_floating(kind):
                names = as_names(np.array(names, dtype=np.float64), self._path)
            labels += [None if code < 0 else names[code] for code in codes.tolist()]
        if "classes" not in own or name != (own.get("table", Table()).label or LABEL):
            return labels, class_names(labels)
        classes = tuple(own["classes"])
        stored = {dump_name(known) if own["json"] else known: known for known in classes}
        unknown = {label for label in labels if label is not None} - set(stored)
        if unknown:
            raise damaged(self._path, KIND, f"label {unknown.pop()!r} is not among its classes")
        return [None if label is None else stored[label] for label in labels], classes

    def _feature(self, field: Any, onehot: bool, known: Column | None = None) -> ParquetColumn:
        types, kind, lengths = self._arrow.types, field.type, []
        narrow = np.dtype(np.float32)
        if known is not None and not types.is_nested(kind):  # our own files name their categories
            return ParquetColumn(field.name, narrow, values=known.values, was=known.dtype)
        first = None
        while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            if first is None and not lengths:
                first = self._first(field.name)
            if type(first) is not list or not first:
                raise not_a_number(self._path, "row 0", field.name, None)
            lengths.append(len(first))
            kind, first = kind.value_type, first[0]
        was = "category" if types.is_dictionary(kind) else "text"
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            dtype = np.dtype(bool) if types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype())
            plain = narrow if dtype == np.float16 else dtype
            return ParquetColumn(field.name, plain, tuple(lengths), was=str(dtype))
        if types.is_decimal(kind):
            return ParquetColumn(field.name, np.dtype(np.float64), tuple(lengths))
        if is_text(types, kind) and not lengths:
            if onehot:
                return ParquetColumn(field.name, narrow, values=self._distinct(field.name), was=was)
            raise not_a_number(self._path, "row 0", field.name, self._first(field.name) or "text")
        if types.is_temporal(kind):
            raise refuse_dates(self._path, field.name, kind)
        raise InputError(
            f"features must be numbers in {self._path}",
            f"column {field.name!r} of {field.type}",
            "Convert it, or pass columns=[…].",
        )

    def _first(self, name: str) -> Any:
        batch = next(self._batches([name], np.zeros(1, np.int64), CHUNK), None)
        return None if batch is None else batch[1].column(name)[0].as_py()

    def _distinct(self, name: str) -> tuple[str, ...]:
        found: set[str] = set()
        for _, batch in self._batches([name], np.arange(self._n), 64):
            with self._reading():
                found |= set(batch.column(name).unique().to_pylist()) - {None}
            if len(found) > MOST_VALUES:
                break
        return category_values(self._path, name, found)

    def _shape(self, own: dict[str, Any]) -> tuple[tuple[int, ...], tuple[str, ...] | None]:
        """Of a sample, and the names of its features."""
        names = [name for feature in self._features for name in feature.names]
        if len(self._features) > 1 or not self._features[0].lengths:
            return (len(names),), tuple(names)
        shape = tuple(own.get("shape", ()))
        fits = shape and math.prod(shape) == len(names)
        return (shape if fits else self._features[0].lengths), None

    def _numbers(
        self, feature: ParquetColumn, cells: Any, rows: np.ndarray, dtype: np.dtype
    ) -> np.ndarray:
        """The cells of ``rows`` as (k, width) numbers."""
        compute = self._compute()
        per = 1
        for length in feature.lengths:
            self._check_null(feature, cells, rows, per)
            with self._reading():
                sizes = compute.list_value_length(cells).to_numpy(zero_copy_only=False)
            if (sizes != length).any():
                bad = int(np.argmax(sizes != length))
                raise InputError(
                    f"lists of column {feature.name!r} must have one length in {self._path}",
                    f"{sizes[bad]} in row {rows[bad // per]} where row 0 has {length}",
                    "Make all samples of one shape, or leave the column out: columns=[…].",
                )
            with self._reading():
                cells = cells.flatten()
            per *= length
        self._check_null(feature, cells, rows, per)
        if feature.values is not None:
            with self._reading():
                values = self._arrow.array(map(str, feature.values), "string")
                found = compute.index_in(cells.cast("string"), values).fill_null(-1)
                codes = found.to_numpy(zero_copy_only=False)
            if len(codes) and codes.min() < 0:
                why = f"a value of column {feature.name!r} is not among its categories"
                raise damaged(self._path, KIND, why)
            return np.eye(len(feature.values), dtype=dtype)[codes]
        with self._reading():
            cells = self._decoded(cells)
            if self._arrow.types.is_decimal(cells.type):
                cells = cells.cast("float64")
            with np.errstate(over="ignore"):
                numbers = cells.to_numpy(zero_copy_only=False).astype(dtype).reshape(len(rows), per)
        bad = np.argwhere(~np.isfinite(numbers))
        if len(bad):
            row, column = bad[0]
            number = float(numbers[row, column])
            raise not_a_number(self._path, f"row {rows[row]}", feature.names[column], number)
        return numbers

    def _check_null(self, feature: ParquetColumn, cells: Any, rows: np.ndarray, per: int) -> None:
        if cells.null_count:
            bad = int(np.argmax(cells.is_null().to_numpy(zero_copy_only=False)))
            raise not_a_number(self._path, f"row {rows[bad // per]}", feature.name, None)

    def _compute(self) -> Any:
        from pyarrow import compute

        return compute


def _values(kind: Any) -> int:
    """Numbers in a cell of a type: one, or as many as its lists are known to hold."""
    size = getattr(kind, "list_size", None)
    return 1 if size is None else size * _values(kind.value_type)

"""Parquet tables, read by pyarrow in batches of row groups: a column for each feature, or lists.

Our own files keep sample shape, column types and class names in the file's metadata."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from advect._util.atomic import atomic_file
from advect._util.checks import one_or_more
from advect.io.formats.arrow import TableSource, is_text
from advect.io.formats.content import Content
from advect.io.formats.guard import check_growth, damaged
from advect.io.formats.kinds import Table
from advect.io.formats.names import dump_name, pack_name, unpack_name
from advect.io.formats.table import LABEL, WEIGHT, data_frame, grid_names, layout

_KIND, _META = "a Parquet file", b"advect"
CHUNK = 1 << 22  # bytes of a batch


class ParquetSource(TableSource):
    """A table of numbers. A single column of lists of one length holds samples of that shape;
    uint8 lists of two or more axes are images."""

    def __init__(
        self,
        path: Path,
        *,
        categorical: str | None = None,
        dtype: str | None = None,
        **roles: Any,
    ) -> None:
        self.path, self._texts = path, []
        with self._open() as file:
            schema, n = file.schema_arrow, file.metadata.num_rows
            self._check_growth(file.metadata, schema)
        self._texts = [field.name for field in schema if is_text(field.type)]
        facts = json.loads((schema.metadata or {}).get(_META, b"{}"))
        table = Table.from_dict(facts["table"]) if "table" in facts else Table()
        stored = {"label": table.label, "weights": table.weights, "target": facts.get("targets")}
        for role, names in stored.items():
            if roles.get(role) is None and names and {*one_or_more(names)} <= {*schema.names}:
                roles[role] = names
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        columns = layout(path, schema.names, ignored=index, **roles)
        categories = {column.name: column for column in table.columns if column.values}
        options = {"categories": categories, "categorical": categorical, "dtype": dtype}
        super().__init__(path, schema, n, columns, **options)
        shape = tuple(facts.get("shape", ()))
        if any(type(size) is not int or size < 1 for size in shape):
            raise damaged(path, _KIND, f"its metadata says shape {shape}")
        if self.columns is None and math.prod(shape) == math.prod(self.shape):
            self.shape = shape
        if "classes" in facts and columns.label == (table.label or LABEL):
            self._name_classes(facts)

    def _name_classes(self, facts: dict[str, Any]) -> None:
        """Labels and classes by the names in the metadata."""
        self.classes = tuple(unpack_name(name) for name in facts["classes"])
        names = {dump_name(name) if facts["json"] else name: name for name in self.classes}
        if unknown := set(self.labels or ()) - names.keys() - {None}:
            raise damaged(self.path, _KIND, f"label {unknown.pop()!r} is not among its classes")
        self.labels = [names.get(label) for label in self.labels or ()]

    def _open(self) -> Any:
        if self.path.is_dir():
            raise IsADirectoryError
        # Text stays dictionary-encoded: a long text that is repeated is held once.
        options = {"pre_buffer": False, "buffer_size": 1 << 16}
        return parquet.ParquetFile(self.path, read_dictionary=self._texts, **options)

    def _check_growth(self, facts: Any, schema: Any) -> None:
        """Compare the size that the row groups declare with the size of the file."""
        # not by their columns: the statistics of a damaged one end the process
        groups = [facts.row_group(at) for at in range(facts.num_row_groups)]
        width = 8 * sum(_width(field.type) for field in schema)
        if facts.num_rows != sum(group.num_rows for group in groups):
            raise damaged(self.path, _KIND, "its row groups do not add up to its rows")
        size = sum(max(width * group.num_rows, group.total_byte_size) for group in groups)
        check_growth(self.path, "a table", size, self.path.stat().st_size)

    def _stream(self, names: list[str], rows: np.ndarray | None) -> Iterator[tuple[int, Any]]:
        """Batches of the row groups that hold any of ``rows``."""
        end = 0
        with self._open() as file:
            for group in range(file.num_row_groups):
                facts = file.metadata.row_group(group)
                first, end = end, end + facts.num_rows
                if rows is not None and np.equal(*np.searchsorted(rows, (first, end))):
                    continue
                bytes_of_row = max(8 * len(names), facts.total_byte_size // facts.num_rows)
                size = max(1, CHUNK // bytes_of_row)
                for batch in file.iter_batches(size, [group], names, use_threads=False):
                    batch.validate(full=True)  # a damaged index may lie outside its dictionary
                    yield first, batch.select(names)
                    first += len(batch)
                if first != end:
                    raise ValueError(f"rows are missing from row group {group}")


def _width(kind: Any) -> int:
    """Numbers in a cell: one, or the declared length of its lists."""
    size = getattr(kind, "list_size", None)
    return 1 if size is None else size * _width(kind.value_type)


def write_parquet(path: Path, content: Content) -> None:
    """A column for each feature, or one of lists for samples without column names."""
    table, names = content.table or Table(), content.columns
    label, weights = table.label or LABEL, table.weights or WEIGHT
    if names is None and content.targets is not None:
        names = grid_names(content.x.shape[1:])
    label_column = None if content.labels is None else label
    frame = data_frame(content, names or (), label_column, weights)
    cells = table.cells(names or (), content.x.reshape(len(content.x), -1)[:1])
    columns = tuple(column for _, _, column in cells if column is not None)
    facts: dict[str, Any] = {"shape": list(content.x.shape[1:])}
    facts["table"] = Table(columns, label, weights).to_dict()
    if content.targets is not None:
        facts["targets"] = list(content.target_columns or ())
    values = {name: pa.array(frame[name]) for name in frame if name != label_column}
    if names is None:
        flat = pa.array(np.ascontiguousarray(content.x).reshape(-1))
        values["x"] = pa.FixedSizeListArray.from_arrays(flat, math.prod(content.shape))
    if content.labels is not None:
        kind, labels = _arrow_type(content.classes), content.labels
        facts |= {"classes": [pack_name(name) for name in content.classes], "json": kind is None}
        if kind is None:
            labels = [None if name is None else dump_name(name) for name in labels]
        values[label] = pa.array(labels, kind or "string")
    stored = pa.table(values).replace_schema_metadata({_META: json.dumps(facts).encode()})
    with atomic_file(path) as temporary:
        parquet.write_table(stored, temporary, row_group_size=1 << 16)


def _arrow_type(names: tuple[Any, ...]) -> str | None:
    """The type of a column that keeps class names as they are; None if there is none."""
    kinds = {type(name) for name in names}
    if kinds <= {str}:  # no lone surrogates
        return "string" if all(n.encode("utf-8", "replace").decode() == n for n in names) else None
    if kinds == {int}:
        return "int64" if all(abs(name) < 2**63 for name in names) else None
    return "bool" if kinds == {bool} else None

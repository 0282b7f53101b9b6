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
from advect.io.formats.arrow import TableSource, is_text
from advect.io.formats.content import Content
from advect.io.formats.guard import check_growth, damaged, reading
from advect.io.formats.kinds import Table
from advect.io.formats.names import dump_name, pack_name, unpack_name
from advect.io.formats.table import (
    LABEL,
    WEIGHT,
    data_frame,
    grid_names,
    layout,
)

_KIND, _META = "a Parquet file", b"advect"
CHUNK = 1 << 22  # bytes of a batch


class ParquetSource(TableSource):
    """A table of numbers. A single column of lists of one length holds samples of that shape;
    uint8 lists of two or more axes are images."""

    def __init__(self, path: Path, **roles: Any) -> None:
        self.path, self._texts = path, []
        with self._open() as file:
            schema, n = file.schema_arrow, file.metadata.num_rows
            self._check_growth(file.metadata, schema)
            index = (schema.pandas_metadata or {}).get("index_columns", [])
            own = _own_facts(path, (schema.metadata or {}).get(_META))
        self._texts = [field.name for field in schema if is_text(field.type)]
        was: Table = own.get("table", Table())
        known = {column.name: column for column in was.columns if column.values}
        for role, names in (("label", was.label), ("weights", was.weights)):
            if names in schema.names:
                roles[role] = names if roles.get(role) is None else roles[role]
        if roles.get("target") is None and set(own.get("targets", [""])) <= set(schema.names):
            roles["target"] = own["targets"]
        place = layout(path, schema.names, ignored=index, **roles)
        super().__init__(path, self._blocks, schema, n, place, known, **roles)
        shape = tuple(own.get("shape", ()))
        if self.columns is None and math.prod(shape) == math.prod(self.shape):
            self.shape = shape
        named = None if self.table is None else self.table.label
        if "classes" in own and self.labels is not None and named == (was.label or LABEL):
            self._name_classes(own)

    def _name_classes(self, own: dict[str, Any]) -> None:
        """Labels and classes by the names in the metadata."""
        classes = tuple(own["classes"])
        names = {dump_name(name) if own["json"] else name: name for name in classes} | {None: None}
        if unknown := set(self.labels or ()) - names.keys():
            raise damaged(self.path, _KIND, f"label {unknown.pop()!r} is not among its classes")
        self.labels = [names[label] for label in self.labels or ()]
        self.classes = classes

    def _open(self) -> Any:
        with self._reading():
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

    def _blocks(self, names: list[str], rows: np.ndarray | None) -> Iterator[tuple[int, Any]]:
        """Batches of the row groups that hold any of ``rows``."""
        first = 0
        with self._open() as file:
            for group in range(file.num_row_groups):
                facts = file.metadata.row_group(group)
                end = first + facts.num_rows
                if rows is None or np.searchsorted(rows, first) < np.searchsorted(rows, end):
                    bytes_of_row = max(8 * len(names), facts.total_byte_size // facts.num_rows)
                    size, at = max(1, CHUNK // bytes_of_row), first
                    for batch in file.iter_batches(size, [group], names, use_threads=False):
                        batch.validate(full=True)  # a damaged index may lie outside its dictionary
                        yield at, batch.select(names)
                        at += len(batch)
                    if at != end:
                        raise ValueError(f"{at - first} rows where {end - first} are declared")
                first = end


def _width(kind: Any) -> int:
    """Numbers in a cell: one, or the declared length of its lists."""
    size = getattr(kind, "list_size", None)
    return 1 if size is None else size * _width(kind.value_type)


def _own_facts(path: Path, text: bytes | None) -> dict[str, Any]:
    """Shape, table, targets and classes from the metadata of our own files."""
    with reading(path, _KIND, ValueError, KeyError, TypeError, OverflowError, AttributeError):
        facts = {} if text is None else json.loads(text)
        own: dict[str, Any] = {"shape": [int(size) for size in facts.get("shape", ())]}
        if any(size < 1 for size in own["shape"]):
            raise ValueError(f"shape {own['shape']}")
        if "table" in facts:
            own["table"] = Table.from_dict(facts["table"])
        if "targets" in facts:
            own["targets"] = [str(name) for name in facts["targets"]]
        if "classes" in facts:
            own["classes"] = [unpack_name(name) for name in facts["classes"]]
            own["json"] = bool(facts["json"])
        return own


def write_parquet(path: Path, content: Content) -> None:
    """A column for each feature, or one of lists for samples without column names."""
    was, names = content.table or Table(), content.columns
    label, weights = was.label or LABEL, was.weights or WEIGHT
    if names is None and content.targets is not None:
        names = grid_names(content.x.shape[1:])
    own = None if content.labels is None else label
    frame = data_frame(content, names or (), own, weights)
    cells = was.cells(names or (), content.x.reshape(len(content.x), -1)[:1])
    kinds = tuple(one.column for one in cells if one.column is not None)
    facts: dict[str, Any] = {"shape": list(content.x.shape[1:])}
    facts["table"] = Table(kinds, label, weights).to_dict()
    if content.targets is not None:
        facts["targets"] = list(content.target_columns or ())
    values = {name: pa.array(frame[name]) for name in frame if name != own}
    if names is None:
        flat = pa.array(np.ascontiguousarray(content.x).reshape(-1))
        values["x"] = pa.FixedSizeListArray.from_arrays(flat, math.prod(content.shape))
    if content.labels is not None:
        kind, labels = _arrow_type(content.classes), content.labels
        facts |= {"classes": [pack_name(name) for name in content.classes], "json": kind is None}
        if kind is None:
            labels = [None if name is None else dump_name(name) for name in labels]
        values[label] = pa.array(labels, kind or "string")
    table = pa.table(values)
    table = table.replace_schema_metadata({_META: json.dumps(facts).encode()})
    with atomic_file(path) as temporary:
        parquet.write_table(table, temporary, row_group_size=1 << 16)


def _arrow_type(names: tuple[Any, ...]) -> str | None:
    """The type of a column that keeps class names as they are; None if there is none."""
    kinds = {type(name) for name in names}
    if kinds <= {str}:  # no lone surrogates
        return "string" if all(n.encode("utf-8", "replace").decode() == n for n in names) else None
    if kinds == {int}:
        return "int64" if all(abs(name) < 2**63 for name in names) else None
    return "bool" if kinds == {bool} else None

"""Parquet tables, read by pyarrow in batches of row groups: a column for each feature, or lists.

Our own files keep sample shape, column types and class names in the file's metadata."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from advect._util.atomic import atomic_file
from advect._util.checks import one_or_more
from advect.data.class_names import dump_name, pack_name, unpack_name
from advect.io.formats.arrow import is_text, table_content
from advect.io.formats.content import Content
from advect.io.formats.guard import check_growth, check_size, damaged
from advect.io.formats.table import LABEL, WEIGHT, Table, data_frame, grid_names, layout

_KIND, _META = "a Parquet file", b"advect"


def read_parquet(
    path: Path, *, categorical: str | None = None, dtype: str | None = None, **roles: Any
) -> Content:
    """A table of numbers. A single column of lists of one length holds samples of that shape;
    uint8 lists of two or more axes are images."""
    if path.is_dir():
        raise IsADirectoryError
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        schema, n = file.schema_arrow, file.metadata.num_rows
        _check_growth(path, file.metadata, schema)
    facts = json.loads((schema.metadata or {}).get(_META, b"{}"))
    own = Table.from_dict(facts["table"]) if "table" in facts else Table()
    stored = {"label": own.label, "weights": own.weights, "target": facts.get("targets")}
    for role, names in stored.items():
        if roles.get(role) is None and names and {*one_or_more(names)} <= {*schema.names}:
            roles[role] = names
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    columns = layout(path, schema.names, ignored=index, **roles)
    # Text stays dictionary-encoded: a long text that is repeated is held once.
    texts = [field.name for field in schema if is_text(field.type)]
    with parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts) as file:
        chosen = [name for name in schema.names if name in columns.used]
        table = file.read(chosen, use_threads=False).select(chosen)
    table.validate(full=True)  # a damaged index may lie outside its dictionary
    if len(table) != n:
        raise damaged(path, _KIND, f"{len(table)} rows where {n} are declared")
    categories = {column.name: column for column in own.columns if column.values}
    options = {"categories": categories, "categorical": categorical, "dtype": dtype}
    content = table_content(path, table, columns, **options)
    shape = tuple(facts.get("shape", ()))
    if any(type(size) is not int or size < 1 for size in shape):
        raise damaged(path, _KIND, f"its metadata says shape {shape}")
    if content.columns is None and math.prod(shape) == math.prod(content.shape):
        content = replace(content, x=content.x.reshape(n, *shape))
    if "classes" in facts and columns.label == (own.label or LABEL):
        classes = tuple(unpack_name(name) for name in facts["classes"])
        names = {dump_name(name) if facts["json"] else name: name for name in classes}
        if unknown := set(content.labels) - names.keys() - {None}:
            raise damaged(path, _KIND, f"label {unknown.pop()!r} is not among its classes")
        labels = [names.get(label) for label in content.labels]
        content = replace(content, labels=labels, classes=classes)
    return content


def _check_growth(path: Path, facts: Any, schema: Any) -> None:
    """Compare the size that the row groups declare with the size of the file."""
    # not by their columns: the statistics of a damaged one end the process
    groups = [facts.row_group(at) for at in range(facts.num_row_groups)]
    width = 8 * sum(_width(field.type) for field in schema)
    size = sum(max(width * group.num_rows, group.total_byte_size) for group in groups)
    check_growth(path, "a table", size, path.stat().st_size)
    check_size(path, size)


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

"""Datasets as Parquet tables: a column for each feature, or one of lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.atomic import atomic_file
from advect.data.formats.content import Content
from advect.data.formats.doubt import column_names
from advect.data.formats.kinds import Cells, Table
from advect.data.formats.names import dump_name, pack_name
from advect.data.formats.parquet_columns import META, pyarrow
from advect.data.formats.stored import CHUNK
from advect.data.formats.table import check_names, grid_names, special_names


def write_parquet(path: Path, content: Content) -> None:
    """Columns by name, or one column of lists; sample shape and class names go to the metadata."""
    arrow = pyarrow()
    from pyarrow import parquet

    facts: dict[str, Any] = {"shape": list(content.x.shape[1:])}
    was = content.table or Table()
    own, weight = special_names(content.columns or (), was.label, was.weights)
    check_names(path, content.columns or ())
    as_json = content.classes is not None and not _one_kind(content.classes)
    if content.classes is not None:
        facts |= {"classes": [pack_name(name) for name in content.classes], "json": as_json}
    x = content.x.reshape(len(content.x), -1)
    columns = content.columns
    if columns is None and content.targets is not None:
        columns = tuple(grid_names(content.x.shape[1:]))
    cells = None if columns is None else was.cells(columns, x)
    if cells is not None and content.targets is not None:
        aims = content.target_cells([one.name for one in cells])
        facts["targets"], cells = [one.name for one in aims], cells + aims
    kept = tuple(one.column for one in cells or () if one.column is not None)
    facts["table"] = Table(kept, own, weight).to_dict()

    shares = []
    if content.probabilities is not None:
        shares = column_names(content.classes or (), content.columns or ())

    def table(some: slice) -> Any:
        if cells is None:
            flat = arrow.array(np.ascontiguousarray(x[some]).reshape(-1))
            values = {"x": arrow.FixedSizeListArray.from_arrays(flat, x.shape[1])}
        else:
            values = {one.name: _arrow_cells(arrow, one, some) for one in cells}
        if content.labels is not None:
            labels = content.labels[some]
            if as_json:
                labels = [None if label is None else dump_name(label) for label in labels]
            values[own] = arrow.array(labels, "string" if as_json else _arrow_type(content))
        if content.weights is not None:
            values[weight] = arrow.array(content.weights[some].astype(np.float64))
        for at, name in enumerate(shares):
            assert content.probabilities is not None
            values[name] = arrow.array(content.probabilities[some, at])
        return arrow.table(values)

    step = max(1, 4 * CHUNK // (x.shape[1] * x.itemsize))
    schema = table(slice(0, 1)).schema.with_metadata({META: json.dumps(facts).encode()})
    with atomic_file(path) as beside, parquet.ParquetWriter(beside, schema) as writer:
        for at in range(0, len(x), step):
            writer.write_table(table(slice(at, at + step)).cast(schema))


def _arrow_cells(arrow: Any, cells: Cells, some: slice) -> Any:
    numbers = np.ascontiguousarray(cells.numbers[some])
    if cells.column is None or not cells.column.values:
        return arrow.array(numbers)
    values = arrow.DictionaryArray.from_arrays(
        arrow.array(numbers.astype(np.int32)), arrow.array(cells.column.values)
    )
    return values if cells.column.dtype == "category" else values.dictionary_decode()


def _one_kind(names: tuple[Any, ...]) -> bool:
    """Whether a column of Parquet keeps the names as they are."""
    kinds = {type(name) for name in names}
    if kinds <= {str}:  # no lone surrogates
        return all(name.encode("utf-8", "replace").decode() == name for name in names)
    return kinds == {bool} or (kinds == {int} and all(abs(name) < 2**63 for name in names))


def _arrow_type(content: Content) -> str:
    kinds = {type(name) for name in content.classes or ()}
    return "bool" if kinds == {bool} else "int64" if kinds == {int} else "string"

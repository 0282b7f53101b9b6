"""CSV and Parquet tables, read by pyarrow and written by pandas; CSV files may be compressed with gzip.

A table has a column for each feature. A Parquet file from another program may have columns of lists."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv, parquet

from advect._util import atomic_file, refuse_if
from advect.io.formats.arrow import is_number, is_text, table_content
from advect.io.formats.content import Content, without_missing
from advect.io.formats.guard import check_size, damaged, read_bytes
from advect.io.formats.table import (
    LABEL,
    WEIGHT,
    Table,
    data_frame,
    grid_names,
    layout,
    text_labels,
)

_CSV, _PARQUET = "a CSV table", "a Parquet file"
_LONGEST = 1 << 24  # characters of a row
_WIDEST = 1 << 20


def read_csv(
    path: Path,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    encoding: str = "utf-8-sig",
    categorical: str | None = None,
    dtype: str | None = None,
    missing: str | None = None,
    **roles: Any,
) -> Content:
    """A table of numbers. Labels are ints if all are whole numbers, else text without spaces
    around it; an empty cell is a missing label. ``true`` and ``false`` are 1 and 0."""
    refuse_if(
        delimiter is not None and (type(delimiter) is not str or len(delimiter) != 1),
        "delimiter must be one character",
        repr(delimiter),
        "Pass ',' or ';'.",
    )
    content = read_bytes(path, path.suffix == ".gz")
    check_size(path, 4 * len(content))
    text = content.decode(encoding)
    mark, names = _first_line(path, text, delimiter)
    refuse_if(
        header is None and all(map(is_number, names)),
        f"the first line must name the columns in {path}",
        mark.join(names[:8]),
        "Pass header=False if it is data, header=True if these are names.",
    )
    has_header = header is not False
    names = names if has_header else [str(position) for position in range(len(names))]
    columns = layout(path, names, **roles)
    table = _parse(text, mark, names, columns.label, has_header)
    last_row = table.slice(max(len(table) - 1, 0)).to_pylist()
    if text.count('"') % 2 and any("\n" in str(cell) for row in last_row for cell in row.values()):
        raise damaged(path, _CSV, "a quote is not closed before the end of the file")
    labels = None
    if columns.label is not None:
        labels = [label.strip() for label in table.column(columns.label).to_pylist()]
        as_label = text_labels(set(labels) - {""})
        labels = [as_label(label) if label else None for label in labels]
    options = {"categorical": categorical, "dtype": dtype, "labels": labels, "narrow": True}
    options["gaps"] = missing is not None
    read = table_content(path, table, columns, **options)
    read = read if has_header else replace(read, columns=None, table=None)
    return without_missing(read, missing)[0]


def _first_line(path: Path, text: str, delimiter: str | None) -> tuple[str, list[str]]:
    """The delimiter and the cells of the first line that is not empty."""
    marks = delimiter or ("\t" if ".tsv" in path.name else ",;\t")
    line = next(filter(str.strip, io.StringIO(text[:_LONGEST])), "")
    unquoted = re.sub('"[^"]*"', "", line)
    mark = max(marks, key=unquoted.count)
    refuse_if(
        not line or len(line) == _LONGEST or unquoted.count(mark) >= _WIDEST,
        f"a table needs a first line of less than {_LONGEST:,} characters "
        f"and at most {_WIDEST:,} columns",
        f"{unquoted.count(mark) + 1:,} columns in {path}",
        "Use .npz.",
    )
    return mark, [name.strip() for name in next(csv.reader([line], delimiter=mark))]


def _parse(text: str, mark: str, names: list[str], label: str | None, has_header: bool) -> Any:
    """The Arrow table; labels stay text."""
    options = arrow_csv.ReadOptions(
        use_threads=False,
        block_size=_LONGEST,
        column_names=names,
        skip_rows_after_names=int(has_header),
    )
    return arrow_csv.read_csv(
        pa.BufferReader(text.encode()),
        options,
        arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True),
        arrow_csv.ConvertOptions(column_types={} if label is None else {label: pa.string()}),
    )


def write_csv(path: Path, content: Content) -> None:
    """A header and a line for each sample."""
    mark = "\t" if ".tsv" in path.name else ","
    packed: Any = "gzip" if path.suffix == ".gz" else None
    with atomic_file(path) as temporary:
        _frame(content).to_csv(
            temporary, sep=mark, index=False, compression=packed, chunksize=10_000
        )


def write_parquet(path: Path, content: Content) -> None:
    """A column for each feature, and one for labels."""
    with atomic_file(path) as temporary:
        _frame(content).to_parquet(temporary, index=False)


def _frame(content: Content) -> Any:
    """The table to write. Classes without samples are not kept."""
    table, kinds = content.table or Table(), {type(name) for name in content.classes or ()}
    refuse_if(
        kinds not in (set(), {int}, {str}, {bool}),
        "class names must be text or whole numbers in a table",
        ", ".join(sorted(kind.__name__ for kind in kinds)),
        "Rename the classes, or save as .npz.",
    )
    names = content.columns or grid_names(content.x.shape[1:])
    label = None if content.labels is None else table.label or LABEL
    frame = data_frame(content, names, label, table.weights or WEIGHT)
    return frame if label is None else frame.astype({label: object})


def read_parquet(
    path: Path,
    *,
    categorical: str | None = None,
    dtype: str | None = None,
    missing: str | None = None,
    **roles: Any,
) -> Content:
    """A table of numbers. A single column of lists of one length holds samples of that shape;
    uint8 lists of two or more axes are images."""
    if path.is_dir():
        raise IsADirectoryError
    with parquet.ParquetFile(path, pre_buffer=False) as file:
        schema, n = file.schema_arrow, file.metadata.num_rows
        _check_size(path, file.metadata, schema)
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    columns = layout(path, schema.names, ignored=index, **roles)
    # Text stays dictionary-encoded: a long text that is repeated is held once.
    texts = [field.name for field in schema if is_text(field.type)]
    with parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts) as file:
        chosen = [name for name in schema.names if name in columns.used]
        table = file.read(chosen, use_threads=False).select(chosen)
    table.validate(full=True)  # a damaged index may lie outside its dictionary
    if len(table) != n:
        raise damaged(path, _PARQUET, f"{len(table)} rows where {n} are declared")
    options = {"categorical": categorical, "dtype": dtype, "gaps": missing is not None}
    return without_missing(table_content(path, table, columns, **options), missing)[0]


def _check_size(path: Path, facts: Any, schema: Any) -> None:
    """Refuse a table whose row groups declare more than fits into memory."""
    # not by their columns: the statistics of a damaged one end the process
    groups = [facts.row_group(at) for at in range(facts.num_row_groups)]
    width = 8 * sum(_width(field.type) for field in schema)
    check_size(path, sum(max(width * group.num_rows, group.total_byte_size) for group in groups))


def _width(kind: Any) -> int:
    """Numbers in a cell: one, or the declared length of its lists."""
    size = getattr(kind, "list_size", None)
    return 1 if size is None else size * _width(kind.value_type)

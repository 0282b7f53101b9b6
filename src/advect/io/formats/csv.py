"""CSV tables, read by pyarrow and written by pandas; also compressed with gzip."""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from advect._util.atomic import atomic_file
from advect._util.checks import refuse_if
from advect.errors import InputError
from advect.io.formats.arrow import is_number, table_content
from advect.io.formats.content import Content
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

_KIND = "a CSV table"
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
    **roles: Any,
) -> Content:
    """A table of numbers. Labels are ints if all are whole numbers, else text without spaces
    around it; an empty cell is a missing label. ``true`` and ``false`` are 1 and 0."""
    if delimiter is not None and (type(delimiter) is not str or len(delimiter) != 1):
        raise InputError("delimiter must be one character", repr(delimiter), "Pass ',' or ';'.")
    content = read_bytes(path, path.suffix == ".gz")
    check_size(path, 4 * len(content))
    try:
        text = content.decode(encoding)
    except LookupError:
        remedy = "Pass the name of one, such as 'utf-8' or 'latin-1'."
        raise InputError("unknown encoding", repr(encoding), remedy) from None
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
        raise damaged(path, _KIND, "a quote is not closed before the end of the file")
    labels = None
    if columns.label is not None:
        labels = [label.strip() for label in table.column(columns.label).to_pylist()]
        as_label = text_labels(set(labels) - {""})
        labels = [as_label(label) if label else None for label in labels]
    options = {"categorical": categorical, "dtype": dtype, "labels": labels, "narrow": True}
    read = table_content(path, table, columns, **options)
    return read if has_header else replace(read, columns=None, table=None)


def _first_line(path: Path, text: str, delimiter: str | None) -> tuple[str, list[str]]:
    """The delimiter and the cells of the first line that is not empty."""
    marks = delimiter or ("\t" if ".tsv" in path.name else ",;\t")
    rows = {mark: _first_row(text[:_LONGEST], mark) for mark in marks}
    mark = max(rows, key=lambda mark: len(rows[mark][0]))
    names, position = [name.strip() for name in rows[mark][0]], rows[mark][1]
    if not 0 < len(names) <= _WIDEST or position >= _LONGEST:
        what = f"a table needs a first line of less than {_LONGEST:,} characters"
        got = f"{len(names):,} columns in {path}"
        raise InputError(f"{what} and at most {_WIDEST:,} columns", got, "Use .npz.")
    return mark, names


def _first_row(text: str, mark: str) -> tuple[list[str], int]:
    """The cells of the first line that is not empty, and where it ends."""
    stream, row = io.StringIO(text, newline=""), []
    with suppress(csv.Error):  # for a cell that is too long
        row = next((row for row in csv.reader(stream, delimiter=mark) if row), [])
    return row, stream.tell()


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
    """A header and a line for each sample. Classes without samples are not kept."""
    table, kinds = content.table or Table(), {type(name) for name in content.classes or ()}
    refuse_if(
        kinds not in (set(), {int}, {str}, {bool}),
        "class names must be text or whole numbers in a CSV",
        ", ".join(sorted(kind.__name__ for kind in kinds)),
        "Rename the classes, or save as .npz or .parquet.",
    )
    names = content.columns or grid_names(content.x.shape[1:])
    label = None if content.labels is None else table.label or LABEL
    frame = data_frame(content, names, label, table.weights or WEIGHT)
    mark = "\t" if ".tsv" in path.name else ","
    packed: Any = "gzip" if path.suffix == ".gz" else None
    with atomic_file(path) as temporary:
        frame.to_csv(temporary, sep=mark, index=False, compression=packed, chunksize=10_000)

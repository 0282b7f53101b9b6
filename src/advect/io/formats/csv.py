"""CSV tables, read by pyarrow in blocks and written by pandas; also compressed with gzip.

Types of columns are inferred from the first block. A first pass counts rows and takes labels; a
second one reads the rows that are asked for."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyarrow import csv as arrow_csv

from advect._util.atomic import atomic_file
from advect.errors import InputError
from advect.io.formats.arrow import TableSource, is_number, pc
from advect.io.formats.content import Content
from advect.io.formats.guard import check_growth, damaged, reading
from advect.io.formats.kinds import Table
from advect.io.formats.table import (
    LABEL,
    WEIGHT,
    data_frame,
    grid_names,
    layout,
    text_labels,
)

_KIND = "a CSV table"
_LONGEST = 1 << 24  # bytes of a row: a compressed file without line ends would fill the memory
_WIDEST = 1 << 20


class CsvSource(TableSource):
    """A table of numbers. Labels are ints if all are whole numbers, else text without spaces
    around it; an empty cell is a missing label. ``true`` and ``false`` are 1 and 0."""

    def __init__(
        self,
        path: Path,
        *,
        header: bool | None = None,
        delimiter: str | None = None,
        encoding: str = "utf-8-sig",
        **roles: Any,
    ) -> None:
        if delimiter is not None and (type(delimiter) is not str or len(delimiter) != 1):
            raise InputError("delimiter must be one character", repr(delimiter), "Pass ',' or ';'.")
        self.path, self._encoding, self._header = path, encoding, header is not False
        self._delimiter, names = self._first_line(delimiter, header)
        place = layout(path, names, **roles)
        self._places, self._types = {name: at for at, name in enumerate(names)}, {}
        _, first = next(self._blocks(names, None), (0, None))
        if first is None:
            raise InputError("a table needs at least one row", f"none in {path}", "Add rows.")
        inferred = dict(zip(names, first.schema.types, strict=True))
        numbers = {pa.int64(), pa.float64(), pa.null()}  # later blocks may have fractions
        self._types = {k: pa.float64() if t in numbers else t for k, t in inferred.items()}
        if place.label is not None:
            self._types[names[place.label]] = pa.string()
        whole = [names[at] for at in place.features if inferred[names[at]] == pa.int64()]
        n, largest = self._scan(whole, names[place.features[0]])
        kinds = {k: pa.float32() if t == pa.float64() else t for k, t in self._types.items()}
        schema = pa.schema((kinds | dict.fromkeys(largest, pa.int64())).items())
        super().__init__(path, self._blocks, schema, n, place, largest=largest, **roles)
        was = self.table or Table()
        known = tuple(column for column in was.columns if column.dtype != "float32")
        self.table = Table(known, was.label, was.weights) if self._header else None
        self.columns = self.columns if self._header else None

    def _first_line(self, delimiter: str | None, header: bool | None) -> tuple[str, list[str]]:
        """The delimiter and the names of the columns."""
        try:
            with (
                self._opened() as file,
                io.TextIOWrapper(cast(Any, file), self._encoding, newline="") as text,
            ):
                lines = iter(lambda: text.readline(_LONGEST), "")
                line = next((line for line in lines if line.strip("\r\n")), "")
                while line.count('"') % 2 and len(line) < _LONGEST and (more := next(lines, "")):
                    line += more
        except LookupError:
            remedy = "Pass the name of one, such as 'utf-8' or 'latin-1'."
            raise InputError("unknown encoding", repr(self._encoding), remedy) from None
        marks = delimiter or ("\t" if ".tsv" in self.path.name else ",;\t")
        with reading(self.path, _KIND, csv.Error):
            csv.field_size_limit(_LONGEST)
            found = {m: next(csv.reader(io.StringIO(line), delimiter=m), []) for m in marks}
        mark = max(found, key=lambda mark: len(found[mark]))
        names = [name.strip() for name in found[mark]]
        if not 0 < len(names) <= _WIDEST or len(line) >= _LONGEST:
            what = f"a table needs a first line of less than {_LONGEST:,} characters"
            got = f"{len(names):,} columns in {self.path}"
            raise InputError(f"{what} and at most {_WIDEST:,} columns", got, "Use .npz.")
        if not self._header:
            return mark, [str(position) for position in range(len(names))]
        if header is None and all(map(is_number, names)):
            what = f"the first line must name the columns in {self.path}"
            remedy = "Pass header=False if it is data, header=True if these are names."
            raise InputError(what, mark.join(names[:8]), remedy)
        return mark, names

    def _scan(self, whole: list[str], any_column: str) -> tuple[int, dict[str, float]]:
        """The number of rows, and the largest absolute value of columns of whole numbers."""
        n, largest = 0, dict.fromkeys(whole, 0.0)
        for first, batch in self._blocks(whole or [any_column], None):
            n = first + len(batch)
            for name, cells in zip(whole, batch.columns, strict=False):
                if name in largest and pc.all(pc.equal(pc.floor(cells), cells)).as_py() is False:
                    del largest[name]
                elif name in largest:
                    ends = [abs(end) for end in pc.min_max(cells).as_py().values() if end]
                    largest[name] = max(largest[name], *ends, 0.0)
        return n, largest

    def _read_labels(self, name: str) -> list[Any]:
        texts = [label.strip() for label in super()._read_labels(name)]
        distinct = set(texts) - {""}
        how = text_labels(distinct)
        names = {text: how(text) for text in distinct}
        return [names.get(text) for text in texts]

    def _blocks(self, names: list[str], rows: object) -> Iterator[tuple[int, Any]]:
        """Batches of some columns. Columns are called by their positions here."""
        own, first, tail = [str(self._places[name]) for name in names], 0, None
        kinds = {str(self._places[name]): kind for name, kind in self._types.items()}
        with self._opened() as file:
            reader = arrow_csv.open_csv(
                file,
                arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=_LONGEST,
                    column_names=[str(at) for at in range(len(self._places))],
                    skip_rows_after_names=int(self._header),
                    encoding="utf8" if self._encoding == "utf-8-sig" else self._encoding,
                ),
                arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(include_columns=own, column_types=kinds),
            )
            for batch in reader:
                if len(batch):
                    yield first, batch
                    first, tail = first + len(batch), batch.slice(len(batch) - 1)
            last = [] if tail is None else [str(column[0]) for column in tail.columns]
            if file.quotes % 2 and any("\n" in cell for cell in last):
                raise damaged(self.path, _KIND, "a quote is not closed before the end of the file")

    @contextmanager
    def _opened(self) -> Iterator[_Bytes]:
        packed = self.path.suffix == ".gz"
        with (
            reading(self.path, _KIND, pa.ArrowException, UnicodeError, ValueError),
            gzip.open(self.path) if packed else open(self.path, "rb") as file,
        ):
            yield _Bytes(file, self.path, packed)


class _Bytes(io.RawIOBase):
    """The bytes of a file, decompressed within a bound; it counts quotes."""

    def __init__(self, file: Any, path: Path, packed: bool) -> None:
        self._file, self._path, self._done, self.quotes = file, path, 0, 0
        self._packed = path.stat().st_size if packed else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._done += len(data)
        self.quotes += data.count(b'"')
        if self._packed is not None:
            check_growth(self._path, "text", self._done, self._packed)
        return len(data)


def write_csv(path: Path, content: Content) -> None:
    """A header and a line for each sample. Classes without samples are not kept."""
    was, kinds = content.table or Table(), {type(name) for name in content.classes or ()}
    if kinds not in (set(), {int}, {str}, {bool}):
        got = ", ".join(sorted(kind.__name__ for kind in kinds))
        remedy = "Rename the classes, or save as .npz or .parquet."
        raise InputError("class names must be text or whole numbers in a CSV", got, remedy)
    names = content.columns or grid_names(content.x.shape[1:])
    label = None if content.labels is None else was.label or LABEL
    frame = data_frame(content, names, label, was.weights or WEIGHT)
    mark, packed = "\t" if ".tsv" in path.name else ",", path.suffix == ".gz"
    options = {"compression": "gzip" if packed else None, "chunksize": 10_000}
    with atomic_file(path) as temporary:
        frame.to_csv(temporary, sep=mark, index=False, **options)

"""Tables of text: CSV with commas, semicolons or tabs, also compressed; read line by line.

The whole file is gone through once to count its rows and take their labels, and once more for the
rows that are asked for."""

from __future__ import annotations

import codecs
import csv
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from advect.data.formats.content import Advance, Source, check_rows, class_names, quiet
from advect.data.formats.doubt import Asked, labels_of, probability_columns, set_aside
from advect.data.formats.guard import damaged, empty, reading
from advect.data.formats.kinds import EXACT, Column, Table, warn_rounded
from advect.data.formats.lines import WORDS, Lines, number_in, open_text
from advect.data.formats.names import load_name
from advect.data.formats.table import (
    JSON,
    LABEL,
    MOST_VALUES,
    Key,
    category_values,
    check_categorical,
    check_dtype,
    check_names,
    grid_shape,
    layout,
    not_a_number,
    text_labels,
)
from advect.errors import InputError

_KIND = "a table of text"
_BLOCK = 1024
_LONG = 8  # characters of a whole number that float32 may not hold
_WIDEST = 1 << 20


class CsvSource(Source):
    """A table of numbers with a header; one column may hold labels, one weights.

    Labels are ints if every one is written as one, else text without the spaces around it (a
    warning says where that makes two classes one); an empty cell is a missing label. ``true`` and
    ``false`` are 1 and 0.

    Args:
        path: the file; compressed if its name ends in ``.gz``.
        label: name or position of the column of labels; None takes one called ``label``, False
            none.
        weights: name or position of the column of weights; None takes one called ``sample_weight``,
            False none.
        columns: names or positions of the features; None for all other columns.
        header: whether the first line names the columns; None says yes, but a line of numbers is an
            error.
        delimiter: by default whichever of comma, semicolon and tab splits the first line most.
        categorical: ``"onehot"`` turns each column of text into a column ``name=value`` for each of
            its values.
        dtype: ``"float32"`` or ``"float64"``; by default float64 if a column of whole numbers has
            some from 2²⁴ on, which float32 would round.
        encoding: of the text.
        probabilities: for labels with doubt, names or positions of the columns with the probabilities
            of the classes, which are then the classes' names; or what their names begin with, and
            classes are called by the rest. None takes columns ``probability[…]``, False none.

    Raises:
        InputError: a file that cannot be used; the message gives row and column.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "pets.csv")
        ...     _ = path.write_text("weight,kind\\n4.5,cat\\n20,dog\\n3,\\n")
        ...     source = CsvSource(path, label="kind")
        ...     print(source.labels, source.columns, source.read().tolist())
        ['cat', 'dog', None] ('weight',) [[4.5], [20.0], [3.0]]
    """

    def __init__(
        self,
        path: Path,
        *,
        label: Key | bool | None = None,
        weights: Key | bool | None = None,
        columns: Sequence[Key] | None = None,
        header: bool | None = None,
        delimiter: str | None = None,
        categorical: str | None = None,
        dtype: str | None = None,
        encoding: str = "utf-8-sig",
        probabilities: Asked = None,
    ) -> None:
        self._path, self._encoding = path, encoding
        self._wanted = check_dtype(dtype)
        self._dtype = self._wanted or np.dtype(np.float32)
        onehot = check_categorical(categorical)
        bad = type(delimiter) is not str or len(delimiter) != 1 or delimiter in '"\r\n'
        if delimiter is not None and bad:
            raise InputError(
                "delimiter must be one character", repr(delimiter), "Pass ',', ';' or '\\t'."
            )
        try:
            codecs.lookup(encoding)
        except (LookupError, TypeError):
            raise InputError(
                "unknown encoding",
                repr(encoding),
                "Pass the name of one, such as 'utf-8' or 'latin-1'.",
            ) from None
        self._header = header is not False
        self._delimiter, self._names = self._first_line(delimiter, header)
        key = self._label_column(label)
        self._doubt, classes = probability_columns(path, self._names, probabilities)
        ignored = set_aside(self._names, self._doubt, probabilities)
        self._layout = layout(path, self._names, key, weights, columns, ignored=ignored)
        at = self._layout.label
        as_json = at is not None and (key != label or self._names[at] == f"{LABEL}{JSON}")
        self._n, texts, self.weights, kinds = self._scan()
        if self._n == 0:
            raise InputError(
                "a table needs at least one row", f"none in {path}", "Add rows under the header."
            )
        if texts is not None and self._layout.label is not None:
            self.labels = self._read_labels(texts, as_json)
            self.classes = class_names(self.labels)
        if self.probabilities is not None:
            self.labels = labels_of(path, self.probabilities, self.labels, classes)
            self.classes = classes
        self._values = self._categories() if onehot else {}
        self._out = [name for at in self._layout.features for name in self._encoded(at)]
        self._shape = grid_shape(self._out) if self._header else None
        if not self._shape and (self._header or self._values):
            self.columns = tuple(self._out)
        special = [
            None if at is None or not self._header else self._names[at]
            for at in (self._layout.label, self._layout.weights)
        ]
        special[0] = special[0].removesuffix(JSON) if special[0] and as_json else special[0]
        kinds |= {at: Column(self._names[at], "text", some) for at, some in self._values.items()}
        kept = [] if self.columns is None else [kinds[at] for at in sorted(kinds)]
        self.table = Table(tuple(kept), *special)

    def __len__(self) -> int:
        return self._n

    def read(self, rows: np.ndarray | None = None, advance: Advance = quiet) -> np.ndarray:
        return self._take(enumerate(self._records()), check_rows(rows, self._n), advance)

    def blocks(self, size: int, advance: Advance = quiet) -> Iterator[np.ndarray]:
        records = enumerate(self._records())
        for first in range(0, self._n, size):
            yield self._take(records, np.arange(first, min(first + size, self._n)), advance)

    def _take(
        self,
        records: Iterator[tuple[int, tuple[int, list[str]]]],
        rows: np.ndarray,
        advance: Advance,
    ) -> np.ndarray:
        """The numbers of ``rows``; of ``records`` no more is used than up to the last of these."""
        out = empty(self._path, _KIND, (len(rows), len(self._out)), self._dtype)
        done, lines, wanted = 0, [], iter(rows.tolist())
        row = next(wanted)
        for at, (line, cells) in records:
            if at != row:
                continue
            lines.append((row, line))
            with np.errstate(over="ignore"):
                out[done] = self._numbers(cells, row, line)
            done, row = done + 1, next(wanted, None)
            if len(lines) == _BLOCK or row is None:
                self._check_finite(out[done - len(lines) : done], lines)
                advance(len(lines))
                lines = []
            if row is None:
                break
        if row is not None:
            raise damaged(self._path, _KIND, "it has become shorter")
        return out if self._shape is None else out.reshape(len(out), *self._shape)

    def _first_line(self, delimiter: str | None, header: bool | None) -> tuple[str, list[str]]:
        splits: dict[str, list[str]] = {}
        trouble = None
        for mark in delimiter or ("\t" if ".tsv" in self._path.name else ",;\t"):
            try:
                splits[mark] = next((cells for _, cells in self._lines(mark)), [])
            except InputError as error:  # quotes may end elsewhere than this mark would have them
                trouble = trouble or error
        if not splits and trouble is not None:
            raise trouble
        mark = max(splits, key=lambda mark: len(splits[mark]))
        names = [name.strip() for name in splits[mark]]
        if len(names) > _WIDEST:
            raise InputError(
                f"a table must have at most {_WIDEST:,} columns",
                f"{len(names):,} in {self._path}",
                "Keep it as .npz.",
            )
        if not names:
            raise InputError(
                "a table needs a first line",
                f"nothing in {self._path}",
                "Write a header and rows of numbers.",
            )
        if not self._header:
            return mark, [str(position) for position in range(len(names))]
        if header is None and all(number_in(name) is not None for name in names):
            raise InputError(
                f"the first line must name the columns in {self._path}",
                mark.join(names[:8]),
                "Pass header=False if it is data, header=True if these are names.",
            )
        check_names(self._path, names)
        return mark, names

    def _lines(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """(number, cells) of each line that is not blank."""
        with reading(self._path, _KIND):
            file = open_text(self._path, "r", self._encoding)
        with file:
            lines = Lines(file, self._path)
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            try:
                with reading(self._path, _KIND, csv.Error):
                    for cells in reader:
                        lines.held = 0
                        if cells:
                            yield reader.line_num, cells
            except UnicodeError as error:
                raise InputError(
                    f"not {self._encoding.removesuffix('-sig')} text",
                    f"{self._path}, after line {reader.line_num} ({error})",
                    "Save it as UTF-8, or name its encoding=….",
                ) from None

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of each row."""
        lines, width = self._lines(self._delimiter), len(self._names)
        if self._header:
            next(lines, None)
        for line, cells in lines:
            if len(cells) != width:
                raise InputError(
                    f"every row must have {width} cells in {self._path}",
                    f"{len(cells)} in line {line}",
                    "Check delimiters and quotes there.",
                )
            yield line, cells

    def _label_column(self, label: Key | bool | None) -> Key | bool | None:
        """Where the labels are: in ``kind:json`` where text in ``kind`` would be ambiguous."""
        own = f"{LABEL if label is None else label}{JSON}"
        return own if own in self._names and (label is None or label not in self._names) else label

    def _scan(self) -> tuple[int, list[str] | None, np.ndarray | None, dict[int, Column]]:
        """Count of rows, labels, weights, kinds of columns; equal labels are one object."""
        y, w, n = self._layout.label, self._layout.weights, 0
        wholes = words = list(self._layout.features)
        seen: dict[str, str] = {}
        wide: dict[int, float] = {}
        labels: list[str] = []
        weights: list[float] = []
        shares: list[list[float]] = []
        for line, cells in self._records():
            if y is not None:
                if cells[y] not in seen:
                    seen[cells[y]] = sys.intern(cells[y].strip())
                labels.append(seen[cells[y]])
            if w is not None:
                weight = number_in(cells[w])
                if weight is None or not math.isfinite(weight):
                    raise InputError(
                        f"weights must be numbers in {self._path}",
                        f"{cells[w]!r} in line {line}, column {self._names[w]!r}",
                        "Fill it in, or pass weights=False.",
                    )
                weights.append(weight)
            if self._doubt:
                shares.append(self._probabilities(cells, line))
            wholes = _still_whole(wholes, cells)
            words = [at for at in words if cells[at].strip().lower() in WORDS]
            if max(map(len, cells)) >= _LONG:
                for at in wholes:
                    wide[at] = max(wide.get(at, 0.0), abs(number_in(cells[at]) or 0.0))
            n += 1
        _warn_merged(self._path, seen)
        self.probabilities = np.array(shares) if shares else None
        self._widen({self._names[at]: most for at, most in wide.items() if at in wholes})
        kinds = dict.fromkeys(wholes, "int64") | dict.fromkeys(words, "bool")
        columns = {at: Column(self._names[at], dtype) for at, dtype in kinds.items()} if n else {}
        return n, None if y is None else labels, None if w is None else np.array(weights), columns

    def _probabilities(self, cells: list[str], line: int) -> list[float]:
        found = [number_in(cells[at]) for at in self._doubt]
        for at, number in zip(self._doubt, found, strict=True):
            if number is None or not math.isfinite(number):
                raise InputError(
                    f"probabilities must be numbers in {self._path}",
                    f"{cells[at]!r} in line {line}, column {self._names[at]!r}",
                    "Fill it in, or pass probabilities=False.",
                )
        return [number for number in found if number is not None]

    def _widen(self, wide: dict[str, float]) -> None:
        """float64, unless asked for another, if float32 would round the largest of a column."""
        if self._wanted is None and any(most >= EXACT["float32"] for most in wide.values()):
            self._dtype = np.dtype(np.float64)
        warn_rounded(self._path, wide, self._dtype)

    def _read_labels(self, texts: list[str], as_json: bool) -> list[Any]:
        distinct = {text for text in texts if text}
        if as_json:
            with reading(self._path, _KIND, ValueError, KeyError, TypeError):
                names: dict[str, Any] = {text: load_name(text) for text in distinct}
        else:
            how = text_labels(distinct)
            names = {text: how(text) for text in distinct}
        return [names.get(text) for text in texts]

    def _categories(self) -> dict[int, tuple[str, ...]]:
        """The values of each column of text: one pass finds the columns, one their values."""
        numeric = set(self._layout.features)
        for _, cells in self._records():
            numeric -= {at for at in numeric if cells[at].strip() and number_in(cells[at]) is None}
        others = [at for at in self._layout.features if at not in numeric]
        found: dict[int, set[str]] = {at: set() for at in others}
        if found:
            for _, cells in self._records():
                for at, values in found.items():
                    if cells[at].strip() and len(values) <= MOST_VALUES:
                        values.add(cells[at].strip())
        return {
            at: category_values(self._path, self._names[at], values) for at, values in found.items()
        }

    def _encoded(self, at: int) -> list[str]:
        name = self._names[at]
        return [f"{name}={value}" for value in self._values[at]] if at in self._values else [name]

    def _numbers(self, cells: list[str], row: int, line: int) -> list[float]:
        if not self._values and "_" not in "".join(cells):
            with suppress(ValueError):
                return [float(cells[at]) for at in self._layout.features]
        numbers: list[float] = []
        for at in self._layout.features:
            cell = cells[at]
            if at in self._values and cell.strip():
                numbers += [float(value == cell.strip()) for value in self._values[at]]
                continue
            number = number_in(cell)
            if number is None:
                where = f"row {row} (line {line})"
                raise not_a_number(self._path, where, self._names[at], cell.strip())
            numbers.append(number)
        return numbers

    def _check_finite(self, block: np.ndarray, lines: list[tuple[int, int]]) -> None:
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            (row, line), name = lines[bad[0][0]], self._out[int(bad[0][1])]
            where = f"row {row} (line {line})"
            raise not_a_number(self._path, where, name, float(block[tuple(bad[0])]))


def _warn_merged(path: Path, seen: dict[str, str]) -> None:
    """Say which labels differ in spaces alone; ``seen`` has each cell and its text."""
    cells: dict[str, list[str]] = {}
    for cell, text in seen.items():
        if text:
            cells.setdefault(text, []).append(cell)
    merged = [", ".join(map(repr, found)) for found in cells.values() if len(found) > 1]
    if merged:
        more = f" and {len(merged) - 3} more" if len(merged) > 3 else ""
        warnings.warn(
            f"labels of {path} that differ in spaces alone are one class: "
            f"{'; '.join(merged[:3])}{more}",
            stacklevel=5,
        )


def _still_whole(wholes: list[int], cells: list[str]) -> list[int]:
    """Columns with a whole number in this row too; one look at all of them is fast."""
    if not wholes or "".join([cells[at] for at in wholes]).replace("-", "").isdecimal():
        return wholes
    return [at for at in wholes if cells[at].strip().removeprefix("-").isdecimal()]

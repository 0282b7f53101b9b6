"""Datasets as tables of text, in cells that come back to the last bit."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advect._util.atomic import atomic_file
from advect.data.formats.content import Content
from advect.data.formats.doubt import column_names
from advect.data.formats.kinds import Cells, Table
from advect.data.formats.lines import number_in, open_text
from advect.data.formats.names import dump_name
from advect.data.formats.table import JSON, LABEL, grid_names, special_names, text_labels
from advect.errors import InputError

_BLOCK = 1024


def write_csv(path: Path, content: Content) -> None:
    """A header and a line for each sample; numbers are written so that they come back to the last
    bit.

    Classes without samples are not kept.
    """
    x, table = content.x.reshape(len(content.x), -1), content.table or Table()
    given = grid_names(content.x.shape[1:]) if content.columns is None else content.columns
    columns = table.cells(given, x)
    columns += content.target_cells([column.name for column in columns])
    names = [column.name for column in columns]
    as_json = f"{table.label or LABEL}{JSON}"
    own, weight = special_names(names, table.label, table.weights, f"{LABEL}{JSON}", as_json)
    if any(name != name.strip() or not name or not name.isprintable() for name in names):
        raise InputError(
            "names of columns must be plain text in a table",
            names[:8],
            "Rename them, or save as .npz.",
        )
    labels, weights, shares = content.labels, content.weights, content.probabilities
    held = {name for name in labels if name is not None} if labels is not None else set()
    as_text = _plain_names(held)
    cells = {name: str(name) if as_text else dump_name(name) for name in held}
    names += [] if labels is None else [own if as_text else as_json]
    names += [] if weights is None else [weight]
    names += [] if shares is None else column_names(content.classes or (), names)
    if all(number_in(name) is not None for name in names):
        raise InputError(
            "names of columns must not all be numbers in a table",
            names[:8],
            "Rename them, or save as .npz.",
        )
    delimiter = "\t" if ".tsv" in path.name else ","
    with atomic_file(path) as beside, open_text(beside, "w", "utf-8", path.suffix == ".gz") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(names)
        for row, line in enumerate(_written(columns)):
            if labels is not None:
                line.append("" if labels[row] is None else cells[labels[row]])
            line += [] if weights is None else [float(weights[row])]
            writer.writerow(line if shares is None else [*line, *shares[row].tolist()])


def _written(columns: list[Cells]) -> Iterator[list[Any]]:
    """The cells of each row, a block at a time."""
    for first in range(0, len(columns[0].numbers), _BLOCK):
        block = [_texts(one, one.numbers[first : first + _BLOCK].tolist()) for one in columns]
        yield from map(list, zip(*block, strict=True))


def _texts(cells: Cells, numbers: list[Any]) -> list[Any]:
    if cells.column is not None and cells.column.values:
        return [cells.column.values[code] for code in numbers]
    if cells.numbers.dtype == bool:
        return ["true" if value else "false" for value in numbers]
    return numbers


def _plain_names(names: set[Any]) -> bool:
    """Whether names come back from text: whole numbers, or texts that are not all such."""
    if all(type(name) is int for name in names):
        return True
    texts = all(type(name) is str for name in names)
    plain = texts and all(name and name == name.strip() and name.isprintable() for name in names)
    return plain and text_labels(names) is str

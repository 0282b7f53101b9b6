"""Lines of text, of bounded length, from plain and compressed files; and the number in a cell."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast

from advect.data.formats.guard import check_growth
from advect.errors import InputError

# characters of a row: four million numbers, or what an unpacked file without line ends would fill
_LONGEST = 1 << 24
WORDS = {"true": 1.0, "false": 0.0}


class Lines:
    """Lines of bounded length: each one, and all that quotes join to one row (``held``)."""

    def __init__(self, file: IO[str], path: Path) -> None:
        self.held = self._done = 0
        self._file, self._path = file, path
        self._packed = path.stat().st_size if path.suffix == ".gz" else None

    def __iter__(self) -> Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(_LONGEST)
        self.held += len(line)
        self._done += len(line)
        if self.held >= _LONGEST:
            raise InputError(
                f"a row of a table must have less than {_LONGEST:,} characters",
                f"more in {self._path}",
                "Check its line ends and quotes; very wide samples are better kept as .npz.",
            )
        if self._packed is not None:
            check_growth(self._path, "text", self._done, self._packed)
        if not line:
            raise StopIteration
        return line


def number_in(cell: str) -> float | None:
    """The number that a cell is written as; None for other text."""
    try:
        return None if "_" in cell else float(cell)  # Python also reads 1_000
    except ValueError:
        return WORDS.get(cell.strip().lower())


def open_text(path: Path, mode: str, encoding: str, packed: bool | None = None) -> IO[str]:
    """A text file, compressed where its name ends in ``.gz`` unless ``packed`` says otherwise."""
    if path.suffix == ".gz" if packed is None else packed:
        return cast(IO[str], gzip.open(path, f"{mode}t", encoding=encoding, newline=""))
    return open(path, mode, encoding=encoding, newline="")

"""An array in a file, gathered by rows without reading it whole: memory-mapped where its bytes lie
plain, streamed otherwise.

What the array means, and where it starts, is for the file formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from advect.data.formats.content import (
    Advance,
    Source,
    are_images,
    check_rows,
    number_dtype,
    quiet,
)
from advect.data.formats.guard import check_growth, damaged, empty, reading
from advect.data.formats.kinds import warn_rounded
from advect.errors import InputError

CHUNK = 1 << 22  # bytes held at once besides the rows that were asked for
_DEFLATE = 1032  # the most that deflate can shrink


@dataclass(frozen=True)
class Stored:
    """An array ``place`` bytes into the file, if it lies plain, or ``start`` into ``stream()``."""

    path: Path
    kind: str
    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    place: int | None = None
    stream: Callable[[], IO[bytes]] | None = None
    fortran: bool = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def check_length(self, held: int) -> None:
        """``held`` bytes must be what the header says: found out before any memory is taken."""
        if held != self.start + self.nbytes:
            why = f"{self.name} says {self.shape} {self.dtype}, {self.start + self.nbytes} bytes, where {held} are"
            raise damaged(self.path, self.kind, why)

    def check_ratio(self, packed: int) -> None:
        """No ``packed`` bytes can hold more than deflate's best ratio, and few should."""
        if self.nbytes > _DEFLATE * packed:
            why = f"{self.name} says {self.shape} {self.dtype} in {packed} compressed bytes"
            raise damaged(self.path, self.kind, why)
        check_growth(self.path, self.name, self.nbytes, packed)

    def whole(self) -> np.ndarray:
        """All numbers, as stored."""
        if not self.shape:
            return replace(self, shape=(1,)).whole()[0]
        out = empty(self.path, self.kind, self.shape, self.dtype.newbyteorder("="))
        if out.size:
            self.gather(np.arange(len(out)), out, quiet)
        return out

    def gather(self, rows: np.ndarray, out: np.ndarray, advance: Advance) -> None:
        """The numbers of ``rows``, increasing, into ``out``."""
        some = self.place is not None and len(rows) < self.shape[0]
        if some or self.stream is None:  # of the whole, a stream compares checksums
            self._mapped(rows, out, advance)
        elif self.fortran and len(self.shape) > 1:
            self._by_columns(rows, out, advance)
        else:
            done = 0
            for first, block in self._blocks(self.shape, int(rows[-1])):
                upto = int(np.searchsorted(rows, first + len(block)))
                out[done:upto] = block[rows[done:upto] - first]
                advance(upto - done)
                done = upto

    @property
    def seeks(self) -> bool:
        """Whether any rows can be read without those before them."""
        return self.place is not None or self.stream is None

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """All rows in their order, at most ``size`` at a time; for arrays that do not seek."""
        last = self.shape[0] - 1
        if self.fortran and len(self.shape) > 1:  # the first row ends at the end of the file
            whole = self.whole()
            yield from (whole[at : at + size] for at in range(0, len(whole), size))
            return
        for _, block in self._blocks(self.shape, last):
            yield from (block[at : at + size] for at in range(0, len(block), size))

    def _mapped(self, rows: np.ndarray, out: np.ndarray, advance: Advance) -> None:
        with reading(self.path, self.kind, ValueError):
            order = "F" if self.fortran else "C"
            numbers = np.memmap(self.path, self.dtype, "r", self.place or 0, self.shape, order)
        step = self._step(self.shape)
        for at in range(0, len(rows), step):
            out[at : at + step] = numbers[rows[at : at + step]]
            advance(len(rows[at : at + step]))

    def _by_columns(self, rows: np.ndarray, out: np.ndarray, advance: Advance) -> None:
        """In Fortran order a file is the transposed array, row after row."""
        n, *rest = self.shape
        turned = np.empty((math.prod(rest), len(rows)), out.dtype)
        for first, block in self._blocks((len(turned), n), len(turned) - 1):
            turned[first : first + len(block)] = block[:, rows]
        out[...] = turned.reshape(*rest[::-1], len(rows)).T
        advance(len(rows))

    def _blocks(self, shape: tuple[int, ...], last: int) -> Iterator[tuple[int, np.ndarray]]:
        assert self.stream is not None
        with reading(self.path, self.kind):
            file = self.stream()
        with file:
            self._exactly(file, self.start)
            step = self._step(shape)
            for first in range(0, last + 1, step):
                some = (min(step, shape[0] - first), *shape[1:])
                data = self._exactly(file, math.prod(some) * self.dtype.itemsize)
                if first + step >= shape[0]:
                    self._ends(file)
                yield first, np.frombuffer(data, self.dtype).reshape(some)

    def _exactly(self, file: IO[bytes], count: int) -> bytes:
        with reading(self.path, self.kind):
            data = file.read(count)
        if len(data) < count:
            raise damaged(self.path, self.kind, f"{self.name} ends early")
        return data

    def _ends(self, file: IO[bytes]) -> None:
        with reading(self.path, self.kind):  # the last read also compares the checksum
            more = file.read(1)
        if more:
            raise damaged(self.path, self.kind, f"{self.name} is longer than its header says")

    def _step(self, shape: tuple[int, ...]) -> int:
        return max(1, CHUNK // max(1, math.prod(shape[1:]) * self.dtype.itemsize))


class StoredSource(Source):
    """Features in arrays that follow one another in files; ``raw`` keeps the bytes of images."""

    _parts: list[Stored]
    _raw: bool

    def __len__(self) -> int:
        return sum(part.shape[0] for part in self._parts)

    def read(self, rows: np.ndarray | None = None, advance: Advance = quiet) -> np.ndarray:
        return read_parts(self._parts, rows, self._raw, advance)

    def blocks(self, size: int, advance: Advance = quiet) -> Iterator[np.ndarray]:
        return read_blocks(self._parts, size, self._raw, advance)


def check_parts(parts: list[Stored]) -> None:
    """Features in one or more arrays of one kind, with at least one sample and one number each."""
    for part in parts:
        if not part.shape or math.prod(part.shape) == 0:
            raise InputError(
                f"{part.name} must hold at least one sample and one number",
                f"shape {part.shape} in {part.path}",
                "Store an array (n, …).",
            )
        number_dtype(part.dtype, f"{part.name} of {part.path}")
        if (part.shape[1:], part.dtype) != (parts[0].shape[1:], parts[0].dtype):
            raise InputError(
                "both splits must have samples of one shape and dtype",
                f"{parts[0].shape[1:]} {parts[0].dtype} and {part.shape[1:]} {part.dtype} in "
                f"{part.path}",
                "Read them one by one with split='train' and split='test'.",
            )


def read_parts(
    parts: list[Stored], rows: np.ndarray | None, raw: bool, advance: Advance
) -> np.ndarray:
    """Features of rows of arrays that follow one another; bytes of images from 0 to 1."""
    rows = check_rows(rows, sum(part.shape[0] for part in parts))
    dtype, sample = parts[0].dtype, parts[0].shape[1:]
    path, kind = parts[0].path, parts[0].kind
    out = empty(path, kind, (len(rows), *sample), number_dtype(dtype, path))
    first = done = 0
    for part in parts:
        upto = int(np.searchsorted(rows, first + part.shape[0]))
        if upto > done:
            part.gather(rows[done:upto] - first, out[done:upto], advance)
        first, done = first + part.shape[0], upto
    return _scaled(out, dtype, raw, parts[0].path)


def read_blocks(
    parts: list[Stored], size: int, raw: bool, advance: Advance
) -> Iterator[np.ndarray]:
    """Features of all rows as ``read_parts`` gives them, at most ``size`` at a time."""
    for part in parts:
        if part.seeks:
            for at in range(0, part.shape[0], size):
                rows = np.arange(at, min(at + size, part.shape[0]))
                yield read_parts([part], rows, raw, advance)
            continue
        dtype = number_dtype(part.dtype, part.path)
        for block in part.blocks(size):
            yield _scaled(block.astype(dtype), part.dtype, raw, part.path)
            advance(len(block))


def _scaled(out: np.ndarray, dtype: np.dtype, raw: bool, where: object) -> np.ndarray:
    if are_images(dtype, out.shape[1:], raw):
        out /= 255
    if dtype.kind in "iu" and dtype.itemsize >= 4 and out.size:
        warn_rounded(where, {"x": float(np.abs(out).max())}, out.dtype)
    return out if out.ndim > 1 else out[:, None]

"""The interface of costs C (n, m): rows, sums and the kernel, whatever holds the entries."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from advect.errors import InputError
from advect.ot.kernel import Kernel
from advect.ot.plan import Index, Maybe

ENTRIES = 8_000_000  # numbers in a block: enough rows for an efficient product
LEAST_ROWS, _BLOCKS_AT_ONCE = 16, 16


class Cost(ABC):
    """A cost matrix C (n, m), in memory or not; ``room`` is the memory that a solver may use, in bytes."""

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
        room: int | None = None,
    ) -> None:
        self.shape, self.dtype, self.device, self.room = shape, dtype, device, room
        self._extremes: tuple[float, float] | None = None

    @abstractmethod
    def rows(self, index: Index, columns: Maybe = None, out: Maybe = None) -> Tensor:
        """Rows at ``index``, at some or all columns; read-only unless written into ``out``."""

    @abstractmethod
    def select(self, rows: Tensor, columns: Tensor) -> Cost:
        """The cost between some rows and some columns, by position."""

    @abstractmethod
    def mean(self, a: Tensor, b: Tensor) -> float:
        """Σ a_i b_j C_ij."""

    @abstractmethod
    def kernel(self, dtype: torch.dtype | None = None, room: int | None = None) -> Kernel:
        """The kernel exp((f ⊕ g − C)/ε) in this dtype; ``room`` overrides the memory it may use."""

    def extremes(self) -> tuple[float, float]:
        """Least and largest entry, found once; raises an error if an entry is not finite."""
        if self._extremes is None:
            notes = Extremes()
            for block in self.blocks():
                notes.add(self.rows(block))
            self.note(notes)
        assert self._extremes is not None
        return self._extremes

    def note(self, notes: Extremes) -> None:
        """Store extremes that a pass has found."""
        least, most = torch.stack(notes.found()).tolist()
        self._extremes = check_extremes(least, most)

    def largest_on_diagonal(self) -> float:
        """The largest ``|C_ii|`` of a square cost."""
        return max(
            float(self.rows(block)[:, block].diagonal().abs().max()) for block in self.blocks()
        )

    def bytes(self, dtype: torch.dtype | None = None) -> int:
        """The size of the whole matrix."""
        return self.shape[0] * self.shape[1] * (dtype or self.dtype).itemsize

    @property
    def block_rows(self) -> int:
        """Rows in a block, so that a few blocks fit into the room at once."""
        entries = ENTRIES
        if self.room is not None:
            entries = min(entries, self.room // (_BLOCKS_AT_ONCE * self.dtype.itemsize))
        return min(self.shape[0], max(LEAST_ROWS, entries // self.shape[1]))

    def blocks(self, rows: int | None = None) -> Iterator[slice]:
        """Slices of rows that cover the matrix."""
        n, rows = self.shape[0], rows or self.block_rows
        return (slice(start, min(start + rows, n)) for start in range(0, n, rows))

    def seconds(self) -> float:
        """Estimated time of a pass over all rows, from one block."""
        block = next(self.blocks())
        self.rows(block)
        start = time.perf_counter()
        self.rows(block)
        return (time.perf_counter() - start) * self.shape[0] / (block.stop - block.start)

    def dense(self) -> Tensor:
        """The whole matrix, read-only."""
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for block in self.blocks():
            self.rows(block, out=out[block])
        return out

    def within(self, limit: int) -> Cost:
        """The same cost for a solver that may use so many bytes."""
        return self

    @property
    def matrix(self) -> Tensor | None:
        """The matrix, if it is in memory."""
        return None

    @property
    def reports(self) -> bool:
        """Whether this process issues the warnings about this problem."""
        return True

    def release(self) -> None:
        """Free what rows are computed from, until they are needed again."""
        return


def check_extremes(least: float, most: float) -> tuple[float, float]:
    """Both extremes, if they are finite."""
    if not (math.isfinite(least) and math.isfinite(most)):
        remedy = "Check the features and the cost function."
        raise InputError("the cost must be finite", "NaN or infinite entries", remedy)
    return least, most


class Extremes:
    """Least and largest entry of several blocks, with one transfer from the device."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, part: Tensor) -> None:
        self._parts.append(torch.stack(torch.aminmax(part)))

    def found(self) -> tuple[Tensor, Tensor]:
        pairs = torch.stack(self._parts)
        return pairs[:, 0].min(), pairs[:, 1].max()

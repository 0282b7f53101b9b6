"""What a transport problem costs, C (n, m): the matrix in memory, rows made on demand, or rows on
several ranks.

A solver asks a ``Cost`` for rows, sums and its kernel, and never what kind it is. Solvers accept a
plain matrix too: ``advect.ot.blocks.as_cost`` wraps it once, at the door.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from advect._util.facts import Numbers
from advect.errors import InputError
from advect.ot.kernel import Kernel
from advect.ot.plan import Index, Maybe

ENTRIES = 8_000_000  # numbers in a block: enough rows for an efficient product
LEAST_ROWS, _BLOCKS_AT_ONCE = 16, 16


class Labels(Protocol):
    """``values[codes_i, codes_j]`` for a pair of samples."""

    @property
    def values(self) -> Tensor: ...

    @property
    def codes(self) -> tuple[Tensor, Tensor]: ...


class Points(Protocol):
    """A cost ½‖x_i − y_j‖² and what labels cost, as what it is made of."""

    @property
    def x(self) -> Tensor: ...

    @property
    def y(self) -> Tensor: ...

    @property
    def labels(self) -> Labels | None: ...


class Cost(ABC):
    """A cost matrix C (n, m), in memory or not.

    Attributes:
        shape, dtype, device: of the matrix.
        room: bytes that a solver may keep in matrices of its own; None where it may see itself.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
        room: int | None = None,
    ) -> None:
        self.shape, self.dtype, self.device, self.room = shape, dtype, device, room
        self._extremes: tuple[float, float] | None = None
        self.beside = Numbers(lambda: ())  # what is fetched along with the extremes

    @abstractmethod
    def rows(self, index: Index, columns: Maybe = None, out: Maybe = None) -> Tensor:
        """The rows at ``index``, at some columns or all; written into ``out`` if given, else not to
        be written to.
        """

    @abstractmethod
    def select(self, rows: Tensor, columns: Tensor) -> Cost:
        """The cost between some rows and some columns, given by positions."""

    @abstractmethod
    def mean(self, a: Tensor, b: Tensor) -> float:
        """Σ a_i b_j C_ij."""

    @abstractmethod
    def kernel(self, dtype: torch.dtype | None = None, room: int | None = None) -> Kernel:
        """exp((f ⊕ g − C)/ε) as products, in this dtype; ``room`` overrides how much is kept."""

    def extremes(self) -> tuple[float, float]:
        """Least and largest entry: a pass over the rows, once; an error if one is no number."""
        if self._extremes is None:
            notes = Extremes()
            for block in self.blocks():
                notes.add(self.rows(block))
            self.note(notes)
        assert self._extremes is not None
        return self._extremes

    def note(self, notes: Extremes) -> None:
        """Keep extremes that a pass has found; entries that are no numbers end the solve here."""
        least, most = self.beside.along(*notes.found())
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
        """Rows in a block: a few of them fit into the room at once, beside a matrix if that
        fits.
        """
        entries = ENTRIES
        if self.room is not None:
            entries = min(entries, self.room // (_BLOCKS_AT_ONCE * self.dtype.itemsize))
        return min(self.shape[0], max(LEAST_ROWS, entries // self.shape[1]))

    def blocks(self, rows: int | None = None) -> Iterator[slice]:
        """Slices of rows that cover the matrix."""
        n, rows = self.shape[0], rows or self.block_rows
        return (slice(start, min(start + rows, n)) for start in range(0, n, rows))

    def seconds(self) -> float:
        """How long a pass over all rows takes, from one block."""
        block = next(self.blocks())
        self.rows(block)
        start = time.perf_counter()
        self.rows(block)
        return (time.perf_counter() - start) * self.shape[0] / (block.stop - block.start)

    def dense(self) -> Tensor:
        """The whole matrix, not to be written to."""
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for block in self.blocks():
            self.rows(block, out=out[block])
        return out

    def within(self, limit: int) -> Cost:
        """The same for a solver that may keep so many bytes beside it."""
        return self

    @property
    def matrix(self) -> Tensor | None:
        """The matrix, where it is in memory anyway."""
        return None

    @property
    def points(self) -> Points | None:
        """The points whose half squared distances these are, where that is known."""
        return None

    @property
    def reports(self) -> bool:
        """Whether this process is the one that warns of this problem."""
        return True

    def release(self) -> None:
        """Let go of what rows are made of until they are asked for again."""
        return


def check_extremes(least: float, most: float) -> tuple[float, float]:
    """Least and largest cost, both finite."""
    if not (math.isfinite(least) and math.isfinite(most)):
        remedy = "Check the features and the cost function."
        raise InputError("the cost must be finite", "NaN or infinite entries", remedy)
    return least, most


class Extremes:
    """Least and largest entry of what is added, without waiting for the device at each block."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, part: Tensor) -> None:
        self._parts.append(torch.stack(torch.aminmax(part)))

    def found(self) -> tuple[Tensor, Tensor]:
        pairs = torch.stack(self._parts)
        return pairs[:, 0].min(), pairs[:, 1].max()

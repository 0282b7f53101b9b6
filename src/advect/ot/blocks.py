"""A cost matrix (n, m) that is computed in blocks of rows, for problems whose matrices do not fit
into memory.

The solver asks for rows, uses them and forgets them; ``room`` says how many bytes it may keep
beside, so that it holds the whole matrix, or its kernel, where that fits (``advect.ot.kernel``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from advect._util.memory import readable
from advect.errors import InputError

Index = slice | Tensor
_ENTRIES = 8_000_000  # numbers in a block: enough rows for an efficient product
_LEAST_ROWS, _BLOCKS_AT_ONCE = 16, 16


class Rows(Protocol):
    """What makes rows of a cost matrix."""

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        """The rows at ``rows``, at some columns or all, new or written into ``out``; the caller may
        overwrite them.
        """
        ...

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j C_ij, without the matrix where there is a formula."""
        ...


class BlockedCost:
    """An (n, m) cost matrix by blocks of rows.

    Args:
        open_rows: prepares what rows are made of (copies of features, say) and returns the maker.
            It is called on first use, and again after ``release``, so that problems solved one
            after the other do not keep their preparations.
        shape, dtype, device: of the matrix.
        room: bytes that a solver may keep in matrices of its own.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 300)[:, None]
        >>> cost = ad.ot.BlockedCost.of(lambda rows: (x[rows] - x.T).square() / 2, (300, 300), room=0)
        >>> blocked = ad.Sinkhorn(epsilon=0.01).solve(cost)          # no 300 × 300 matrix is kept
        >>> dense = ad.Sinkhorn(epsilon=0.01).solve((x - x.T).square() / 2)
        >>> abs(blocked.value - dense.value) < 1e-6
        True
    """

    def __init__(
        self,
        open_rows: Callable[[], Rows],
        shape: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
        room: int,
    ) -> None:
        self.shape, self.dtype, self.device, self.room = shape, dtype, device, room
        self._open: Callable[[], Rows] = open_rows
        self._rows: Rows | None = None
        self._extremes: tuple[float, float] | None = None

    @classmethod
    def of(
        cls,
        make: Callable[[Index], Tensor],
        shape: tuple[int, int],
        *,
        room: int,
        like: Tensor | None = None,
    ) -> BlockedCost:
        """The cost whose rows ``make`` computes; dtype and device are those of ``like``, float32 on
        the CPU by default.
        """
        like = torch.empty(0) if like is None else like
        return cls(lambda: _Made(make, like.dtype), shape, like.dtype, like.device, room)

    @property
    def ndim(self) -> int:
        return 2

    def numel(self) -> int:
        return self.shape[0] * self.shape[1]

    @staticmethod
    def least(m: int, dtype: torch.dtype) -> int:
        """Bytes of room below which not even a block of the fewest rows fits."""
        return 4 * _LEAST_ROWS * m * dtype.itemsize

    def bytes(self, dtype: torch.dtype | None = None) -> int:
        """The size of the whole matrix."""
        return self.numel() * (dtype or self.dtype).itemsize

    @property
    def block_rows(self) -> int:
        """Rows in a block: a few of them fit into the room at once, beside a matrix if that
        fits.
        """
        entries = min(_ENTRIES, self.room // (_BLOCKS_AT_ONCE * self.dtype.itemsize))
        return min(self.shape[0], max(_LEAST_ROWS, entries // self.shape[1]))

    def blocks(self, rows: int | None = None) -> Iterator[slice]:
        """Slices of rows that cover the matrix."""
        rows = rows or self.block_rows
        return (
            slice(start, min(start + rows, self.shape[0]))
            for start in range(0, self.shape[0], rows)
        )

    @property
    def maker(self) -> Rows:
        """What makes rows."""
        if self._rows is None:
            self._rows = self._open()
        return self._rows

    def rows(
        self, index: Index, out: Tensor | None = None, columns: Tensor | None = None
    ) -> Tensor:
        """The rows at ``index``, written into ``out`` if given; they may be overwritten."""
        return self.maker(index, out, columns)

    def mean(self, a: Tensor, b: Tensor) -> float:
        """Σ a_i b_j C_ij."""
        return float(self.maker.mean(a, b))

    def extremes(self) -> tuple[float, float]:
        """Least and largest entry; a pass over the rows unless one was noted on the way."""
        if self._extremes is None:
            notes = Extremes()
            for block in self.blocks():
                notes.add(self.rows(block))
            self.note(notes)
        assert self._extremes is not None
        return self._extremes

    def note(self, notes: Extremes) -> None:
        """Keep extremes that a pass has found; entries that are no numbers end the solve here."""
        least, most = notes.values()
        if not (math.isfinite(least) and math.isfinite(most)):
            raise InputError(
                "the cost must be finite",
                "NaN or infinite entries",
                "Check the features and the cost function.",
            )
        self._extremes = least, most

    def dense(self) -> Tensor:
        """The whole matrix."""
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for block in self.blocks():
            self.rows(block, out[block])
        return out

    def select(self, rows: Tensor, columns: Tensor) -> BlockedCost:
        """The cost between some rows and some columns, given by positions."""
        shape = (len(rows), len(columns))
        return BlockedCost(
            lambda: _Selected(self, rows, columns), shape, self.dtype, self.device, self.room
        )

    def seconds(self) -> float:
        """How long a pass over all rows takes, from one block."""
        block = next(self.blocks())
        self.rows(block)
        start = time.perf_counter()
        self.rows(block)
        return (time.perf_counter() - start) * self.shape[0] / (block.stop - block.start)

    def release(self) -> None:
        """Let go of what rows are made of until they are asked for again."""
        self._rows = None

    def __repr__(self) -> str:
        n, m = self.shape
        return f"BlockedCost({n} × {m}, {readable(self.bytes())} as a matrix, {readable(self.room)} of room)"


def in_blocks(cost: Tensor | BlockedCost) -> BlockedCost:
    """A cost as blocks of rows; of a matrix, nothing is kept."""
    if isinstance(cost, BlockedCost):
        return cost
    return BlockedCost.of(
        lambda rows: cost[rows], (cost.shape[0], cost.shape[1]), room=cost.nbytes, like=cost
    )


class Extremes:
    """Least and largest entry of what is added, without waiting for the device at each block."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, part: Tensor) -> None:
        self._parts.append(torch.stack(torch.aminmax(part)))

    def values(self) -> tuple[float, float]:
        pairs = torch.stack(self._parts)
        least, most = torch.stack([pairs[:, 0].min(), pairs[:, 1].max()]).tolist()
        return least, most


@dataclass(frozen=True, eq=False)
class _Made:
    """Rows by a function of one's own."""

    make: Callable[[Index], Tensor]
    dtype: torch.dtype

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        made = self.make(rows).to(self.dtype)
        made = made if columns is None else made.index_select(1, columns)
        return (
            made.clone() if out is None else out.copy_(made)
        )  # it may be a view of what is not ours

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        step = max(1, _ENTRIES // len(b))
        blocks = (slice(start, start + step) for start in range(0, len(a), step))
        return torch.stack(
            [
                a[block] @ (self.make(block).to(self.dtype) @ b.to(self.dtype)).double()
                for block in blocks
            ]
        ).sum()


@dataclass(frozen=True, eq=False)
class _Selected:
    """Some rows and columns of another cost."""

    cost: BlockedCost
    at_rows: Tensor
    at_columns: Tensor

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        columns = self.at_columns if columns is None else self.at_columns[columns]
        return self.cost.rows(self.at_rows[rows], out, columns)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        whole_a, whole_b = (a.new_zeros(size) for size in self.cost.shape)
        whole_a[self.at_rows], whole_b[self.at_columns] = a, b
        return a.new_tensor(self.cost.mean(whole_a, whole_b))

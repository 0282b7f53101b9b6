"""Costs C (n, m): a matrix in memory, or rows that are computed in blocks on demand."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from advect._util import check_finite, readable, refuse_if
from advect.ot.kernel import Kernel, RowKernel, check_extremes
from advect.ot.plan import Index, Maybe

ENTRIES = 8_000_000  # numbers in a block: enough rows for an efficient product
_LEAST_ROWS, _BLOCKS_AT_ONCE = 16, 16


@dataclass(eq=False)
class Cost(ABC):
    """A cost matrix C (n, m), in memory or not.

    Attributes:
        shape, dtype, device: of the matrix.
        room: bytes that a solver may use for matrices, or None for no limit.
        matrix: the matrix, if it is in memory.
        reports: whether this process issues the warnings about this problem.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device
    room: int | None = None
    matrix: Any = field(default=None, init=False)
    reports: bool = field(default=True, init=False)
    _extremes: tuple[float, float] | None = field(default=None, init=False)

    @abstractmethod
    def rows(self, index: Index, columns: Maybe = None, out: Maybe = None) -> Tensor:
        """Rows at ``index``, at some or all columns; read-only unless written into ``out``."""

    @abstractmethod
    def select(self, rows: Tensor, columns: Tensor) -> Cost:
        """The cost between some rows and some columns, by position."""

    @abstractmethod
    def mean(self, a: Tensor, b: Tensor) -> float:
        """Σ a_i b_j C_ij."""

    def kernel(self, dtype: torch.dtype | None = None, room: int | None = None) -> Kernel:
        """The kernel exp((f ⊕ g − C)/ε) in this dtype; ``room`` overrides the memory it may use."""
        return RowKernel(self, dtype, room)

    def extremes(self) -> tuple[float, float]:
        """Least and largest entry, found once; raises an error if an entry is not finite."""
        if self._extremes is None:
            ends = [torch.stack(torch.aminmax(self.rows(block))) for block in self.blocks()]
            self._extremes = check_extremes(torch.stack(ends))
        return self._extremes

    def blocks(self) -> Iterator[slice]:
        """Slices of rows that cover the matrix, so many that a few blocks fit into the room."""
        n, m = self.shape
        room = math.inf if self.room is None else self.room
        entries = int(min(ENTRIES, room // (_BLOCKS_AT_ONCE * self.dtype.itemsize)))
        rows = max(_LEAST_ROWS, entries // m)
        return (slice(start, min(start + rows, n)) for start in range(0, n, rows))

    def dense(self) -> Tensor:
        """The whole matrix, read-only."""
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for block in self.blocks():
            self.rows(block, out=out[block])
        return out

    def release(self) -> None:
        """Free what rows are computed from, until they are needed again."""
        return


class DenseCost(Cost):
    """A cost that is a matrix in memory."""

    def __init__(self, matrix: Tensor, room: int | None = None) -> None:
        super().__init__((matrix.shape[0], matrix.shape[1]), matrix.dtype, matrix.device, room)
        self.matrix = matrix

    def rows(self, index: Index, columns: Maybe = None, out: Maybe = None) -> Tensor:
        rows = self.matrix[index]
        rows = rows if columns is None else rows[:, columns]
        return rows if out is None else out.copy_(rows)

    def select(self, rows: Tensor, columns: Tensor) -> DenseCost:
        return DenseCost(self.matrix[rows][:, columns], self.room)

    def mean(self, a: Tensor, b: Tensor) -> float:
        return float(a.double() @ (self.matrix @ b.to(self.dtype)).double())

    def extremes(self) -> tuple[float, float]:
        if self._extremes is None:
            ends = torch.stack(torch.aminmax(self.matrix))
            least, most = ends.tolist()
            finite = math.isfinite(least) and math.isfinite(most)
            self._extremes = (least, most) if finite else check_extremes(ends[None])
        return self._extremes

    def dense(self) -> Tensor:
        return self.matrix


def as_cost(cost: Any) -> Cost:
    """A ``Cost`` as it is, or a matrix of finite numbers as a ``DenseCost``."""
    if isinstance(cost, Cost):  # its entries are checked when they are computed
        return cost
    matrix = torch.as_tensor(cost)
    refuse_if(
        matrix.ndim != 2 or matrix.numel() == 0,
        "a cost must be a matrix (n, m) with n, m > 0",
        f"shape {tuple(matrix.shape)}",
        "Pass one entry for each pair.",
    )
    if matrix.dtype not in (torch.float32, torch.float64):
        matrix = matrix.to(torch.float32)
    matrix = matrix.detach()
    check_finite("the cost", matrix, "Check the features and the cost function.")
    return DenseCost(matrix)


class Rows(ABC):
    """Computes rows of a cost matrix."""

    @abstractmethod
    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        """The rows at ``rows``, at some or all columns, new or in ``out``; the caller may overwrite them."""

    @abstractmethod
    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j C_ij, without the matrix where there is a formula."""


class BlockedCost(Cost):
    """A cost matrix (n, m) that is computed in blocks of rows, for problems that do not fit into memory.

    Args:
        open_rows: prepares the data of the rows and returns their maker. Called on first use, and
            again after ``release``.
        shape, dtype, device: of the matrix.
        room: bytes that a solver may use for matrices.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 300)[:, None]
        >>> cost = BlockedCost.of(lambda rows: (x[rows] - x.T).square() / 2, (300, 300), room=0)
        >>> blocked = ad.Sinkhorn(epsilon=0.01).solve(cost)          # no 300 × 300 matrix is stored
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
        super().__init__(shape, dtype, device, room)
        self._open, self._rows = open_rows, None

    @classmethod
    def of(
        cls,
        make: Callable[[Index], Tensor],
        shape: tuple[int, int],
        *,
        room: int,
        like: Tensor | None = None,
    ) -> BlockedCost:
        """The cost whose rows ``make`` computes, in the dtype and on the device of ``like``."""
        like = torch.empty(0) if like is None else like
        return cls(lambda: _Made(make, like.dtype), shape, like.dtype, like.device, room)

    @staticmethod
    def least(m: int, dtype: torch.dtype) -> int:
        """Bytes below which not even the smallest block fits."""
        return 4 * _LEAST_ROWS * m * dtype.itemsize

    @property
    def _maker(self) -> Rows:
        if self._rows is None:
            self._rows = self._open()
        return self._rows

    def rows(self, index: Index, columns: Maybe = None, out: Maybe = None) -> Tensor:
        return self._maker(index, out, columns)

    def mean(self, a: Tensor, b: Tensor) -> float:
        return float(self._maker.mean(a.double(), b.double()))

    def select(self, rows: Tensor, columns: Tensor) -> BlockedCost:
        def selected() -> Rows:
            return _Selected(self, rows, columns)

        shape = (len(rows), len(columns))
        return BlockedCost(selected, shape, self.dtype, self.device, self.room or 0)

    def release(self) -> None:
        self._rows = None

    def __repr__(self) -> str:
        n, m = self.shape
        size, room = readable(n * m * self.dtype.itemsize), readable(self.room or 0)
        return f"BlockedCost({n} × {m}, {size} as a matrix, {room} of room)"


@dataclass(frozen=True, eq=False)
class _Made(Rows):
    """Rows computed by a user's function."""

    make: Callable[[Index], Tensor]
    dtype: torch.dtype

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        made = self.make(rows).to(self.dtype)
        made = made if columns is None else made.index_select(1, columns)
        # it may be a view of the user's data
        return made.clone() if out is None else out.copy_(made)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        step = max(1, ENTRIES // len(b))
        blocks = (slice(start, start + step) for start in range(0, len(a), step))
        own = b.to(self.dtype)
        parts = [a[block] @ (self.make(block).to(self.dtype) @ own).double() for block in blocks]
        return torch.stack(parts).sum()


@dataclass(frozen=True, eq=False)
class _Selected(Rows):
    """Some rows and columns of another cost."""

    cost: BlockedCost
    at_rows: Tensor
    at_columns: Tensor

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        columns = self.at_columns if columns is None else self.at_columns[columns]
        return self.cost.rows(self.at_rows[rows], columns, out)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        whole_a, whole_b = (a.new_zeros(size) for size in self.cost.shape)
        whole_a[self.at_rows], whole_b[self.at_columns] = a, b
        return a.new_tensor(self.cost.mean(whole_a, whole_b))

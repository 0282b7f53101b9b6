"""The kernel of a cost of one process, in blocks of rows.

It stores what fits: costs and K; or one matrix, which holds the costs while ε is annealed and K
afterwards; or nothing, and each pass computes the rows again. A cost that is given as a matrix is
never written to. Blocks are small enough that exponentials are taken in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from advect.ot.certificate import is_small
from advect.ot.cost import Cost, Extremes
from advect.ot.kernel import ColumnSums, Kernel, fill_kernel, softmin
from advect.ot.plan import Plan

_CACHED_ENTRIES = 1_000_000  # of a block whose exponentials are taken while it is in the cache


class RowKernel(Kernel):
    """The kernel of a cost whose rows are available; ``room`` overrides the memory it may use."""

    def __init__(
        self, cost: Cost, dtype: torch.dtype | None = None, room: int | None = None
    ) -> None:
        self.source, self.shape, self.device = cost, cost.shape, cost.device
        self.dtype = dtype or cost.dtype
        room, size, given = cost.room if room is None else room, cost.bytes(self.dtype), cost.matrix
        self._costs = given  # costs that are kept apart from K, where there are any
        if given is None:
            scratch = 3 * cost.block_rows * self.shape[1] * self.dtype.itemsize
            matrices = ((room or 0) - scratch) // max(1, size)
            self._fits, self._copies = matrices >= 1, matrices >= 2
        else:
            self._fits, self._copies = room is None or size <= room, True
            if is_small(self.shape):
                self._costs = given.to(self.dtype)  # once, instead of at each use
        self._matrix: Tensor | None = None  # of the dtype of K: it holds what ``_holds`` says
        self._holds = "nothing"

    @property
    def cost_dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def costly(self) -> bool:
        return self._holds != "kernel"

    @property
    def _kept(self) -> Tensor | None:
        """K as a matrix, if it is stored."""
        return self._matrix if self._holds == "kernel" else None

    def most(self) -> float:
        self._load()
        return self.source.extremes()[1]

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        self.f, self.g, self.epsilon = f, g, epsilon
        if self._copies or not last:
            self._load()
        if not self._fits or not (last or self._copies):
            return
        matrix, notes, new = self._space(), Extremes(), self._costs is None
        new = new and self._holds == "nothing"
        for block in self._blocks():
            part = matrix[block]
            costs = self._cost_rows(block, part)
            if new:
                notes.add(costs)
            fill_kernel(costs, f[block], g, epsilon, part)
        if new:
            self.source.note(notes)
        self._holds = "kernel"

    def times(self, v: Tensor) -> Tensor:
        if self._kept is not None:
            return self._kept @ v
        return torch.cat([rows @ v for _, rows in self.pieces()])

    def transposed(self, u: Tensor) -> Tensor:
        if self._kept is not None:
            return self._kept.T @ u
        total = torch.zeros(self.shape[1], *u.shape[1:], dtype=self.dtype, device=self.device)
        for block, rows in self.pieces():
            total += rows.T @ u[block]
        return total

    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        if self._kept is not None:
            product = self._kept @ v
            return product, self._kept.T @ between(product, slice(None))
        products, total = [], torch.zeros(self.shape[1], dtype=self.dtype, device=self.device)
        for block, rows in self.pieces():
            products.append(rows @ v)
            total += rows.T @ between(products[-1], block)
        return torch.cat(products), total

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        if (kept := self._kept) is not None:
            yield from ((block, kept[block]) for block in self._blocks())
            return
        scratch = self._scratch()
        for block in self._blocks():
            out = scratch[: block.stop - block.start]
            costs = self._cost_rows(block, out)
            yield block, fill_kernel(costs, self.f[block], self.g, self.epsilon, out)

    def softmins(
        self, g: Tensor, a: Tensor, b: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        self._load()
        f, columns, scratch = [], ColumnSums(self.shape[1], self.device), self._scratch()
        for block in self._blocks():
            costs, out = self._cost_rows(block, None), scratch[: block.stop - block.start]
            f.append(damping * softmin(costs, g, b, epsilon, out))
            columns.add(costs, f[-1], a[block], epsilon, out)
        return torch.cat(f), damping * columns.softmin(epsilon)

    def widened(self) -> RowKernel:
        self.release()
        return RowKernel(self.source, torch.float64)

    def seconds(self) -> float:
        return 0.0 if self._fits or self._costs is not None else self.source.seconds()

    def plan(self, left: Tensor, right: Tensor) -> Plan:
        if self.source.matrix is not None:
            self.release()  # K is soon made again, and need not live as long as the plan
        return super().plan(left, right)

    def release(self) -> None:
        self._matrix = None
        self._costs, self._copies = self.source.matrix, self.source.matrix is not None
        self._holds, self._fits = "nothing", False
        self.source.release()

    def _space(self) -> Tensor:
        if self._matrix is None:
            self._matrix = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        return self._matrix

    def _load(self) -> None:
        """Compute the costs into the matrix that is meant for them, if there is one."""
        if not self._fits or self._costs is not None or self._holds == "cost":
            return
        dtype, notes = self.cost_dtype, Extremes()
        apart = torch.empty(self.shape, dtype=dtype, device=self.device) if self._copies else None
        matrix = self._space() if apart is None else apart
        for block in self.source.blocks():
            part = matrix[block]
            if part.dtype == dtype:
                self.source.rows(block, out=part)
            else:
                part.copy_(self.source.rows(block))
            notes.add(part)
        self.source.note(notes)
        if apart is None:
            self._holds = "cost"
        else:
            self._costs = apart
            self.source.release()

    def _blocks(self) -> Iterator[slice]:
        """Few rows where costs are stored; enough for an efficient product where they are computed."""
        kept = self._costs is not None or self._holds == "cost"
        return self.source.blocks(max(1, _CACHED_ENTRIES // self.shape[1]) if kept else None)

    def _cost_rows(self, block: slice, out: Tensor | None) -> Tensor:
        """Costs of these rows: stored, or new, in ``out`` if its dtype fits."""
        if self._costs is not None:
            return self._costs[block]
        if self._holds == "cost" and self._matrix is not None:
            return self._matrix[block]
        fits = out is not None and out.dtype == self.cost_dtype
        return self.source.rows(block, out=out if fits else None)

    def _scratch(self) -> Tensor:
        """Space for one block."""
        block = next(self._blocks())
        return torch.empty(block.stop, self.shape[1], dtype=self.dtype, device=self.device)

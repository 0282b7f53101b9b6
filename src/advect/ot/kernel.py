"""The kernel K = exp((f ⊕ g − C)/ε) of an entropic problem, by its products with vectors.

The plan is diag(a u) K diag(b v) with scalings u = 1 / K(b v) and v = 1 / Kᵀ(a u), so iterations need
only K and Kᵀ times a vector. ``sweep`` computes both in one pass.

``RowKernel`` works in blocks of rows. It stores what fits: costs and K; or one matrix, which holds the
costs while ε is annealed and K afterwards; or nothing, and each pass computes the rows again. A cost
that is given as a matrix is never written to. Blocks are small enough that exponentials are taken in
the processor's cache.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from advect.ot.certificate import is_small
from advect.ot.plan import Plan

if TYPE_CHECKING:
    from advect.ot.cost import Cost

_CACHED_ENTRIES = 1_000_000  # of a block whose exponentials are taken while it is in the cache


class Kernel(ABC):
    """K = exp((f ⊕ g − C)/ε) for potentials that ``fill`` sets.

    Attributes:
        shape: of the whole problem.  dtype: of the products.
    """

    shape: tuple[int, int]
    dtype: torch.dtype

    @property
    @abstractmethod
    def cost_dtype(self) -> torch.dtype:
        """The dtype of the costs and of plans."""

    @property
    @abstractmethod
    def costly(self) -> bool:
        """Whether each product computes K again, so that ``sweep`` saves half the work."""

    @abstractmethod
    def most(self) -> float:
        """The largest cost; stored costs are computed here."""

    @abstractmethod
    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        """Compute K for these potentials; ``last`` if epsilon is the final one."""

    @abstractmethod
    def times(self, v: Tensor) -> Tensor:
        """K v."""

    @abstractmethod
    def transposed(self, u: Tensor) -> Tensor:
        """Kᵀ u."""

    @abstractmethod
    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        """K v, and Kᵀ applied to ``between`` of its rows, in one pass."""

    @abstractmethod
    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """(rows, K at these rows) block by block; a block is overwritten by the next."""

    @abstractmethod
    def softmins(
        self, g: Tensor, a: Tensor, b: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """f = T(g), then T(f), in the log domain, each times ``damping``; call ``fill`` afterwards."""

    @abstractmethod
    def widened(self) -> Kernel:
        """The same kernel in float64; this one must not be used afterwards."""

    @abstractmethod
    def seconds(self) -> float:
        """Estimated time of a pass that computes the costs again; 0 where they are stored."""

    @abstractmethod
    def release(self) -> None:
        """Free matrices; products still work, from rows computed again."""

    def plan(self, left: Tensor, right: Tensor) -> Plan:
        """The plan diag(left) K diag(right), which owns the kernel from here on."""
        return ScaledPlan(self, left, right)

    def marginal_error(self, a: Tensor, b: Tensor, allowed: float) -> float | None:
        """Marginal error of diag(a) K diag(b) if it is allowed, else None at the first bad block."""
        row_error, sums = 0.0, torch.zeros_like(b)
        for block, part in self.pieces():
            row_error += float((a[block] * (part @ b - 1).abs()).sum())
            if not row_error <= allowed:
                return None
            sums += part.T @ a[block]
        error = row_error + float((b * (sums - 1).abs()).sum())
        return error if error <= 2 * allowed else None


class Extremes:
    """Least and largest entry of several blocks, with one transfer from the device."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, part: Tensor) -> None:
        self._parts.append(torch.stack(torch.aminmax(part)))

    def found(self) -> tuple[Tensor, Tensor]:
        pairs = torch.stack(self._parts)
        return pairs[:, 0].min(), pairs[:, 1].max()


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


class ScaledPlan(Plan):
    """The plan diag(left) K diag(right)."""

    def __init__(self, kernel: Kernel, left: Tensor, right: Tensor) -> None:
        self.kernel, self.left, self.right = kernel, left, right
        self.shape, self.dtype, self.device = kernel.shape, kernel.cost_dtype, left.device

    def times(self, v: Tensor) -> Tensor:
        if self.kernel.costly:  # its blocks are made for one product: that of the plan
            out = v.new_empty(self.shape[0], *v.shape[1:])
            for block, _, part in self.pieces():
                torch.matmul(part.to(v.dtype), v, out=out[block])
            return out
        product = self.kernel.times(self.right[:, None] * v.to(self.kernel.dtype))
        return (self.left[:, None] * product).to(v.dtype)

    def transposed(self, u: Tensor) -> Tensor:
        if self.kernel.costly:
            return super().transposed(u)
        product = self.kernel.transposed(self.left[:, None] * u.to(self.kernel.dtype))
        return (self.right[:, None] * product).to(u.dtype)

    def pieces(self) -> Iterator[tuple[slice, slice, Tensor]]:
        for block, rows in self.kernel.pieces():
            part = (self.left[block, None] * rows).mul_(self.right)
            yield block, slice(None), part.to(self.dtype)

    def dense(self) -> Tensor:
        self.check_room()
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for block, _, part in self.pieces():
            out[block] = part
        return out

    def release(self) -> None:
        self.kernel.release()


def fill_kernel(cost: Tensor, f: Tensor, g: Tensor, epsilon: float, out: Tensor) -> Tensor:
    """Write exp((f_i + g_j − C_ij)/ε) into ``out``, which may be the cost."""
    torch.add((g / epsilon).to(out.dtype)[None, :], cost, alpha=-1 / epsilon, out=out)
    return exp_(out.add_((f / epsilon).to(out.dtype)[:, None]))


def exp_(values: Tensor) -> Tensor:
    """exp in place, with 0 below the normal range: subnormal results are twenty times slower."""
    least = math.log(torch.finfo(values.dtype).tiny) + 0.1
    return torch.threshold_(values.clamp_min_(least).exp_(), 1.01 * math.exp(least), 0.0)


def softmin(
    cost: Tensor, potential: Tensor, weights: Tensor, epsilon: float, out: Tensor
) -> Tensor:
    """T(g)_i = −ε log Σ_j b_j exp((g_j − C_ij)/ε), stable for any epsilon; ``out`` is scratch space."""
    shift = (potential / epsilon + weights.log()).to(out.dtype)
    torch.add(shift, cost, alpha=-1 / epsilon, out=out)
    top = out.amax(dim=1, keepdim=True)
    sums = exp_(out.sub_(top)).sum(dim=1)
    return -epsilon * (top.squeeze(1).double() + sums.double().log())


class ColumnSums:
    """T(f)_j = −ε log Σ_i a_i exp((f_i − C_ij)/ε), accumulated over blocks of rows."""

    def __init__(self, columns: int, device: torch.device) -> None:
        self.top = torch.full((columns,), -math.inf, dtype=torch.float64, device=device)
        self.sums = torch.zeros(columns, dtype=torch.float64, device=device)

    def add(self, costs: Tensor, f: Tensor, a: Tensor, epsilon: float, out: Tensor) -> None:
        shift = (f / epsilon + a.log()).to(out.dtype)
        torch.add(shift[:, None], costs, alpha=-1 / epsilon, out=out)
        # of numbers in the dtype of ``out``: it fits there again
        top = torch.maximum(self.top, out.amax(dim=0).double())
        # no row with mass yet: nothing to subtract
        sums = exp_(out.sub_(top.to(out.dtype).nan_to_num(neginf=0.0))).sum(dim=0).double()
        self.sums = sums + torch.where(self.sums > 0, self.sums * torch.exp(self.top - top), 0.0)
        self.top = top

    def softmin(self, epsilon: float) -> Tensor:
        return -epsilon * (self.top + self.sums.log())

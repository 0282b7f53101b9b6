"""The kernel K = exp((f ⊕ g − C)/ε) of an entropic problem, by its products with vectors.

The plan is diag(a u) K diag(b v) with scalings u and v, so iterations need only K and Kᵀ times a
vector. ``sweep`` computes both in one pass.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect.errors import InputError
from advect.ot.plan import Plan

SMALL = 250_000  # entries up to which problems are solved in float64 whatever their dtype
_CACHED_ENTRIES = 1_000_000  # of a block whose exponentials are taken while it is in the cache


class Kernel(ABC):
    """K = exp((f ⊕ g − C)/ε) for potentials that ``fill`` sets.

    Attributes:
        shape: of the whole problem.  dtype: of the products.  cost_dtype: of costs and plans.
        extremes: least and largest cost.
        costly: whether each product computes K again, so that ``sweep`` saves half the work.
        recomputes: whether each product computes the costs again.
    """

    shape: tuple[int, int]
    dtype: torch.dtype
    cost_dtype: torch.dtype
    extremes: tuple[float, float]
    costly: bool
    recomputes: bool

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
        """f = T(g), then T(f), in the log domain, each times ``damping``; call ``fill`` afterwards.

        T(g)_i = −ε log Σ_j b_j exp((g_j − C_ij)/ε), and likewise for columns.
        """

    @abstractmethod
    def plan(self, left: Tensor, right: Tensor) -> Plan:
        """The plan diag(left) K diag(right), which owns the kernel from here on."""

    @abstractmethod
    def release(self) -> None:
        """Free matrices; products still work, from rows computed again."""


class RowKernel(Kernel):
    """The kernel of a cost of one process, in blocks of rows.

    It stores what fits into ``room`` bytes: costs and K; or one matrix, which holds the costs while ε
    is annealed and K afterwards; or nothing, and each pass computes the rows again. A cost that is
    given as a matrix is never written to.

    Args:
        cost: an ``advect.ot.cost.Cost``.
        dtype: of the products; that of the cost by default.
        room: bytes that override the room of the cost.
    """

    def __init__(
        self, cost: Any, dtype: torch.dtype | None = None, room: int | None = None
    ) -> None:
        self.cost, self.shape, self.device = cost, cost.shape, cost.device
        self.dtype, self.cost_dtype = dtype or cost.dtype, cost.dtype
        room = cost.room if room is None else room
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        self._costs, self.costly = cost.matrix, True
        self._kernel: Any = None
        self.recomputes = False
        if self._costs is not None:
            self._fits, self._has_both = room is None or size <= room, True
            if self.shape[0] * self.shape[1] <= SMALL:
                self._costs = self._costs.to(self.dtype)  # once, instead of at each use
            self.extremes = cost.extremes()
            return
        scratch = 3 * next(cost.blocks()).stop * self.shape[1] * self.dtype.itemsize
        matrices = ((room or 0) - scratch) // max(1, size)
        self._fits, self._has_both = matrices >= 1, matrices >= 2
        self.recomputes = not self._fits
        self.extremes = self._load() if self._fits else cost.extremes()

    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        # What is stored decides: costs and K side by side, K over the costs at the last epsilon, or
        # nothing, and products compute K again block by block.
        self.f, self.g, self.epsilon = f, g, epsilon
        if self._fits and self._costs is None and not last:
            self._load()
        self.costly = not self._fits or not (last or self._has_both)
        if self.costly:
            return
        matrix = self._kernel if self._kernel is not None or self._has_both else self._costs
        if matrix is None:
            matrix = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for block, costs, out in self._cost_blocks(matrix):
            _fill(costs, f[block], g, epsilon, out)
        self._kernel = matrix
        if not self._has_both:
            self._costs = None  # overwritten by K

    def times(self, v: Tensor) -> Tensor:
        if not self.costly:
            return self._kernel @ v
        return torch.cat([rows @ v for _, rows in self.pieces()])

    def transposed(self, u: Tensor) -> Tensor:
        if not self.costly:
            return self._kernel.T @ u
        total = torch.zeros(self.shape[1], *u.shape[1:], dtype=self.dtype, device=self.device)
        for block, rows in self.pieces():
            total += rows.T @ u[block]
        return total

    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        if not self.costly:
            product = self._kernel @ v
            return product, self._kernel.T @ between(product, slice(None))
        products, total = [], torch.zeros(self.shape[1], dtype=self.dtype, device=self.device)
        for block, rows in self.pieces():
            products.append(rows @ v)
            total += rows.T @ between(products[-1], block)
        return torch.cat(products), total

    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        if not self.costly:
            yield from ((block, self._kernel[block]) for block in self.cost.blocks())
            return
        for block, costs, out in self._cost_blocks():
            yield block, _fill(costs, self.f[block], self.g, self.epsilon, out)

    def softmins(
        self, g: Tensor, a: Tensor, b: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        if self._fits and self._costs is None:
            self._load()
        weighted = (g / epsilon + b.log()).to(self.dtype)
        f, log_a = [], a.log()
        if self.shape[0] * self.shape[1] <= SMALL and self._costs is not None:
            exponents = self._costs / -epsilon
            f = -damping * epsilon * torch.logsumexp(exponents + weighted, dim=1).double()
            shift = (f / epsilon + log_a).to(self.dtype)[:, None]
            return f, -damping * epsilon * torch.logsumexp(exponents + shift, dim=0).double()
        # The column sums are kept as exp(−top) Σ, with ``top`` the largest exponent so far: for
        # exponents t of a new block, sums ← sums exp(old top − top) + Σ exp(t − top).
        sums = torch.zeros(self.shape[1], dtype=torch.float64, device=self.device)
        top = torch.full_like(sums, -math.inf)
        for block, costs, out in self._cost_blocks(keep_costs=True):
            peak = torch.add(weighted, costs, alpha=-1 / epsilon, out=out).amax(1, keepdim=True)
            total = _exp(out.sub_(peak)).sum(dim=1).double()
            f.append(-damping * epsilon * (peak[:, 0].double() + total.log()))
            shift = (f[-1] / epsilon + log_a[block]).to(self.dtype)
            torch.add(shift[:, None], costs, alpha=-1 / epsilon, out=out)
            highest = torch.maximum(top, out.amax(dim=0).double())
            # no row with mass yet: nothing to subtract
            part = _exp(out.sub_(highest.to(self.dtype).nan_to_num(neginf=0.0))).sum(dim=0).double()
            sums = part + torch.where(sums > 0, sums * torch.exp(top - highest), 0.0)
            top = highest
        return torch.cat(f), -damping * epsilon * (top + sums.log())

    def plan(self, left: Tensor, right: Tensor) -> ScaledPlan:
        if self.cost.matrix is not None and self.shape[0] * self.shape[1] > SMALL:
            self.release()  # K is computed again from the matrix, so it can be freed earlier
        return ScaledPlan(self, left, right, self.shape, self.cost_dtype, self.device)

    def release(self) -> None:
        self._costs = self.cost.matrix
        self._kernel, self._fits, self._has_both, self.costly = None, False, False, True
        if self._costs is None:
            self.cost.release()

    def _load(self) -> tuple[float, float]:
        """Compute the costs into the matrix that is meant for them; returns their extremes."""
        dtype = self.cost_dtype if self._has_both else self.dtype
        matrix, self._kernel, ends = None if self._has_both else self._kernel, None, []
        if matrix is None:
            matrix = torch.empty(self.shape, dtype=dtype, device=self.device)
        for block in self.cost.blocks():
            part = matrix[block]
            if dtype == self.cost_dtype:
                self.cost.rows(block, out=part)
            else:
                part.copy_(self.cost.rows(block))
            ends.append(torch.stack(torch.aminmax(part)))
        self._costs, self.costly = matrix, True
        if self._has_both:
            self.cost.release()
        return check_extremes(torch.stack(ends))

    def _cost_blocks(
        self, matrix: Tensor | None = None, *, keep_costs: bool = False
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """(rows, their costs, space for results) block by block.

        The space is that of the rows in ``matrix``, or scratch. Costs are stored ones, or new: in the
        space, unless they must outlive what is written there. Blocks have few rows where costs are
        stored, so that exponentials are taken in the cache, and enough for an efficient product where
        costs are computed.
        """
        n, scratch = self.shape[0], None
        few = max(1, _CACHED_ENTRIES // self.shape[1])
        stored = (slice(start, min(start + few, n)) for start in range(0, n, few))
        for block in self.cost.blocks() if self._costs is None else stored:
            if matrix is not None:
                out = matrix[block]
            else:
                if scratch is None:
                    scratch = torch.empty(
                        block.stop, self.shape[1], dtype=self.dtype, device=self.device
                    )
                out = scratch[: block.stop - block.start]
            if self._costs is not None:
                yield block, self._costs[block], out
            else:
                into = None if keep_costs or out.dtype != self.cost_dtype else out
                yield block, self.cost.rows(block, out=into), out


@dataclass(eq=False)
class ScaledPlan(Plan):
    """The plan diag(left) K diag(right)."""

    kernel: RowKernel
    left: Tensor
    right: Tensor
    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

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


def check_extremes(ends: Tensor) -> tuple[float, float]:
    """Least and largest of pairs (b, 2); an error if a cost is not finite. One transfer from the device."""
    least, most = torch.stack([ends[:, 0].min(), ends[:, 1].max()]).tolist()
    if not (math.isfinite(least) and math.isfinite(most)):
        raise InputError(
            "the cost must be finite",
            "NaN or infinite entries",
            "Check the features and the cost function.",
        )
    return least, most


def _fill(cost: Tensor, f: Tensor, g: Tensor, epsilon: float, out: Tensor) -> Tensor:
    """Write exp((f_i + g_j − C_ij)/ε) into ``out``, which may be the cost."""
    torch.add((g / epsilon).to(out.dtype)[None, :], cost, alpha=-1 / epsilon, out=out)
    return _exp(out.add_((f / epsilon).to(out.dtype)[:, None]))


def _exp(values: Tensor) -> Tensor:
    """exp in place, with 0 below the normal range: subnormal results are twenty times slower."""
    least = math.log(torch.finfo(values.dtype).tiny) + 0.1
    return torch.threshold_(values.clamp_min_(least).exp_(), 1.01 * math.exp(least), 0.0)

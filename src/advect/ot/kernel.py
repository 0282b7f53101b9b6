"""The kernel K = exp((f ⊕ g − C)/ε) of an entropic problem, by its products with vectors.

The plan is diag(a u) K diag(b v) with scalings u = 1 / K(b v) and v = 1 / Kᵀ(a u), so iterations need
only K and Kᵀ times a vector. ``sweep`` computes both in one pass.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from advect.ot.plan import Plan


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

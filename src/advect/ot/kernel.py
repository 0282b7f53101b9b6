"""The kernel K = exp((f ⊕ g − C)/ε) of an entropic problem, as the products that an iteration asks
for.

For given potentials the plan of an entropic problem is diag(a u) K diag(b v) with scalings u, v
that are fixed by its marginals, u = 1 / K(b v) and v = 1 / Kᵀ(a u). All that Sinkhorn's and
Newton's steps ask of the cost is therefore K and Kᵀ times a vector; ``sweep`` is both in one pass,
for kernels that are computed anew at each use. What a kernel keeps in memory, and on how many
ranks, is its own affair: the iteration sees whole vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from advect.ot.plan import Plan, ScaledPlan


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
        """That of the costs, and of plans."""

    @property
    @abstractmethod
    def costly(self) -> bool:
        """Whether each product computes K anew, so that two are better made in one ``sweep``."""

    @abstractmethod
    def most(self) -> float:
        """The largest cost; costs that are to be kept are computed here."""

    @abstractmethod
    def fill(self, f: Tensor, g: Tensor, epsilon: float, *, last: bool = True) -> None:
        """K for these potentials; ``last`` says that this epsilon is the final one."""

    @abstractmethod
    def times(self, v: Tensor) -> Tensor:
        """K v."""

    @abstractmethod
    def transposed(self, u: Tensor) -> Tensor:
        """Kᵀ u."""

    @abstractmethod
    def sweep(self, v: Tensor, between: Callable[[Tensor, slice], Tensor]) -> tuple[Tensor, Tensor]:
        """K v, and Kᵀ of what ``between`` makes of its rows."""

    @abstractmethod
    def pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """(rows, K at these rows), one block after the other; a block is overwritten by the
        next.
        """

    @abstractmethod
    def softmins(
        self, g: Tensor, a: Tensor, b: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """f = T(g), then T(f), in the log domain, each times ``damping``; ``fill`` has to
        follow.
        """

    @abstractmethod
    def widened(self) -> Kernel:
        """The same in float64; this one is not to be used any more."""

    @abstractmethod
    def seconds(self) -> float:
        """How long a pass takes that computes the costs anew; 0 where they are kept."""

    @abstractmethod
    def release(self) -> None:
        """Let go of matrices; products still work, from rows computed anew."""

    def plan(self, left: Tensor, right: Tensor) -> Plan:
        """diag(left) K diag(right). The kernel is the plan's from here on."""
        return ScaledPlan(self, left, right)

    def marginal_error(self, a: Tensor, b: Tensor, allowed: float) -> float | None:
        """The marginal error of the plan diag(a) K diag(b) if it is allowed; else None, from the
        first block that says so.
        """
        row_error, sums = 0.0, torch.zeros_like(b)
        for block, part in self.pieces():
            row_error += float((a[block] * (part @ b - 1).abs()).sum())
            if not row_error <= allowed:
                return None
            sums += part.T @ a[block]
        error = row_error + float((b * (sums - 1).abs()).sum())
        return error if error <= 2 * allowed else None

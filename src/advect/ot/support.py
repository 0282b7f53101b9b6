"""Points with mass and points without, and a plan between the former by scalings of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advect.ot.blocks import BlockedCost
from advect.ot.kernel import BlockedKernel, DenseKernel, ScaledKernel, fill_kernel


class Support:
    """The rows and columns of a problem that have mass."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b, self.rows, self.columns = a, b, a > 0, b > 0
        self.whole = bool(self.rows.all()) and bool(self.columns.all())

    def within(self, cost: Tensor | BlockedCost) -> Tensor | BlockedCost:
        """The cost between points with mass."""
        if self.whole:
            return cost
        if isinstance(cost, BlockedCost):
            return cost.select(self.rows.nonzero()[:, 0], self.columns.nonzero()[:, 0])
        return cost[self.rows][:, self.columns]

    def cut(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of all points, at those with mass."""
        return (f, g) if self.whole else (f[self.rows], g[self.columns])

    def spread(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of points with mass, with zeros for the others."""
        pairs = ((self.a, self.rows, f), (self.b, self.columns, g))
        first, second = (
            torch.zeros_like(weights).masked_scatter_(present, part)
            for weights, present, part in pairs
        )
        return first, second


@dataclass(frozen=True, eq=False)
class Scaled:
    """The plan diag(left) K diag(right) between points with mass, K = exp((f ⊕ g − C)/ε), as the
    iteration has left it.

    The kernel is that whose marginals were measured: potentials that have taken up the scalings
    would be rounded anew."""

    kernel: DenseKernel | BlockedKernel
    f: Tensor
    g: Tensor
    epsilon: float
    left: Tensor
    right: Tensor

    def products(self) -> ScaledKernel:
        """The plan of a kernel that comes in blocks."""
        assert isinstance(self.kernel, BlockedKernel)
        return ScaledKernel(self.kernel, self.left, self.right)

    def plan(self, support: Support, dtype: torch.dtype, out: Tensor | None) -> Tensor:
        """The plan between all points as a matrix, in ``out`` if given, which may be the cost."""
        if isinstance(self.kernel, BlockedKernel):
            inner = self.products().dense()
        else:
            cost, wide = self.kernel.cost, self.kernel.dtype
            fits = support.whole and out is not None and out.dtype == wide
            space = out if fits and out is not None else torch.empty_like(cost, dtype=wide)
            inner = (
                fill_kernel(cost, self.f, self.g, self.epsilon, space)
                .mul_(self.left[:, None])
                .mul_(self.right)
            )
        if support.whole:
            return inner.to(dtype) if out is None or inner is out else out.copy_(inner)
        shape = (len(support.a), len(support.b))
        out = torch.zeros(shape, dtype=dtype, device=inner.device) if out is None else out.zero_()
        rows, columns = support.rows.nonzero(), support.columns.nonzero()[:, 0]
        return out.index_put_((rows, columns), inner.to(out.dtype))

"""Rows of the ground cost for solvers that never hold the matrix (``advect.ot.BlockedCost``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.errors import InputError

Index = slice | Tensor


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """−x_i·y_j + left_i·right_j: a product of features, and a thin one for norms and labels; never negative."""

    x: Tensor
    y: Tensor
    left: Tensor
    right: Tensor
    table: Tensor | None  # what a pair of laws costs, and the law of each sample: for solvers that treat labels apart
    codes: tuple[Tensor, Tensor]

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        y, right = (self.y, self.right) if columns is None else (self.y[columns], self.right[columns])
        out = torch.mm(self.x[rows], y.T, out=out)
        return torch.addmm(out, self.left[rows], right.T, beta=-1, out=out).clamp_min_(0)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j C_ij from the means of the factors."""
        return _mean(self.left, a) @ _mean(self.right, b) - _mean(self.x, a) @ _mean(self.y, b)


@dataclass(frozen=True, eq=False)
class OwnRows:
    """½ d(x_i, y_j)² by a function of one's own, and the label part."""

    feature: Callable[[Index, Tensor | None], Tensor]
    left: Tensor
    right: Tensor
    dtype: torch.dtype

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        made, thin = self.feature(rows, columns), self.left[rows]
        right = self.right if columns is None else self.right[columns]
        if made.shape != (len(thin), len(right)):
            raise InputError(
                f"a feature cost must return a matrix ({len(thin)}, {len(right)})",
                f"shape {tuple(made.shape)}",
                "One entry for each pair, also for some of the rows.",
            )
        made = made.to(self.dtype, copy=True)
        made = torch.addmm(made, thin, right.T, beta=0.5, out=made)
        return made if out is None else out.copy_(made)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        blocks = torch.arange(len(a), device=a.device).split(1024)
        return torch.stack([a[block] @ (self(block, None).double() @ b) for block in blocks]).sum()


def _mean(points: Tensor, weights: Tensor) -> Tensor:
    """Σ w_i p_i in float64, a few rows at a time."""
    parts = zip(points.split(1024), weights.split(1024), strict=True)
    return torch.stack([weight @ part.double() for part, weight in parts]).sum(dim=0)

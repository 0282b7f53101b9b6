"""Rows of the ground cost for solvers that never hold the matrix (``advect.ot.BlockedCost``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.errors import InputError
from advect.ot.blocks import Rows

Index = slice | Tensor
FEW_LAWS = (
    64  # laws of the target up to which a thin product with the table is cheaper than looking it up
)
_ENTRIES = 4_000_000  # of a block that is looked up at a time


@dataclass(frozen=True, eq=False)
class LabelTable:
    """What the labels of a pair of samples cost: ``values[i, j]`` for laws i and j, and the law of
    each sample.
    """

    values: Tensor
    codes: tuple[Tensor, Tensor]

    @property
    def thin(self) -> bool:
        """Whether there are so few laws that the label part is a product of thin factors."""
        return self.values.shape[1] <= FEW_LAWS

    def factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(n, k') and (m, k') whose product is the label part."""
        onto = torch.nn.functional.one_hot(self.codes[1], self.values.shape[1])
        return self.values.to(dtype)[self.codes[0]], onto.to(dtype)

    def add(self, out: Tensor, rows: Index = slice(None), columns: Tensor | None = None) -> Tensor:
        """The label part of some rows and columns, looked up and added to ``out``."""
        laws, others = (
            self.codes[0][rows],
            self.codes[1] if columns is None else self.codes[1][columns],
        )
        step = max(1, _ENTRIES // max(1, len(others)))
        for part, chosen in zip(out.split(step), laws.split(step), strict=True):
            part.add_(self.values[chosen].index_select(1, others).to(out.dtype))
        return out

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j of the label part."""
        masses = [
            w.new_zeros(size).index_add_(0, c, w)
            for w, c, size in zip((a, b), self.codes, self.values.shape, strict=True)
        ]
        return masses[0] @ self.values.to(a.dtype) @ masses[1]


@dataclass(frozen=True, eq=False)
class FeatureRows(Rows):
    """−x_i·y_j + left_i·right_j: a product of features, and a thin one for norms and few labels;
    never negative.

    Many labels (a law for each sample) are looked up instead.
    """

    x: Tensor
    y: Tensor
    left: Tensor
    right: Tensor
    labels: LabelTable | None  # solvers may treat them apart

    @property
    def points(self) -> FeatureRows:
        return self

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        y, right = (
            (self.y, self.right) if columns is None else (self.y[columns], self.right[columns])
        )
        out = torch.mm(self.x[rows], y.T, out=out)
        out = torch.addmm(out, self.left[rows], right.T, beta=-1, out=out)
        return (
            out if self.labels is None or self.labels.thin else self.labels.add(out, rows, columns)
        ).clamp_min_(0)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j C_ij from the means of the factors."""
        mean = _mean(self.left, a) @ _mean(self.right, b) - _mean(self.x, a) @ _mean(self.y, b)
        return mean if self.labels is None or self.labels.thin else mean + self.labels.mean(a, b)


@dataclass(frozen=True, eq=False)
class OwnRows(Rows):
    """½ d(x_i, y_j)² by a function of one's own, and the label part."""

    feature: Callable[[Index, Tensor | None], Tensor]
    labels: LabelTable | None
    shape: tuple[int, int]
    dtype: torch.dtype

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        made = self.feature(rows, columns)
        n = len(range(*rows.indices(self.shape[0]))) if isinstance(rows, slice) else len(rows)
        m = self.shape[1] if columns is None else len(columns)
        if made.shape != (n, m):
            raise InputError(
                f"a feature cost must return a matrix ({n}, {m})",
                f"shape {tuple(made.shape)}",
                "One entry for each pair, also for some of the rows.",
            )
        made = made.to(self.dtype, copy=True).mul_(0.5)
        made = made if self.labels is None else self.labels.add(made, rows, columns)
        return made if out is None else out.copy_(made)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        blocks = torch.arange(len(a), device=a.device).split(1024)
        return torch.stack([a[block] @ (self(block, None).double() @ b) for block in blocks]).sum()


def _mean(points: Tensor, weights: Tensor) -> Tensor:
    """Σ w_i p_i in float64, a few rows at a time."""
    parts = zip(points.split(1024), weights.split(1024), strict=True)
    return torch.stack([weight @ part.double() for part, weight in parts]).sum(dim=0)

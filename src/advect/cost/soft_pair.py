"""The cost of soft labels: a squared distance of mixtures of laws,

    c(p, q) = pᵀ D q − ½ pᵀ D_a p − ½ qᵀ D_b q

with squared distances D between the laws of two datasets, and D_a, D_b within either. Hard labels
cost D[y, y']. If the distances are Euclidean (one dimension, diagonal laws, means) it is
‖Σ p α − Σ q α'‖². W₂² of full covariances is not Euclidean: c can fall below zero, by at most ``floor``.
The self terms belong to rows and columns, so they change no plan and cancel in a debiased distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect.cost.label_pair import FEW_LAWS, Index, significant_pairs
from advect.data.dataset import LabeledDataset
from advect.data.labels import law_rows
from advect.errors import InputError
from advect.ot.plan import Plan

_MAX_EIGEN = 512  # laws, for the bound by eigenvalues
_ENTRIES = 4_000_000  # of a block
_ROUNDING = 1e-6  # of the largest distance, the error of float32


@dataclass(frozen=True, eq=False)
class Side:
    """The laws of the labels of a dataset: one for each sample (``codes``), or ``shares`` (n, k)."""

    codes: Tensor | None
    shares: Tensor | None

    @classmethod
    def of(cls, data: LabeledDataset) -> Side:
        if data.probabilities is None:
            return cls(law_rows(data), None)
        return cls(None, data.probabilities)

    def __len__(self) -> int:
        part = self.codes if self.shares is None else self.shares
        return 0 if part is None else len(part)

    def mixed(self, table: Tensor) -> Tensor:
        """Rows of a table (k, …), averaged for each sample."""
        if self.shares is None:
            return table[self.codes]
        return self.shares.to(table.dtype) @ table

    def across(self, rows: Tensor, columns: Tensor | None) -> Tensor:
        """From numbers of laws (b, k) to numbers of samples (b, m)."""
        if self.shares is not None:
            shares = self.shares if columns is None else self.shares[columns]
            return rows @ shares.to(rows.dtype).T
        assert self.codes is not None
        return rows.index_select(1, self.codes if columns is None else self.codes[columns])

    def matrix(self, k: int, dtype: torch.dtype) -> Tensor:
        """(n, k) shares."""
        if self.shares is not None:
            return self.shares.to(dtype)
        assert self.codes is not None
        return one_hot(self.codes, k).to(dtype)

    def gathered(self, rows: Tensor, k: int) -> Tensor:
        """Rows (n, …) summed over samples by their shares of laws, (k, …)."""
        if self.shares is not None:
            return self.shares.to(rows.dtype).T @ rows
        assert self.codes is not None
        return rows.new_zeros(k, *rows.shape[1:]).index_add_(0, self.codes, rows)

    def spread(self, distances: Tensor) -> Tensor:
        """½ pᵀ D p of each sample, (n,); zero for hard labels."""
        if self.shares is None:
            return distances.new_zeros(len(self))
        shares = self.shares.to(distances.dtype)
        return torch.linalg.vecdot(shares @ distances, shares) / 2

    def label_gradient(self, distances: Tensor, mass: Tensor) -> Tensor:
        """Σ m_i ½ p_iᵀ D p_i, with a graph to the distances."""
        if self.shares is None:
            return distances.new_zeros((), dtype=torch.float64)
        shares = self.shares
        pairs = shares.T @ (mass.to(shares)[:, None] * shares)
        return (pairs.to(distances.dtype) * distances).sum().double() / 2


@dataclass(frozen=True, eq=False)
class SoftTable:
    """½ label_weight c(p, q) without a graph: rows for laws of the target, and self terms."""

    rows: Tensor
    side: Side
    less: tuple[Tensor, Tensor]
    floor: float

    @property
    def values(self) -> Tensor:
        raise _no_codes()

    @property
    def thin(self) -> bool:
        return self.rows.shape[1] <= FEW_LAWS

    @property
    def codes(self) -> tuple[Tensor, Tensor]:
        raise _no_codes()

    def factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(n, k' + 2) and (m, k' + 2) whose product is the label part."""
        own, other = (part.to(dtype)[:, None] for part in self.less)
        onto = self.side.matrix(self.rows.shape[1], dtype)
        left = torch.cat([self.rows.to(dtype), -own, torch.ones_like(own)], dim=1)
        return left, torch.cat([onto, torch.ones_like(other), -other], dim=1)

    def add(self, out: Tensor, rows: Index = slice(None), columns: Tensor | None = None) -> Tensor:
        """The label part of some rows and columns, added to ``out``."""
        made, less = self.rows[rows], self.less[0][rows]
        other = self.less[1] if columns is None else self.less[1][columns]
        step = max(1, _ENTRIES // max(1, len(other)))
        parts = zip(out.split(step), made.split(step), less.split(step), strict=True)
        for part, numbers, own in parts:
            found = self.side.across(numbers, columns).sub_(own[:, None]).sub_(other)
            part.add_(found.to(out.dtype))
        return out

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j of the label part, for masses that sum to one or not."""
        own, other = (part.to(a.dtype) for part in self.less)
        across = (a @ self.rows.to(a.dtype)) @ self.side.gathered(b, self.rows.shape[1])
        return across - (a @ own) * b.sum() - (b @ other) * a.sum()


@dataclass(frozen=True, eq=False)
class SoftDistances:
    """Squared distances between laws (k, k') and within either dataset, with graphs; the labels of
    both sides; the weight of labels; whether both datasets are one.
    """

    distances: Tensor
    own: tuple[Tensor, Tensor]
    sides: tuple[Side, Side]
    weight: float
    same: bool

    @property
    def codes(self) -> tuple[Tensor, Tensor]:
        raise _no_codes()

    @cached_property
    def less(self) -> tuple[Tensor, Tensor]:
        """½ pᵀ D_a p and ½ qᵀ D_b q of each sample, without a graph, in float64."""
        a = self.sides[0].spread(self.own[0].detach().double())
        return a, a if self.same else self.sides[1].spread(self.own[1].detach().double())

    def table(self, dtype: torch.dtype) -> SoftTable:
        """½ label_weight c, without a graph."""
        half = self.weight / 2
        rows = self.sides[0].mixed(half * self.distances.detach().double())
        less = tuple((half * part).to(dtype) for part in self.less)
        return SoftTable(rows.to(dtype), self.sides[1], (less[0], less[1]), half * self.floor)

    @cached_property
    def floor(self) -> float:
        """A lower bound of c: the least eigenvalue of −½ J D J times ‖p − q‖² ≤ 2, or 0."""
        between = self.distances.detach().double()
        own = [part.detach().double() for part in self.own]
        whole = (
            own[0]
            if self.same
            else torch.cat(
                [torch.cat([own[0], between], dim=1), torch.cat([between.T, own[1]], dim=1)]
            )
        )
        if len(whole) > _MAX_EIGEN:  # the bound of the formula
            return -(float(own[0].max()) + float(own[1].max())) / 2
        centred = whole - whole.mean(dim=0, keepdim=True)
        centred = centred - centred.mean(dim=1, keepdim=True)
        least = 2 * float(torch.linalg.eigvalsh(-(centred + centred.T) / 4)[0])
        return 0.0 if least > -_ROUNDING * float(whole.abs().max()) else least

    @property
    def onto(self) -> Tensor:
        """(m, k' + 1): the shares of laws, and ½ qᵀ D_b q, of each sample of the target."""
        dtype = self.distances.dtype
        shares = self.sides[1].matrix(self.distances.shape[1], dtype)
        return torch.cat([shares, self.less[1].to(dtype)[:, None]], dim=1)

    def class_plan(self, plan: Plan) -> Tensor:
        """The plan summed over pairs of laws by their shares, (k, k')."""
        k, other = self.distances.shape
        onto = self.sides[1].matrix(other, self.distances.dtype)
        return self.sides[0].gathered(plan @ onto, k)

    def contract(self, plan: Plan, by_law: Tensor | None) -> tuple[Tensor, Tensor]:
        """The label cost of the plan, differentiable in all three tables, and the class plan. In
        float32 without pairs that have less than a millionth of the mass of either law.
        """
        by_law = plan @ self.onto if by_law is None else by_law
        by_law, other = by_law[:, :-1], by_law[:, -1]
        by_class = self.sides[0].gathered(by_law, len(self.distances))
        relevant = by_class
        if relevant.dtype == torch.float32:
            relevant = relevant * significant_pairs(relevant)
        paid = (relevant * self.distances).sum().double()
        mass = by_law.sum(dim=1)  # of each sample of the source
        first, second = zip(self.sides, self.own, strict=True)
        paid = paid - first[0].label_gradient(first[1], mass)
        if self.same:  # the plan of a self-problem is symmetric
            paid = paid - first[0].label_gradient(first[1], mass)
        elif second[1].requires_grad and self.sides[1].shares is not None:
            ones = mass.new_ones(len(mass), 1)
            paid = paid - second[0].label_gradient(second[1], (plan.T @ ones)[:, 0])
        else:
            paid = paid - other.double().sum()
        return self.weight / 2 * paid, by_class

    @property
    def largest(self) -> Tensor:
        """A bound of what labels cost, as a number on the device."""
        parts = [part.detach().abs().max().double() for part in (self.distances, *self.own)]
        return parts[0] + (parts[1] + parts[2]) / 2


def _no_codes() -> InputError:
    return InputError(
        "this solver needs one label for each sample",
        "soft labels",
        "Use ad.Sinkhorn() or ad.MiniBatch(…), or hard labels: data.hard().",
    )

"""What labels cost as a table: squared distances D (k, k') between label laws, and for each dataset
an assignment Q (n, k) of samples to laws, one-hot for ordinary labels, probabilities for soft ones.

    c(p, q) = w/2 (pᵀ D q − ½ pᵀ D_a p − ½ qᵀ D_b q)

for rows p, q of the assignments, with distances D_a, D_b within either dataset. The self terms vanish
for ordinary labels, which cost w/2 D[y, y']. They belong to rows and columns, so they change no plan
and cancel in a debiased distance. If the distances are Euclidean (one dimension, diagonal laws, means)
c is w/2 ‖Σ p α − Σ q α'‖². W₂² of full covariances is not Euclidean: c can fall below zero, by at most
``floor``.

The cost of a plan P needs only the class plan M = Qᵀ P Q'. Its gradient in the laws is that of ⟨M, D⟩.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect.data.dataset import LabeledDataset
from advect.data.labels import law_rows
from advect.ot.plan import Index, Plan

# laws of the target up to which a thin product with the table is cheaper than looking it up
FEW_LAWS = 64
_LIGHT = 1e-6  # share of a law's mass that no gradient in float32 resolves
_ENTRIES = 4_000_000  # of a block that is looked up at a time
_MAX_EIGEN = 512  # laws, for the bound by eigenvalues
_ROUNDING = 1e-6  # of the largest distance, the error of float32


@dataclass(frozen=True, eq=False)
class Assignment:
    """The label laws of samples: one law each (``codes``), or ``probabilities`` (n, k)."""

    n_laws: int
    codes: Tensor
    probabilities: Tensor | None = None

    @classmethod
    def of(cls, data: LabeledDataset, n_laws: int) -> Assignment:
        if data.probabilities is None:
            return cls(n_laws, law_rows(data))
        return cls(n_laws, data.y, data.probabilities)

    def at(self, rows: Index) -> Assignment:
        """The assignment of some samples."""
        shares = self.probabilities
        return Assignment(self.n_laws, self.codes[rows], None if shares is None else shares[rows])

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """Q, (n, k)."""
        if self.probabilities is not None:
            return self.probabilities.to(dtype)
        return one_hot(self.codes, self.n_laws).to(dtype)

    def rows(self, table: Tensor) -> Tensor:
        """Q times a table (k, …)."""
        if self.probabilities is not None:
            return self.probabilities.to(table.dtype) @ table
        return table[self.codes]

    def columns(self, rows: Tensor) -> Tensor:
        """Rows (b, k) times Qᵀ, (b, n)."""
        if self.probabilities is not None:
            return rows @ self.probabilities.to(rows.dtype).T
        return rows.index_select(1, self.codes)

    def sums(self, rows: Tensor) -> Tensor:
        """Qᵀ times rows (n, …): sums by law."""
        if self.probabilities is not None:
            return self.probabilities.to(rows.dtype).T @ rows
        return rows.new_zeros(self.n_laws, *rows.shape[1:]).index_add_(0, self.codes, rows)

    def self_terms(self, distances: Tensor) -> Tensor:
        """½ pᵀ D p of each sample, (n,); zero for ordinary labels."""
        if self.probabilities is None:
            return distances.new_zeros(len(self.codes))
        shares = self.probabilities.to(distances.dtype)
        return torch.linalg.vecdot(shares @ distances, shares) / 2


@dataclass(frozen=True, eq=False)
class LabelTable:
    """The label part of a ground cost between two datasets, or of one with itself (``symmetric``).

    Attributes:
        distances: D, with a graph to whatever the laws come from.
        sides: the assignments of both datasets.
        weight: w, of labels against features.
        within: D_a and D_b, where labels are soft.
    """

    distances: Tensor
    sides: tuple[Assignment, Assignment]
    weight: float
    within: tuple[Tensor, Tensor] | None = None
    symmetric: bool = False

    @property
    def is_thin(self) -> bool:
        """Whether there are so few laws that the label part is a product of thin factors."""
        return self.distances.shape[1] <= FEW_LAWS

    @cached_property
    def _values(self) -> Tensor:
        """w/2 D without a graph."""
        return self.weight / 2 * self.distances.detach()

    @cached_property
    def _self_terms(self) -> tuple[Tensor, Tensor] | None:
        """w/2 ½ pᵀ D_a p and w/2 ½ qᵀ D_b q without a graph, in float64; None for ordinary labels."""
        if self.within is None:
            return None
        first, second = (
            self.weight / 2 * side.self_terms(distances.detach().double())
            for side, distances in zip(self.sides, self.within, strict=True)
        )
        return first, second

    def factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Thin matrices (n, r) and (m, r) whose product is the label part."""
        left = self.sides[0].rows(self._values.double()).to(dtype)
        right = self.sides[1].matrix(dtype)
        if self._self_terms is None:
            return left, right
        own, other = (part.to(dtype)[:, None] for part in self._self_terms)
        ones = torch.ones_like(own), torch.ones_like(other)
        return torch.cat([left, -own, ones[0]], dim=1), torch.cat([right, ones[1], -other], dim=1)

    def add(self, out: Tensor, rows: Index, columns: Index) -> Tensor:
        """Add the label part of some rows and columns to ``out``, a block at a time."""
        source, target = self.sides[0].at(rows), self.sides[1].at(columns)
        step = max(1, _ENTRIES // max(1, out.shape[1]))
        for start in range(0, len(out), step):
            block = slice(start, start + step)
            made = target.columns(source.at(block).rows(self._values))
            if self._self_terms is not None:
                own, other = self._self_terms
                made = made - own[rows][block, None] - other[columns]
            out[block] += made.to(out.dtype)
        return out

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j of the label part, for float64 weights."""
        mean = self.sides[0].sums(a) @ self._values.to(a.dtype) @ self.sides[1].sums(b)
        if self._self_terms is None:
            return mean
        own, other = self._self_terms
        return mean - (a @ own) * b.sum() - (b @ other) * a.sum()

    @cached_property
    def floor(self) -> float:
        """A lower bound of the label part: 0, or for soft labels the least eigenvalue of −½ J D J times
        ‖p − q‖² ≤ 2.
        """
        if self.within is None:
            return 0.0
        between = self.distances.detach().double()
        own = [part.detach().double() for part in self.within]
        joint = own[0]
        if not self.symmetric:
            rows = torch.cat([own[0], between], dim=1), torch.cat([between.T, own[1]], dim=1)
            joint = torch.cat(rows)
        if len(joint) > _MAX_EIGEN:  # the bound of the formula
            return -self.weight / 4 * (float(own[0].max()) + float(own[1].max()))
        centred = joint - joint.mean(dim=0, keepdim=True)
        centred = centred - centred.mean(dim=1, keepdim=True)
        least = self.weight * float(torch.linalg.eigvalsh(-(centred + centred.T) / 4)[0])
        return 0.0 if least > -self.weight / 2 * _ROUNDING * float(joint.abs().max()) else least

    @property
    def largest(self) -> Tensor:
        """A bound of what labels cost, without the weight, as a number on the device."""
        parts = [
            part.detach().abs().max().double() for part in (self.distances, *(self.within or ()))
        ]
        return parts[0] if self.within is None else parts[0] + (parts[1] + parts[2]) / 2

    def class_plan(self, plan: Plan, by_law: Tensor | None = None) -> Tensor:
        """M = Qᵀ P Q', (k, k'); ``by_law`` is P Q' where it is known."""
        if by_law is None and self.is_thin:
            by_law = plan @ self.sides[1].matrix(self.distances.dtype)
        if by_law is not None:
            return self.sides[0].sums(by_law)
        result = torch.zeros_like(self.distances, requires_grad=False)
        for rows, columns, part in plan.pieces():
            part = part.to(result.dtype)
            sums = self.sides[1].at(columns).sums(part.T).T
            result += self.sides[0].at(rows).sums(sums)
        return result

    def contract(self, plan: Plan, by_law: Tensor | None) -> Tensor:
        """⟨P, label part⟩, differentiable in the laws; ``by_law`` is P Q' where it is known.

        In float32 without pairs of laws that have less than a millionth of the mass of either.
        """
        masses = self.class_plan(plan, by_law)
        if masses.dtype == torch.float32:
            least = torch.minimum(masses.sum(dim=1, keepdim=True), masses.sum(dim=0, keepdim=True))
            masses = masses * (masses > _LIGHT * least)
        value = (masses * self.distances).sum().double()
        if self.within is not None:
            ones = [
                torch.ones(size, 1, dtype=masses.dtype, device=masses.device) for size in plan.shape
            ]
            rows = plan @ ones[1] if by_law is None else by_law
            rows, columns = rows.sum(dim=1), (plan.T @ ones[0])[:, 0]  # rows of Q' sum to 1
            value = value - self._self_cost(0, rows) - self._self_cost(1, columns)
        return self.weight / 2 * value

    def _self_cost(self, side: int, mass: Tensor) -> Tensor:
        """Σ m_i ½ p_iᵀ D p_i of a side, with a graph to the distances."""
        assert self.within is not None
        shares, distances = self.sides[side].probabilities, self.within[side]
        if shares is None:
            return distances.new_zeros((), dtype=torch.float64)
        pairs = shares.T @ (mass.to(shares)[:, None] * shares)
        return (pairs.to(distances.dtype) * distances).sum().double() / 2

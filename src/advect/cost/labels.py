"""Label costs: squared distances between the laws of labels (paper, section 2.3).

A label cost maps two datasets to a table D (k, k') of squared distances between label laws, such as
W₂²(α_y, α_y'), differentiable in the tensors that define the laws. Each dataset assigns its samples to laws
by a matrix Q (n, k): one-hot for ordinary labels, probabilities for soft ones. For rows p, q of the
assignments the label part of the ground cost is

    c(p, q) = w/2 (pᵀ D q − ½ pᵀ D_a p − ½ qᵀ D_b q)

with distances D_a, D_b within either dataset. The self terms vanish for ordinary labels, which cost
w/2 D[y, y']. They belong to rows and columns, so they change no plan and cancel in a debiased distance.
If the distances are Euclidean (one dimension, diagonal laws, means) c is w/2 ‖Σ p α − Σ q α'‖². W₂² of
full covariances is not Euclidean: c can fall below zero, by at most ``floor``.

The cost of a plan P needs only the class plan M = Qᵀ P Q'. Its gradient in the laws is that of ⟨M, D⟩.

Laws that are points of a Euclidean space, one for each sample, need no table: √w times their
coordinates are appended to the features (``LabelCost.coordinates``, ``TargetValues``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util import InputError, check_finite
from advect.data import LabeledDataset, diagonal_laws, law_rows
from advect.data.laws import SMALL_FACTORS, Factored, Gaussians, bures
from advect.ot import Index, Plan

# laws of the target up to which a thin product with the table is cheaper than looking it up
FEW_LAWS = 64
# relative error of label distances between float32 datasets, about that of the feature cost
SINGLE_LABELS = 4e-6
_LIGHT = 1e-6  # share of the mass of a law below which float32 gradients are not resolved
_ENTRIES = 4_000_000  # entries of a block that is looked up at a time
_MAX_EIGEN = 512  # laws, for the bound by eigenvalues
_ROUNDING = 1e-6  # of the largest distance, the error of float32


@dataclass(frozen=True, eq=False)
class Assignment:
    """The label laws of samples, Q: one law each (``codes``), or ``probabilities`` (n, k)."""

    n_laws: int
    codes: Tensor
    probabilities: Tensor | None = None

    def at(self, rows: Index) -> Assignment:
        """The assignment of some samples."""
        shares = self.probabilities
        return Assignment(self.n_laws, self.codes[rows], None if shares is None else shares[rows])

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """Q, (n, k)."""
        if self.probabilities is not None:
            return self.probabilities.to(dtype)
        return torch.eye(self.n_laws, dtype=dtype, device=self.codes.device)[self.codes]

    def rows(self, table: Tensor) -> Tensor:
        """Q times a table (k, …)."""
        if self.probabilities is not None:
            return self.probabilities.to(table.dtype) @ table
        return table[self.codes]

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


class LabelTable:
    """The label part of a ground cost between two datasets, or of one with itself (``symmetric``).

    Attributes:
        distances: D, with a graph to whatever the laws come from.
        sides: the assignments of both datasets.
        weight: w, of labels against features.
        within: D_a and D_b, where labels are soft.
        is_thin: whether there are so few laws that the label part is a product of thin factors.
        floor, largest: a lower bound of the label part, and a bound of its size on the device.
    """

    def __init__(
        self,
        distances: Tensor,
        sides: tuple[Assignment, Assignment],
        weight: float,
        within: tuple[Tensor, Tensor] | None = None,
        symmetric: bool = False,
    ) -> None:
        self.distances, self.sides, self.weight = distances, sides, weight
        self.within, self.symmetric = within, symmetric
        self.is_thin, self.floor = distances.shape[1] <= FEW_LAWS, 0.0
        self._values = weight / 2 * distances.detach()
        self.largest = self._values.abs().max().double()
        self._self_terms: list[Tensor] = []
        if within is not None:
            wide = [part.detach().double() for part in within]
            self.floor = self._least(wide)
            self.largest = self.largest + weight / 4 * (wide[0].abs().max() + wide[1].abs().max())
            self._self_terms = [
                weight / 2 * side.self_terms(part) for side, part in zip(sides, wide, strict=True)
            ]

    def select(self, rows: Tensor, columns: Tensor) -> LabelTable:
        """The label part between some rows and some columns."""
        sides = self.sides[0].at(rows), self.sides[1].at(columns)
        return LabelTable(self.distances, sides, self.weight, self.within, self.symmetric)

    def factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Thin matrices (n, r) and (m, r) whose product is the label part."""
        # Q D · Q'ᵀ, and the self terms as two more columns: (Q D, −s, 1) · (Q', 1, −s')
        left = (self.sides[0].matrix(torch.float64) @ self._values.double()).to(dtype)
        right = self.sides[1].matrix(dtype)
        if not self._self_terms:
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
            by_law = source.at(block).rows(self._values)
            if target.probabilities is not None:
                made = by_law @ target.probabilities.to(by_law.dtype).T
            else:
                made = by_law.index_select(1, target.codes)
            if self._self_terms:
                own, other = self._self_terms
                made = made - own[rows][block, None] - other[columns]
            out[block] += made.to(out.dtype)
        return out

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j of the label part, for float64 weights."""
        mean = self.sides[0].sums(a) @ self._values.to(a.dtype) @ self.sides[1].sums(b)
        if not self._self_terms:
            return mean
        own, other = self._self_terms
        return mean - (a @ own) * b.sum() - (b @ other) * a.sum()

    def class_plan(self, plan: Plan, by_law: Tensor | None = None) -> Tensor:
        """M = Qᵀ P Q', (k, k'); ``by_law`` is P Q' where it is known."""
        # Few laws: P Q' is one thin product. Many: sums over blocks of the plan.
        if by_law is None and self.is_thin:
            by_law = plan.times(self.sides[1].matrix(self.distances.dtype))
        if by_law is not None:
            return self.sides[0].sums(by_law)
        result = torch.zeros_like(self.distances, requires_grad=False)
        for rows, columns, part in plan.pieces():
            part = part.to(result.dtype)
            result += self.sides[0].at(rows).sums(self.sides[1].at(columns).sums(part.T).T)
        return result

    def contract(self, plan: Plan, by_law: Tensor | None) -> Tensor:
        """⟨P, label part⟩, differentiable in the laws; ``by_law`` is P Q' where it is known.

        In float32 without pairs of laws that have less than a millionth of the mass of either.
        """
        # ⟨P, Q D Q'ᵀ⟩ = ⟨M, D⟩ with the class plan M, whose gradient in D is M
        masses = self.class_plan(plan, by_law)
        if masses.dtype == torch.float32:
            least = torch.minimum(masses.sum(dim=1, keepdim=True), masses.sum(dim=0, keepdim=True))
            masses = masses * (masses > _LIGHT * least)
        value = (masses * self.distances).sum().double()
        # minus the self terms of the rows and of the columns, weighted by the marginals of the plan
        if self.within is not None:
            ones = [masses.new_ones(size, 1) for size in plan.shape]
            rows = plan.times(ones[1]) if by_law is None else by_law
            rows, columns = rows.sum(dim=1), plan.transposed(ones[0])[:, 0]  # rows of Q' sum to 1
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

    def _least(self, within: list[Tensor]) -> float:
        """A lower bound of the cost of soft labels: with J = I − 11ᵀ/k, the least eigenvalue of −½ J D J
        times ‖p − q‖² ≤ 2.
        """
        # pᵀDq − ½pᵀDp − ½qᵀDq = −½ (p − q)ᵀ D (p − q) on the joint set of laws, and p − q sums to zero
        joint = within[0]
        if not self.symmetric:
            between = self.distances.detach().double()
            rows = [within[0], between], [between.T, within[1]]
            joint = torch.cat([torch.cat(row, dim=1) for row in rows])
        if len(joint) > _MAX_EIGEN:  # the bound of the formula
            return -self.weight / 4 * (float(within[0].max()) + float(within[1].max()))
        centred = joint - joint.mean(dim=0, keepdim=True)
        centred = centred - centred.mean(dim=1, keepdim=True)
        least = self.weight * float(torch.linalg.eigvalsh(-(centred + centred.T) / 4)[0])
        return 0.0 if least > -self.weight / 2 * _ROUNDING * float(joint.abs().max()) else least


class LabelCost(ABC):
    """Squared distances between the label laws of two datasets, or of one with itself (``source is
    target``).

    A user-defined cost defines ``__call__``; a plain function works too.

    Example:
        >>> import advect as ad
        >>> class ByInitial(ad.LabelCost):
        ...     def __call__(self, source, target):
        ...         return source.x.new_tensor([[float(a[0] != b[0]) for b in target.classes] for a in source.classes])
        >>> data = ad.LabeledDataset([[0.0], [0.0]], ["ant", "bee"])
        >>> ad.GroundCost(label=ByInitial()).between(data, data).matrix().tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """

    # whether labels cost anything
    costs: ClassVar[bool] = True
    # whether names of classes count, in addition to their laws
    names_count: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        """(k, k'), a row for each law of the source, differentiable in the tensors that define the laws."""

    def coordinates(self, data: LabeledDataset) -> tuple[Tensor, ...]:
        """The laws of a dataset as points whose squared distances are those of the laws: a row for
        each law and columns in some parts, differentiable; none where they are no points.
        """
        return ()

    def together(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """The distances between both datasets, within the source and within the target, where it is
        cheaper to compute them at once; else None.
        """
        return None

    def joined(self, feature: Any, weight: float) -> Any:
        """The feature cost with labels as additional coordinates, for label costs that need no table
        (``TargetValues``).
        """
        return feature

    def fitted(self, source: LabeledDataset, target: LabeledDataset, feature: Any) -> LabelCost:
        """The cost with its data-dependent parts fitted to these datasets; a flow does this once."""
        return self

    def state(self) -> dict[str, Tensor]:
        """The fitted values, for a checkpoint."""
        return {}

    def with_state(self, state: dict[str, Tensor]) -> LabelCost:
        """The fitted cost from a state, which may have further entries."""
        return self

    @property
    def estimates_covariances(self) -> bool:
        """Whether full covariances of classes are estimated for datasets without laws."""
        return False


@dataclass(frozen=True)
class Bures(LabelCost):
    """Gaussian laws: W₂² = ‖μ − μ'‖² + tr(S + S' − 2 (S^½ S' S^½)^½), covariances estimated with n
    − 1.

    Full covariances are never formed: with class factors A, B the last term is the nuclear norm of
    A Bᵀ, of the size of the smaller of samples and dimensions. Given laws of a dataset are used instead of
    estimates.

    Distances are computed at each call, from float64 laws about the centres of the classes. For float64
    datasets they are exact to rounding: the error is at most 1e-9 of the distance or 1e-13 of the traces,
    whichever is larger. For float32 datasets it is at most 4e-6 of the distance or 1e-13 of the traces:
    products are computed in float32 if a check shows that this is precise enough, otherwise in float64. The
    gradient in the features is that of the float64 formula. For float32 datasets its relative error is
    1e-4, by the norm of each class's part for each pair. Pairs with less than 1e-5 of this norm, or 1e-6 of
    the mass of a class, are left out.

    Args:
        diagonal: keep only the variances; coarser, and cheaper in high dimension with large
            classes.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [2.0], [5.0], [7.0]], ["a", "a", "b", "b"])
        >>> ad.Bures()(data, data).tolist()
        [[0.0, 25.0], [25.0, 0.0]]
    """

    diagonal: bool = False

    @property
    def estimates_covariances(self) -> bool:
        return not self.diagonal

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        # Laws that the dataset carries, or estimates from its samples; equal datasets share them.
        laws_a = diagonal_laws(source) if self.diagonal else source.laws()
        laws_b = laws_a
        if source is not target:
            laws_b = diagonal_laws(target) if self.diagonal else target.laws()
        if laws_a.covariance.is_diagonal != laws_b.covariance.is_diagonal and laws_a.dim > 64:
            raise InputError(
                "diagonal laws against full ones need d × d matrices for each pair",
                f"d = {laws_a.dim}",
                "Use Bures(diagonal=True).",
            )
        dtype = torch.promote_types(source.x.dtype, target.x.dtype)
        rtol = 0.0 if dtype == torch.float64 else SINGLE_LABELS
        return bures(laws_a, laws_b, rtol=rtol).to(dtype)

    def together(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        # One batch of small decompositions instead of three. Diagonal laws need none.
        if self.diagonal:
            return None
        laws = source.laws(), target.laws()
        if any(part.covariance.is_diagonal for part in laws):
            return None
        factors = [part.covariance.compressed for part in laws]
        if max(*factors[0].sizes, *factors[1].sizes) > SMALL_FACTORS:
            return None
        rows, sizes = torch.cat([part.rows for part in factors]), factors[0].sizes
        every = Gaussians(
            torch.cat([part.means for part in laws]), Factored(rows, sizes + factors[1].sizes)
        )
        dtype, k = torch.promote_types(source.x.dtype, target.x.dtype), len(sizes)
        table = bures(every, every, rtol=0.0 if dtype == torch.float64 else SINGLE_LABELS).to(dtype)
        return table[:k, k:], table[:k, :k], table[k:, k:]

    def coordinates(self, data: LabeledDataset) -> tuple[Tensor, ...]:
        laws = diagonal_laws(data) if self.diagonal else data.laws()
        return (laws.means, laws.covariance.scales()) if laws.covariance.is_diagonal else ()


def n_laws(data: LabeledDataset) -> int:
    """Rows of a table of label distances for a dataset; unlabeled data has one law, unknown."""
    return len(data.law) if data.law is not None else max(len(data.classes), 1)


def checked_distances(made: object, source: LabeledDataset, target: LabeledDataset) -> Tensor:
    """The result of a label cost, which must be a number for each pair of laws."""
    distances = torch.as_tensor(made, device=source.x.device)
    # one law for each class, or those that the datasets carry; unlabeled data has one, unknown
    laws = [data.classes if data.law is None else data.law for data in (source, target)]
    shape = max(len(laws[0]), 1), max(len(laws[1]), 1)
    if distances.shape != shape:
        raise InputError(
            f"a label cost must return a matrix {shape}, a row for each law of the source and a "
            "column for each law of the target",
            f"shape {tuple(distances.shape)}",
            "There is one law for each class, or for each sample of a dataset with a law_index.",
        )
    distances = distances if distances.is_floating_point() else distances.to(source.x)
    check_finite("the label distances", distances, "Check the label laws.")
    return distances


def label_table(
    source: LabeledDataset,
    target: LabeledDataset,
    distances: Tensor,
    weight: float,
    within: tuple[Tensor, Tensor] | None,
) -> LabelTable:
    """The label part of a cost from distances D between the laws of two datasets; and within each,
    where labels are soft.
    """
    symmetric = source is target
    distances = checked_distances(distances, source, target)
    if within is not None and not symmetric:
        first, second = within
        within = (
            checked_distances(first, source, source),
            checked_distances(second, target, target),
        )
    sides = []
    for data, size in zip((source, target), distances.shape, strict=True):
        shares = data.probabilities
        sides.append(Assignment(size, law_rows(data) if shares is None else data.y, shares))
    return LabelTable(distances, (sides[0], sides[1]), weight, within, symmetric)

"""The ground cost between two given datasets: for a solver a matrix or rows on demand, and for a
plan that was found a number with a gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from advect._util.memory import readable
from advect.cost.feature_pair import FeaturePair
from advect.cost.features import FeatureCost
from advect.cost.labels import SINGLE_LABELS, LabelCost, checked_distances, n_laws
from advect.cost.table import FEW_LAWS, Assignment, LabelTable
from advect.data.dataset import LabeledDataset
from advect.data.labels import law_rows, with_class_laws, with_shared_laws
from advect.data.laws.linalg import mass_centre
from advect.errors import InputError
from advect.ot.blocks import BlockedCost, Rows
from advect.ot.plan import Plan, as_plan

_ROWS = 512  # that are moved at a time


class CostSpec(Protocol):
    """What a pair asks of the ground cost that it was made by."""

    @property
    def label_weight(self) -> float: ...
    @property
    def feature_cost(self) -> FeatureCost: ...
    @property
    def label_cost(self) -> LabelCost: ...
    @property
    def has_labels(self) -> bool: ...
    @property
    def names_count(self) -> bool: ...
    @property
    def by_columns(self) -> bool: ...
    @property
    def estimates_covariances(self) -> bool: ...


class PairCost:
    """The ground cost between two given datasets: a matrix to solve with, and a differentiable
    contraction.
    """

    def __init__(
        self,
        cost: CostSpec,
        source: LabeledDataset,
        target: LabeledDataset,
        features: FeaturePair | None = None,
        labels: LabelTable | None = None,
    ) -> None:
        self.cost, self.source, self.target = cost, source, target
        self._features, self._labels = features, labels

    def with_fixed_labels(
        self, source: LabeledDataset, target: LabeledDataset, limit: float
    ) -> PairCost:
        """The same for equal datasets, with label distances taken now: what they were estimated
        with stays behind. A table of them that would pass ``limit`` bytes is an error.
        """
        if self.has_labels:
            self.check_table(limit)
        return PairCost(
            self.cost, source, target, self.features, self.labels if self.has_labels else None
        )

    @property
    def law_coordinates(self) -> tuple[Tensor, ...]:
        """For each sample of the source its label law as a point, in parts, where laws are points and
        so many that a table of their distances would be as large as the cost; none otherwise.
        """
        if not self.has_labels or self.points is None or n_laws(self.sides[0]) <= FEW_LAWS:
            return ()
        parts, shares = (
            self.cost.label_cost.coordinates(self.sides[0]),
            self.sides[0].probabilities,
        )
        if shares is not None:  # a mixture of points is their mean
            return tuple(shares.to(part.dtype) @ part for part in parts)
        rows = law_rows(self.sides[0])
        each = parts and torch.equal(rows, torch.arange(len(parts[0]), device=rows.device))
        return parts if each else tuple(part[rows] for part in parts)

    def by_classes(self) -> PairCost:
        """The cost with one law for each class: laws of single samples are joined by class."""
        source = with_class_laws(self.source)
        target = source if self.target is self.source else with_class_laws(self.target)
        same = source is self.source and target is self.target
        return self if same else PairCost(self.cost, source, target)

    @property
    def has_labels(self) -> bool:
        """Whether labels cost anything."""
        return self.cost.has_labels

    @property
    def moves(self) -> bool:
        """Whether a gradient is wanted in anything that the cost depends on."""
        with_labels = self.has_labels and self.label_distances.requires_grad
        aims = [d.targets for d in (self.source, self.target) if d.targets is not None]
        own = (self.source.x, self.target.x, *aims)
        return with_labels or any(part.requires_grad for part in own)

    @cached_property
    def features(self) -> FeaturePair:
        """What features cost."""
        return self._features or self.cost.feature_cost.between(self.source, self.target)

    @property
    def points(self) -> tuple[Tensor, Tensor] | None:
        """The samples as points whose squared distance is the feature cost, where there are any."""
        return self.features.points

    @cached_property
    def labels(self) -> LabelTable:
        """What labels cost."""
        if self._labels is not None:
            return self._labels
        (source, target), distances = self.sides, self.label_distances
        laws = Assignment.of(source, n_laws(source)), Assignment.of(target, n_laws(target))
        within, symmetric = None, source is target
        if source.has_soft_labels or target.has_soft_labels:
            within = distances, distances
            if not symmetric:
                first, second = self.cost.label_cost.within(source, target)
                within = (
                    checked_distances(first, source, source),
                    checked_distances(second, target, target),
                )
        return LabelTable(distances, laws, self.cost.label_weight, within, symmetric)

    @cached_property
    def label_distances(self) -> Tensor:
        """W₂² between label laws, a row for each law of the source; differentiable."""
        if self._labels is not None:
            return self._labels.distances
        return checked_distances(self.cost.label_cost(*self.sides), *self.sides)

    @cached_property
    def sides(self) -> tuple[LabeledDataset, LabeledDataset]:
        """The datasets where features are compared: laws live there too; equal laws are one."""
        # before laws are carried, which may have a reason of its own against it
        self.cost.label_cost.check(self.source, self.target)
        features, carry = self.features, self.cost.feature_cost.carry
        source = with_shared_laws(carry(self.source, features.x))
        if self.target is self.source:
            return source, source
        return source, with_shared_laws(carry(self.target, features.y))

    @property
    def _dtype(self) -> torch.dtype:
        return torch.promote_types(self.source.x.dtype, self.target.x.dtype)

    @torch.no_grad()
    def _rows(self, dtype: torch.dtype) -> Rows:
        return self.features.rows(dtype, self.labels if self.has_labels else None)

    def matrix(self, dtype: torch.dtype | None = None) -> Tensor:
        """The cost as an (n, m) matrix, without a graph."""
        self._settle()
        return self._rows(dtype or self._dtype)(slice(None), None)

    def _settle(self) -> None:
        """Make points and the label table, with their graphs, before a matrix is made."""
        _ = self.features, self.labels if self.has_labels else None

    def blocked(
        self, dtype: torch.dtype | None = None, limit: int = 0, beside: int = 0
    ) -> BlockedCost:
        """The cost as blocks of rows, for solves that may take ``limit`` bytes: no (n, m) matrix
        unless it fits.
        """
        dtype, shape = dtype or self._dtype, (len(self.source), len(self.target))
        copies = beside + sum(part.numel() for part in self.points or ()) * dtype.itemsize
        least = copies + BlockedCost.least(shape[1], dtype)
        if limit < least:
            raise InputError(
                "memory_limit must leave room for the features and some rows of costs, "
                f"{readable(least)}",
                readable(limit),
                "Raise it, take fewer samples, or fewer dimensions with Sketch.",
            )
        if self.has_labels:
            copies += self.check_table(limit - least)
        self._settle()
        room = max(0, limit - copies)
        return BlockedCost(lambda: self._rows(dtype), shape, dtype, self.source.x.device, room)

    def check_table(self, room: float) -> int:
        """Bytes of the table of label distances and a copy; an error if there is no room."""
        sizes = [n_laws(side) for side in self.sides]
        table = 2 * sizes[0] * sizes[1] * 8  # distances of laws are computed in float64
        if table > room:
            raise InputError(
                f"the distances between {sizes[0]} and {sizes[1]} label laws need "
                f"{readable(table)}",
                f"{readable(int(max(0, room)))} of memory_limit beside the features",
                "Join the laws of single samples by class (data.replace(law=data.class_laws(), law_index=None); "
                "JointFixedLabels in a flow), raise "
                "memory_limit, or take fewer samples.",
            )
        return table

    def contract(self, plan: Tensor | Plan) -> Tensor:
        """⟨P, C⟩ as a differentiable number: the gradient of a transport value, by the envelope
        theorem.
        """
        plan = as_plan(plan)
        if not self.has_labels:
            return self.features.contract(plan, None)[0] / 2
        labels = self.labels
        # one pass over the plan for features and labels, where there are few laws
        onto = labels.sides[1].matrix(labels.distances.dtype) if labels.is_thin else None
        value, by_law = self.features.contract(plan, onto)
        return value / 2 + labels.contract(plan, by_law)

    def class_plan(self, plan: Tensor | Plan) -> Tensor:
        """The plan summed over pairs of label laws, of the shape of ``label_distances``."""
        return self.labels.class_plan(as_plan(plan))

    @cached_property
    def _sizes(self) -> _Sizes:
        """Numbers that bound the entries of the cost and their rounding, in one transfer."""
        zero = torch.zeros((), dtype=torch.float64, device=self.source.x.device)
        matters = self.has_labels or self.cost.feature_cost.roundings
        labels = zero
        if self.has_labels:
            labels = self.cost.label_weight / 2 * self.labels.largest.detach().double()
        sides = [self.source] if self.target is self.source else [self.source, self.target]
        far = torch.stack([_largest(data.x.detach(), data.weights) for data in sides]).max()
        return _Sizes(*torch.stack([self._reach(), far if matters else zero, labels]).tolist())

    def _reach(self) -> Tensor:
        """max‖x‖ + max‖x'‖ about the common centre; 0 for a function of one's own."""
        if self.points is None:
            return torch.zeros((), dtype=torch.float64, device=self.source.x.device)
        sides = list(zip(self.points, (self.source.weights, self.target.weights), strict=True))
        centre = sum(mass_centre(points, mass) for points, mass in sides) / 2
        sides = sides[:1] * 2 if self.points[1] is self.points[0] else sides
        return torch.stack([_largest(x.detach(), mass, centre) for x, mass in sides]).sum()

    @property
    def largest(self) -> float | None:
        """A bound of the entries, without looking at them; None for a function of one's own."""
        return None if self.points is None else self._sizes.reach**2 / 2 + self._sizes.labels

    def rounding(self, dtype: torch.dtype) -> float:
        """How far entries in this dtype are from ½(‖x − x'‖² + w W₂²) of features and laws as they
        are: a unit of rounding times (‖x‖² + ‖x'‖²) about the common centre, and that of the laws.
        """
        unit, error, reach = _product_unit(dtype, self.source.x.device), 0.0, self._sizes.reach
        if self.points is not None:
            error = unit * (12 + math.sqrt(self.points[0].shape[1]) / 2) * reach**2 / 2
            roundings = self.cost.feature_cost.roundings
            error += roundings * torch.finfo(self.source.x.dtype).eps * self._sizes.far * reach
        if not self.has_labels:
            return error
        # means are rounded at the origin, covariances in the dtype of x
        labels, weight = self._sizes.labels, self.cost.label_weight
        own = max(torch.finfo(data.x.dtype).eps for data in (self.source, self.target))
        wide = torch.finfo(torch.float64).eps
        count = max(len(self.source), len(self.target))
        means = (own + wide * math.sqrt(count)) * 2 * self._sizes.far
        # distances are differences of numbers of this size
        error += (4 * own + 16 * wide) * weight * reach**2
        error += (4 * unit + (SINGLE_LABELS if own > wide else 0.0)) * labels
        return error + math.sqrt(2 * weight * labels) * means + weight / 2 * means**2


@dataclass(frozen=True)
class _Sizes:
    """Sizes of what a cost is made of.

    Attributes:
        reach: max‖x‖ + max‖x'‖ about the common centre: no two points are further apart.
        far: the largest distance from the origin of samples that have mass, where it matters.
        labels: a bound of the part of labels.
    """

    reach: float
    far: float
    labels: float


def _product_unit(dtype: torch.dtype, device: torch.device) -> float:
    """The rounding of a factor of a matrix product, relatively. Where TF32 has been allowed on a
    GPU, products in float32 keep ten bits of a factor: costs are off by what the bounds then say,
    and float64 takes over where that is too much.
    """
    coarse = device.type != "cpu" and torch.backends.cuda.matmul.allow_tf32
    return 2.0**-11 if coarse and dtype == torch.float32 else torch.finfo(dtype).eps / 2


def _largest(points: Tensor, mass: Tensor, centre: Tensor | float = 0.0) -> Tensor:
    """The largest distance from the centre of points that have mass, some rows at a time."""
    parts = zip(points.split(_ROWS), mass.split(_ROWS), strict=True)
    lengths = [(torch.linalg.vector_norm(p - centre, dim=1) * (m > 0)).max() for p, m in parts]
    return torch.stack(lengths).max().double()

"""The ground cost between two given datasets: for a solver a matrix or rows on demand, and for a
plan that was found a number with a gradient.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from advect._util.memory import readable
from advect.cost.feature_pair import FeaturePair
from advect.cost.features import FeatureCost
from advect.cost.label_pair import FEW_LAWS, LabelDistances
from advect.cost.labels import LabelCost, checked_distances, n_laws
from advect.cost.soft_pair import Side, SoftDistances
from advect.data.dataset import LabeledDataset
from advect.data.labels import law_rows, with_class_laws, with_shared_laws
from advect.errors import InputError
from advect.ot.blocks import BlockedCost, Rows
from advect.ot.plan import Plan, as_plan


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
        labels: LabelDistances | SoftDistances | None = None,
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
    def labels(self) -> LabelDistances | SoftDistances:
        """What labels cost."""
        if self._labels is not None:
            return self._labels
        if self.source.has_soft_labels or self.target.has_soft_labels:
            return self._soft_labels()
        return LabelDistances(self.label_distances, self.law_rows, self.cost.label_weight)

    def _soft_labels(self) -> SoftDistances:
        """The cost of soft labels, which needs the distances within either dataset too."""
        (source, target), between = self.sides, self.label_distances
        own = (between, between)
        if source is not target:
            first, second = self.cost.label_cost.within(source, target)
            own = (
                checked_distances(first, source, source),
                checked_distances(second, target, target),
            )
        sides = (Side.of(source), Side.of(target))
        return SoftDistances(between, own, sides, self.cost.label_weight, source is target)

    @cached_property
    def label_distances(self) -> Tensor:
        """W₂² between label laws, a row for each law of the source; differentiable."""
        if self._labels is not None:
            return self._labels.distances
        return checked_distances(self.cost.label_cost(*self.sides), *self.sides)

    @property
    def law_rows(self) -> tuple[Tensor, Tensor]:
        """For each sample of the source its row of ``label_distances``, for each of the target its
        column.
        """
        if self._labels is not None:
            return self._labels.codes
        return law_rows(self.sides[0]), law_rows(self.sides[1])

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
        return self.features.rows(dtype, self.labels.table(dtype) if self.has_labels else None)

    def matrix(self, dtype: torch.dtype | None = None) -> Tensor:
        """The cost as an (n, m) matrix, without a graph."""
        self._settle()
        return self._rows(dtype or self._dtype)(slice(None), None)

    def _settle(self) -> None:
        """Make points and label distances, with their graphs, before a matrix is made."""
        _ = self.features, self.label_distances if self.has_labels else None

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
        return self.contracted(plan)[0]

    def contracted(self, plan: Tensor | Plan) -> tuple[Tensor, Tensor | None]:
        """``contract``, and the plan summed over pairs of laws where labels cost anything."""
        plan = as_plan(plan)
        onto = self.labels.onto if self.has_labels else None
        value, by_law = self.features.contract(plan, onto)
        if not self.has_labels:
            return value / 2, None
        pulled, by_class = self.labels.contract(plan, by_law)
        return value / 2 + pulled, by_class

    def class_plan(self, plan: Tensor | Plan) -> Tensor:
        """The plan summed over pairs of label laws, of the shape of ``label_distances``."""
        return self.labels.class_plan(as_plan(plan))

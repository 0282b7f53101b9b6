"""The ground cost between two given datasets: for a solver a matrix or rows on demand, and for a plan
a number with a gradient.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from advect._util import readable, refuse_if
from advect.cost.features import FeatureCost, PointPair, largest_length
from advect.cost.labels import (
    FEW_LAWS,
    SINGLE_LABELS,
    LabelCost,
    LabelTable,
    checked_distances,
    label_table,
    n_laws,
)
from advect.data import LabeledDataset, law_rows, with_class_laws, with_shared_laws
from advect.ot import BlockedCost, DensePlan, Plan


class Sizes(NamedTuple):
    """Numbers that bound the cost and its rounding.

    Attributes:
        largest: a bound of the entries, without computing them.
        reach: the largest distance between points.
        far: the largest feature where laws are estimated.
        labels: a bound of the label part.
    """

    largest: float
    reach: float
    far: float
    labels: float


class PairCost:
    """The ground cost between two given datasets: a matrix to solve with, and a differentiable
    contraction.

    Attributes:
        parts: feature cost, label cost and label weight of the ground cost.
        source, target: the datasets, which may be one.
        features: the samples as points, whose squared distances are the feature cost.
        labels: the table of label distances, or None if labels cost nothing.
    """

    def __init__(
        self,
        parts: tuple[FeatureCost, LabelCost, float],
        source: LabeledDataset,
        target: LabeledDataset,
        features: PointPair | None = None,
        labels: LabelTable | None = None,
        sizes: Sizes | None = None,
    ) -> None:
        self.parts, self.source, self.target = parts, source, target
        if sizes is not None:
            self.sizes = sizes
        if labels is not None:  # already known
            self.labels = labels
        self.feature_cost, self.label_cost, self.label_weight = parts
        self.features = features or self.feature_cost.between(source, target)
        self.has_labels = self.label_weight > 0 and self.label_cost.costs

    @cached_property
    def sides(self) -> tuple[LabeledDataset, LabeledDataset]:
        """The datasets in the space of the points, where laws are compared; equal laws are one."""
        features, carry = self.features, self.feature_cost.carry
        source, target = self.source, self.target
        if features.x is not source.x:  # otherwise points are features
            source = carry(source, features.x)
            target = source if target is self.source else carry(target, features.y)
        if source.law_index is None and target.law_index is None:
            return source, target
        shared = with_shared_laws(source)
        return shared, shared if target is source else with_shared_laws(target)

    @cached_property
    def labels(self) -> LabelTable | None:
        """The table of label distances with the assignments of samples to laws."""
        if not self.has_labels:
            return None
        # Soft labels also need the distances within each dataset.
        label, (source, target) = self.label_cost, self.sides
        distances, within = label(source, target), None
        if source.probabilities is not None or target.probabilities is not None:
            within = distances, distances
            if source is not target:
                within = label(source, source), label(target, target)
        return label_table(source, target, distances, self.label_weight, within)

    @property
    def label_distances(self) -> Tensor:
        """W₂² between label laws, a row for each law of the source; differentiable."""
        if self.labels is None:  # requested although labels have no cost
            return checked_distances(self.label_cost(*self.sides), *self.sides)
        return self.labels.distances

    def with_fixed_labels(
        self, source: LabeledDataset, target: LabeledDataset, limit: float
    ) -> PairCost:
        """The same cost for equal datasets, with label distances computed now, so that the estimates
        of laws can be freed. A table that would pass ``limit`` bytes is an error.
        """
        if self.has_labels:
            self.check_table(limit)
        return PairCost(self.parts, source, target, self.features, self.labels)

    def select(self, rows: Tensor, columns: Tensor) -> PairCost:
        """The cost between some samples of the source and some of the target. Label laws and bounds of
        rounding are those of the whole datasets.
        """
        (x, y), (a, b) = (self.features.x, self.features.y), self.features.masses
        features = PointPair(x[rows], y[columns], (a[rows], b[columns]))
        labels = None if self.labels is None else self.labels.select(rows, columns)
        return PairCost(self.parts, self.source, self.target, features, labels, self.sizes)

    def law_coordinates(self) -> tuple[Tensor, ...]:
        """For each sample of the source its label law as a point, in parts, where laws are points and
        so many that a table of their distances would be as large as the cost; none otherwise.
        """
        if not self.has_labels or n_laws(self.sides[0]) <= FEW_LAWS:
            return ()
        parts, shares = self.label_cost.coordinates(self.sides[0]), self.sides[0].probabilities
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
        return self if same else PairCost(self.parts, source, target)

    def moves(self) -> bool:
        """Whether a gradient is wanted in anything that the cost depends on."""
        if self.labels is not None and self.labels.distances.requires_grad:
            return True
        return self.features.x.requires_grad or self.features.y.requires_grad

    def matrix(self, dtype: torch.dtype | None = None) -> Tensor:
        """The cost as an (n, m) matrix, without a graph."""
        dtype = dtype or torch.promote_types(self.source.x.dtype, self.target.x.dtype)
        labels = self.labels  # with its graph
        with torch.no_grad():
            return self.features.rows(dtype, labels)(slice(None), None)

    def blocked(
        self, dtype: torch.dtype | None = None, limit: int = 0, extra: int = 0
    ) -> BlockedCost:
        """The cost as blocks of rows, for solves that may take ``limit`` bytes: no (n, m) matrix
        unless it fits.
        """
        dtype = dtype or torch.promote_types(self.source.x.dtype, self.target.x.dtype)
        x, y = self.features.x, self.features.y
        copies = extra + (x.numel() + y.numel()) * dtype.itemsize
        least = copies + BlockedCost.least(len(y), dtype)
        refuse_if(
            limit < least,
            f"memory_limit must leave room for the features and some rows of costs, {readable(least)}",
            readable(limit),
            "Raise it, take fewer samples, or fewer dimensions with ad.harmonize(…, project=k).",
        )
        if self.has_labels:
            copies += self.check_table(limit - least)
        labels = self.labels  # with its graph
        rows = torch.no_grad()(lambda: self.features.rows(dtype, labels))
        return BlockedCost(rows, (len(x), len(y)), dtype, x.device, max(0, limit - copies))

    def check_table(self, room: float) -> int:
        """Bytes of the table of label distances and a copy; an error if there is no room."""
        sizes = [n_laws(side) for side in self.sides]
        table = 2 * sizes[0] * sizes[1] * 8  # distances of laws are computed in float64
        refuse_if(
            table > room,
            f"the distances between {sizes[0]} and {sizes[1]} label laws need {readable(table)}",
            f"{readable(max(0, room))} of memory_limit in addition to the features",
            "Join the laws of single samples by class (data.replace(law=data.class_laws(), law_index=None); "
            "JointFixedLabels in a flow), raise memory_limit, or take fewer samples.",
        )
        return table

    def contract(self, plan: Tensor | Plan) -> Tensor:
        """⟨P, C⟩ as a differentiable number: the gradient of a transport value, by the envelope
        theorem.
        """
        plan = DensePlan(plan) if isinstance(plan, Tensor) else plan
        labels = self.labels
        if labels is None:
            return self.features.contract(plan, None)[0] / 2
        # one pass over the plan for features and labels, where there are few laws
        onto = labels.sides[1].matrix(labels.distances.dtype) if labels.is_thin else None
        value, by_law = self.features.contract(plan, onto)
        return value / 2 + labels.contract(plan, by_law)

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of this cost, in one transfer from the device."""
        points = self.features
        # distances between points are at most the sum of both radii about the common centre
        reach = largest_length(points.x.detach(), points.masses[0], points.centre)
        if points.y is points.x:
            reach = 2 * reach
        else:
            reach = reach + largest_length(points.y.detach(), points.masses[1], points.centre)
        far = labels = torch.zeros_like(reach)
        if self.labels is not None:
            datasets = [self.source] if self.target is self.source else [self.source, self.target]
            far = [largest_length(data.x.detach(), data.weights) for data in datasets]
            labels, far = self.labels.largest, torch.stack(far).max()
        return Sizes(*torch.stack([reach**2 / 2 + labels, reach, far, labels]).tolist())

    def rounding(self, dtype: torch.dtype) -> float:
        """The rounding error of entries in this dtype, relative to ½(‖x − x'‖² + w W₂²) of the given
        features and laws.

        A unit of rounding times (‖x‖² + ‖x'‖²) about the common centre, and that of the laws. Where
        TF32 has been allowed on a GPU, products in float32 keep ten bits of a factor.
        """
        # Features: a product of d terms about the common centre, of numbers up to reach²/2.
        _, reach, far, labels = self.sizes
        coarse = self.source.x.device.type != "cpu" and torch.backends.cuda.matmul.allow_tf32
        unit = torch.finfo(dtype).eps / 2
        unit = 2.0**-11 if coarse and dtype == torch.float32 else unit
        error = unit * (12 + math.sqrt(self.features.x.shape[1]) / 2) * reach**2 / 2
        if not self.has_labels:
            return error
        # Labels: means are rounded at the origin, covariances in the dtype of x.
        weight, wide = self.label_weight, torch.finfo(torch.float64).eps
        own = max(torch.finfo(data.x.dtype).eps for data in (self.source, self.target))
        means = (own + wide * math.sqrt(max(len(self.source), len(self.target)))) * 2 * far
        # Label distances are differences of squared means and traces of this size.
        error += (4 * own + 16 * wide) * weight * reach**2
        error += (4 * unit + (SINGLE_LABELS if own > wide else 0.0)) * labels
        return error + math.sqrt(2 * weight * labels) * means + weight / 2 * means**2

"""The ground cost of labeled samples (paper, section 2.3), with the ½ inside:

    c(z, z') = ½ ( ‖x − x'‖² + label_weight · W₂²(α_y, α_y') )

so that the gradient of a transport value in x_i is mass_i · (x_i − T(x_i)), and epsilon is in the
units of c."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from advect._util import InputError, check_non_negative, defaults
from advect.cost.features import (
    Embeds,
    FeatureCost,
    PointPair,
    SquaredEuclidean,
    as_feature_cost,
)
from advect.cost.label_costs import NoLabels, as_label_cost
from advect.cost.labels import FEW_LAWS, Bures, LabelCost, label_table
from advect.cost.pair import PairCost
from advect.cost.targets import TargetValues
from advect.data import LabeledDataset, require_targets


@dataclass(frozen=True)
class GroundCost:
    """c(z, z') = ½ (d(x, x')² + label_weight · W₂²(α_y, α_y')).

    Args:
        feature: ``SquaredEuclidean()``, ``Embedding(map)``, or your own: a ``FeatureCost`` or any
            object with ``embed(data)``.
        label: the label cost: ``Bures()``, ``ExactLabelOT()``, ``MeansOnly()``,
            ``ByName()``, ``NoLabels()``; for continuous targets ``TargetValues()``; or your own: a ``LabelCost`` or a function
            (source, target) ↦ a matrix (k, k').
        label_weight: weight of the label cost relative to the feature cost; 1 in the paper.

    Attributes:
        feature_cost, label_cost: ``feature`` and ``label`` as costs; labels that are points
            (``TargetValues``) are part of ``feature_cost``.
        has_labels: whether labels cost anything.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [1.0]], ["low", "high"])
        >>> b = ad.LabeledDataset([[0.0], [3.0]], ["low", "high"])
        >>> ad.GroundCost(label=ad.MeansOnly()).between(a, b).matrix().tolist()
        [[0.0, 9.0], [1.0, 4.0]]
    """

    feature: FeatureCost | Embeds = SquaredEuclidean()
    label: LabelCost | Callable[[LabeledDataset, LabeledDataset], Tensor] = Bures()
    label_weight: float = defaults.LOOK.label_weight

    # set once, and no fields
    feature_cost: ClassVar[FeatureCost]
    label_cost: ClassVar[LabelCost]
    has_labels: ClassVar[bool]
    parts: ClassVar[tuple[FeatureCost, LabelCost, float]]

    def __post_init__(self) -> None:
        check_non_negative("label_weight", self.label_weight)
        label = as_label_cost(self.label)
        # labels that are points (``TargetValues``) join the features
        feature = label.joined(as_feature_cost(self.feature), self.label_weight)
        has_labels = self.label_weight > 0 and label.costs
        parts = {"feature_cost": feature, "label_cost": label, "has_labels": has_labels}
        parts["parts"] = feature, label, self.label_weight
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    @property
    def by_columns(self) -> bool:
        """Whether columns of the features count by the squares of their differences."""
        return self.feature_cost.by_columns

    @property
    def names_count(self) -> bool:
        """Whether the cost depends on the names of classes."""
        return self.has_labels and self.label_cost.names_count

    @property
    def estimates_covariances(self) -> bool:
        """Whether full covariances of classes are estimated, of as many dimensions as columns."""
        return self.by_columns and self.has_labels and self.label_cost.estimates_covariances

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> GroundCost:
        """The cost with its data-dependent parts (of ``ByName`` and ``TargetValues``) fitted to these datasets."""
        # Squares of very small numbers underflow, and all distances would be 0. (Different dimensions
        # are refused by ``between``.)
        if source.dim == target.dim:
            ends = torch.stack(
                [*torch.aminmax(source.x.detach(), dim=0), *torch.aminmax(target.x.detach(), dim=0)]
            )
            spread = float((ends[1::2].amax(dim=0) - ends[::2].amin(dim=0)).max())
            tiny = min(torch.finfo(data.x.dtype).tiny for data in (source, target))
            if 0 < spread < math.sqrt(tiny) * 1e4:
                raise InputError(
                    "features must have differences whose squares do not underflow in "
                    f"{source.x.dtype}",
                    f"a range of {spread:.1e}",
                    "Multiply them by a number, or take data.to(dtype=torch.float64).",
                )
        feature = self.feature_cost.fitted(source, target)
        label = self.label_cost.fitted(source, target, feature)
        same = feature is self.feature_cost and label is self.label_cost
        return self if same else self._with(feature, label)

    def state(self) -> dict[str, Tensor]:
        """The fitted values, for a checkpoint."""
        return self.feature_cost.state() | self.label_cost.state()

    def with_state(self, state: dict[str, Tensor]) -> GroundCost:
        """The fitted cost from a state, which may have further entries."""
        if not state:
            return self
        return self._with(self.feature_cost.with_state(state), self.label_cost.with_state(state))

    def _with(self, feature: FeatureCost, label: LabelCost) -> GroundCost:
        if feature is self.feature_cost:
            return self if label is self.label_cost else replace(self, label=label)
        # a feature cost that holds the labels already must not be joined with them again
        holds_labels = label.joined(feature, self.label_weight) is not feature
        return replace(self, feature=feature, label=NoLabels() if holds_labels else label)

    def widened(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[GroundCost, LabeledDataset, LabeledDataset]:
        """The cost and the datasets in float64."""
        if not self.has_labels:
            first = source._replace(law=None, law_index=None)
            target = first if target is source else target._replace(law=None, law_index=None)
            source = first
        feature, source, target = self.feature_cost.widened(source, target)
        return self._with(feature, self.label_cost), source, target

    def between(self, source: LabeledDataset, target: LabeledDataset) -> PairCost:
        """The cost between the samples of two datasets (or of one with itself)."""
        self._check(source, target)
        return PairCost(self.parts, source, target)

    def between_all(
        self, source: LabeledDataset, target: LabeledDataset, limit: float | None = None
    ) -> tuple[PairCost, PairCost, PairCost]:
        """The costs of a debiased distance: between source and target, within the source, within
        the target; samples are embedded once.

        With a memory limit, label distances are computed at once on copies, so that cached laws are freed
        before a solve starts. A table of more than ``limit`` bytes is an error.
        """
        self._check(source, target)
        a, b = source, target
        if limit is not None:
            a = source._replace()
            b = a if target is source else target._replace()
        points = self.feature_cost.between(a, b)
        (x, y), (p, q) = (points.x, points.y), points.masses
        pairs = (
            PairCost(self.parts, a, b, points),
            PairCost(self.parts, a, a, PointPair(x, x, (p, p))),
            PairCost(self.parts, b, b, PointPair(y, y, (q, q))),
        )
        if limit is not None:
            ends = ((source, target), (source, source), (target, target))
            fixed = [p.with_fixed_labels(*at, limit) for p, at in zip(pairs, ends, strict=True)]
            return fixed[0], fixed[1], fixed[2]
        # Small laws: one batch of decompositions gives the tables of all three costs. Otherwise each
        # table is computed when its cost is first used.
        together = None
        if self.has_labels and a is not b:
            a, b = pairs[0].sides
            together = self.label_cost.together(a, b)
        if together is None:
            return pairs
        across, first, second = together
        soft, w = (a.has_soft_labels or b.has_soft_labels), self.label_weight
        tables = (
            label_table(a, b, across, w, (first, second) if soft else None),
            label_table(a, a, first, w, (first, first) if soft else None),
            label_table(b, b, second, w, (second, second) if soft else None),
        )
        known = [
            PairCost(self.parts, pair.source, pair.target, pair.features, table)
            for pair, table in zip(pairs, tables, strict=True)
        ]
        return known[0], known[1], known[2]

    def within(self, data: LabeledDataset) -> PairCost:
        """The cost between the samples of a dataset and themselves. Where each sample has a law of its
        own, and laws are points, a sample is a point (x, √w α) and no table of laws is made:

            ½ (‖x − x'‖² + w ‖α − α'‖²)  =  ½ ‖(x, √w α) − (x', √w α')‖²

        Example:
            >>> import torch, advect as ad
            >>> from advect.data.laws import Diagonal
            >>> laws = ad.Gaussians(torch.rand(90, 2), Diagonal(torch.rand(90, 2)))
            >>> data = ad.LabeledDataset(torch.rand(90, 2), [0] * 90, law=laws, law_index=range(90))
            >>> cost, together = ad.GroundCost(), ad.GroundCost().within(data)
            >>> together.source.dim, torch.allclose(together.matrix(), cost.between(data, data).matrix(), atol=1e-5)
            (6, True)
        """
        pair = PairCost(self.parts, data, data)
        if data.law_index is None and len(data.classes) <= FEW_LAWS:
            return pair
        laws = pair.law_coordinates()
        if not laws:
            return pair
        # one point (x, √w α) for each sample, and no table of n × n label distances
        x, scale = pair.features.x, math.sqrt(self.label_weight)
        scaled = [part.to(x.dtype) if scale == 1 else scale * part.to(x.dtype) for part in laws]
        joined = torch.cat([x, *scaled], dim=1)
        points = data._replace(
            x=joined, sample_shape=(joined.shape[1],), columns=None, law=None, law_index=None
        )
        return GroundCost(label=NoLabels()).between(points, points)

    def _check(self, source: LabeledDataset, target: LabeledDataset) -> None:
        if self.has_labels and not (source.has_classes and target.has_classes):
            raise InputError(
                f"{type(self.label_cost).__name__} compares classes",
                "continuous targets without labels",
                "Use label=ad.TargetValues() or ad.NoLabels().",
            )
        alike = source.dim == target.dim and source.columns == target.columns
        if self.feature_cost.one_space and not alike:
            check_features(source, target)
        if source.x.device != target.x.device:
            raise InputError(
                "both datasets must be on one device",
                f"{source.x.device} and {target.x.device}",
                "Move one with .to(device).",
            )


def check_cost(cost: object) -> GroundCost | None:
    """A ground cost or None; an error for a part of one."""
    if cost is None or isinstance(cost, GroundCost):
        return cost
    part = "label" if isinstance(cost, LabelCost) else "feature"
    raise InputError(
        "cost must be a GroundCost",
        repr(cost),
        f"Wrap it as ad.GroundCost({part}=…), or pass None.",
    )


_DEFAULT = GroundCost()


def cost_for(cost: GroundCost | None, *datasets: LabeledDataset) -> GroundCost:
    """The given cost, or the default: values of targets if a dataset has no labels, else Bures."""
    known = cost if cost is None else check_cost(cost)
    if known is not None:
        return known
    if all(data.has_classes for data in datasets):
        return _DEFAULT
    for data in datasets:
        require_targets(data, "a comparison with a dataset of continuous targets")
    return GroundCost(label=TargetValues())


def check_features(source: LabeledDataset, target: LabeledDataset) -> None:
    """Both have as many features, and the same columns where these have names."""
    if source.dim != target.dim:
        raise InputError(
            "both datasets must live in one feature space",
            f"dimensions {source.dim} and {target.dim} (sample shapes {source.sample_shape} "
            f"and {target.sample_shape})",
            "Bring them together with ad.harmonize(source, target).",
        )
    if source.columns != target.columns and source.columns and target.columns:
        raise InputError(
            "both datasets must have the same columns in the same order",
            f"{', '.join(source.columns[:5])} … and {', '.join(target.columns[:5])} …",
            "Align them by name with ad.harmonize(source, target).",
        )

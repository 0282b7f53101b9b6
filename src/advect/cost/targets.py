"""The cost of continuous targets, which are additional coordinates of the features,

    c(z, z') = ½ (‖x − x'‖² + w ‖y − y'‖²)  =  ½ ‖(x, √w y) − (x', √w y')‖²

so every solver treats them as features, and there is no table of labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect._util import InputError, refuse_if
from advect.cost.features import FeatureCost, PointPair
from advect.cost.labels import LabelCost, n_laws
from advect.data import LabeledDataset, require_targets


@dataclass(frozen=True)
class TargetValues(LabelCost):
    """w ‖y − y'‖² of continuous targets, for tables whose targets mean the same.

    Use it as ``ad.GroundCost(label=ad.TargetValues())``; it is the default for datasets with
    targets and no labels. w is ``label_weight``.

    Args:
        scaled: divide each target by its deviation within the datasets, so that at label_weight 1
            all targets together count as much as all features together: w = (variance of the
            features) / (q · variance of the target), the mean of both datasets, fitted once and
            stored in checkpoints. With False, w is label_weight.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [0.0]], targets=[1.0, 2.0])
        >>> b = ad.LabeledDataset([[3.0]], targets=[5.0])
        >>> cost = ad.GroundCost(label=ad.TargetValues(scaled=False), label_weight=2.0)
        >>> cost.between(a, b).matrix().tolist()              # ½ (9 + 2 · 16), ½ (9 + 2 · 9)
        [[20.5], [13.5]]
    """

    scaled: bool = True
    costs = False  # as a table: classes have no cost

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return source.x.new_zeros(n_laws(source), n_laws(target))

    def joined(self, feature: FeatureCost, weight: float) -> FeatureCost:
        return WithTargetValues(feature, weight, self.scaled) if weight > 0 else feature


@dataclass(frozen=True, eq=False)
class WithTargetValues(FeatureCost):
    """Points (φ(x), √w (y − centre)), scaled by columns of y."""

    feature: FeatureCost
    weight: float
    scaled: bool
    scale: Tensor | None = None
    centre: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("one_space", "linear"):
            object.__setattr__(self, name, getattr(self.feature, name))

    def between(self, source: LabeledDataset, target: LabeledDataset) -> PointPair:
        if self.scale is not None:
            return super().between(source, target)
        return self.fitted(source, target).between(source, target)

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        """Label laws are compared in the feature space, as without targets."""
        return self.feature.carry(data, self.feature.points(data))

    def widened(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[FeatureCost, LabeledDataset, LabeledDataset]:
        feature, source, target = self.feature.widened(source, target)
        return replace(self, feature=feature), source, target

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> WithTargetValues:
        if self.scale is not None:
            return self
        feature, sides = self.feature.fitted(source, target), (source, target)
        values = [require_targets(data, "TargetValues").detach() for data in sides]
        _check_widths(values)
        masses = [data.weights.double() for data in sides]
        centre = torch.stack([w @ y for w, y in zip(masses, values, strict=True)]).mean(dim=0)
        scale = torch.full_like(centre, math.sqrt(self.weight))
        # With w = (variance of the features) / (q · variance of the target) all targets together have
        # the spread of the features.
        if self.scaled:
            points = [feature.points(data).detach().double() for data in sides]
            spread = _spreads(points, masses).sum()
            spreads = _spreads(values, masses)
            some = (spreads > 0) & (spread > 0)
            ratio = spread / (len(scale) * torch.where(spreads > 0, spreads, 1.0))
            scale = torch.where(some, scale * ratio.sqrt(), scale)
        return replace(self, feature=feature, scale=scale, centre=centre)

    def state(self) -> dict[str, Tensor]:
        if self.scale is None or self.centre is None:
            return self.feature.state()
        return self.feature.state() | {"values_scale": self.scale, "values_centre": self.centre}

    def with_state(self, state: dict[str, Tensor]) -> WithTargetValues:
        if "values_scale" not in state:
            return self
        fitted = {"scale": state["values_scale"], "centre": state["values_centre"]}
        return replace(self, feature=self.feature.with_state(state), **fitted)

    def embed(self, data: LabeledDataset) -> Tensor:
        if self.scale is None or self.centre is None:
            raise InputError(
                "a cost of targets must be fitted first",
                self,
                "Take cost.fitted(source, target), or ad.otdd, which does it.",
            )
        targets = require_targets(data, "TargetValues")
        _check_widths([self.centre[None], targets])
        x = self.feature.points(data)
        return torch.cat([x, ((targets - self.centre) * self.scale).to(x)], dim=1)


def _check_widths(values: list[Tensor]) -> None:
    refuse_if(
        values[0].shape[1] != values[1].shape[1],
        "both datasets must have the same targets",
        f"{values[0].shape[1]} and {values[1].shape[1]} for each sample",
        "Use the targets that both have.",
    )


def _spreads(parts: list[Tensor], masses: list[Tensor]) -> Tensor:
    """The variance of each column within two datasets, averaged; between them if it is 0 within."""
    within = torch.stack([column_variances(x, w) for x, w in zip(parts, masses, strict=True)]).mean(
        dim=0
    )
    both = column_variances(torch.cat(parts), torch.cat(masses) / 2)
    return torch.where(within > 0, within, both)


def column_variances(x: Tensor, mass: Tensor) -> Tensor:
    """The variance of each column, exactly 0 for a constant one."""
    return (x.amax(dim=0) > x.amin(dim=0)).double() * (mass @ (x - mass @ x).square())

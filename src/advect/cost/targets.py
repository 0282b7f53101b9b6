"""What it costs to change a continuous target: a distance of values, or of the laws of features
given the target.

Both are squared distances of points, so they join the features as more coordinates,

    c(z, z') = ½ (‖x − x'‖² + w ‖y − y'‖²)  =  ½ ‖(x, √w y) − (x', √w y')‖²

and every solver takes them as it takes features; there is no table of labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from advect._util.checks import check_positive
from advect._util.linalg import mass_centre
from advect.cost.feature_pair import FeaturePair
from advect.cost.features import FeatureCost
from advect.cost.ground import GroundCost, check_cost
from advect.cost.labels import LabelCost, n_laws
from advect.data.dataset import LabeledDataset
from advect.data.laws.conditional import conditional_moments, rank_bandwidth, target_ranks
from advect.errors import InputError


class TargetCost(LabelCost):
    """What both costs of targets share: classes cost nothing, targets are points."""

    costs = False

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return source.x.new_zeros(n_laws(source), n_laws(target))

    def joined(self, feature: FeatureCost, weight: float) -> FeatureCost:
        if not feature.has_points:
            raise InputError(
                f"{type(self).__name__} needs a feature cost of points",
                "a function of pairs",
                "Write a class with embed(data), as in docs/extending.md.",
            )
        return self.beside(feature, weight) if weight > 0 else feature

    def beside(self, feature: FeatureCost, weight: float) -> FeatureCost:
        """The features and the targets as points of one space."""
        raise NotImplementedError


@dataclass(frozen=True)
class TargetValues(TargetCost):
    """w ‖y − y'‖² of continuous targets: for tables whose targets mean the same in the same units.

    Use it as ``ad.GroundCost(label=ad.TargetValues())``, which is the default where datasets have
    targets and no labels. w is ``label_weight``.

    Args:
        scaled: divide each target by its deviation within the datasets, so that at label_weight 1 all
            targets together count as all features together, whatever their units: w = (variance of
            the features) / (q · variance of the target), the mean of both datasets, found once and
            kept in checkpoints. With False, w is label_weight as it is.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [0.0]], targets=[1.0, 2.0])
        >>> b = ad.LabeledDataset([[3.0]], targets=[5.0])
        >>> cost = ad.GroundCost(label=ad.TargetValues(scaled=False), label_weight=2.0)
        >>> cost.between(a, b).matrix().tolist()              # ½ (9 + 2 · 16), ½ (9 + 2 · 9)
        [[20.5], [13.5]]
    """

    scaled: bool = True

    def beside(self, feature: FeatureCost, weight: float) -> FeatureCost:
        return ValuesBeside(feature, weight, self.scaled)


@dataclass(frozen=True)
class TargetLaws(TargetCost):
    """W₂² between the laws of features given the targets: the analogue of label laws, for tables whose
    targets are in other units, or other functions of one another.

    Around each target, features have a mean m(y) and deviations σ(y) under a Gaussian kernel on the
    ranks of the targets; the distance of two targets is ‖m − m'‖² + ‖σ − σ'‖², that of Gaussians
    with these moments and no covariances. Values of targets do not count, only their order: any
    increasing or decreasing map of a target, column by column, changes nothing. Laws are estimated
    anew at each step of a flow, and gradients pass through them, unless
    ``FeatureDriven(through_laws=False)``. Takes time n² d; memory in blocks.

    Args:
        bandwidth: of the kernel, as a share of the ranks; one for both datasets, found once and
            kept in checkpoints. By default Silverman's rule for the smaller one,
            (4/(q + 2))^(1/(q + 4)) n^(−1/(q + 4)) / √12 for q targets.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 50)[:, None]
        >>> a, b = ad.LabeledDataset(x, targets=x), ad.LabeledDataset(x, targets=(9 * x).exp())
        >>> ad.otdd(a, b, cost=ad.GroundCost(label=ad.TargetLaws()), solver=ad.ExactOT()).value
        0.0
    """

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if self.bandwidth is not None:
            check_positive("bandwidth", self.bandwidth)

    def beside(self, feature: FeatureCost, weight: float) -> FeatureCost:
        return LawsBeside(feature, weight, self.bandwidth)


@dataclass(frozen=True, eq=False)
class _Beside(FeatureCost):
    """Points of a feature cost with more coordinates."""

    feature: FeatureCost
    weight: float

    # what it has from the features
    same: ClassVar[tuple[str, ...]] = ("one_space", "roundings")

    def __post_init__(self) -> None:
        for name in self.same:
            object.__setattr__(self, name, getattr(self.feature, name))

    @property
    def ready(self) -> bool:
        """Whether it was fitted."""
        raise NotImplementedError

    def between(self, source: LabeledDataset, target: LabeledDataset) -> FeaturePair:
        if self.ready:
            return super().between(source, target)
        return self.fitted(source, target).between(source, target)

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        """Label laws are compared where features are, as without targets."""
        return self.feature.carry(data, self.feature.points(data))

    def widened(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[FeatureCost, LabeledDataset, LabeledDataset]:
        feature, source, target = self.feature.widened(source, target)
        return replace(self, feature=feature), source, target

    def _joined(self, data: LabeledDataset, x: Tensor, *parts: Tensor) -> Tensor:
        return torch.cat([x, *(part.to(x) for part in parts)], dim=1)


@dataclass(frozen=True, eq=False)
class ValuesBeside(_Beside):
    """(φ(x), √w (y − centre)), by columns of y."""

    scaled: bool
    scale: Tensor | None = None
    centre: Tensor | None = None

    same = ("one_space", "roundings", "linear", "by_rows")

    @property
    def ready(self) -> bool:
        return self.scale is not None

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> ValuesBeside:
        if self.ready:
            return self
        feature, sides = self.feature.fitted(source, target), (source, target)
        values = [data.require_targets("TargetValues").detach() for data in sides]
        _check_widths(values)
        masses = [data.weights.double() for data in sides]
        centre = torch.stack([w @ y for w, y in zip(masses, values, strict=True)]).mean(dim=0)
        scale = torch.full_like(centre, math.sqrt(self.weight))
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

    def with_state(self, state: dict[str, Tensor]) -> ValuesBeside:
        if "values_scale" not in state:
            return self
        known = {"scale": state["values_scale"], "centre": state["values_centre"]}
        return replace(self, feature=self.feature.with_state(state), **known)

    def embed(self, data: LabeledDataset) -> Tensor:
        if self.scale is None or self.centre is None:
            raise InputError("a cost of targets must be fitted first", self, _FIT)
        targets = data.require_targets("TargetValues")
        _check_widths([self.centre[None], targets])
        return self._joined(data, self.feature.points(data), (targets - self.centre) * self.scale)


@dataclass(frozen=True, eq=False)
class LawsBeside(_Beside):
    """(φ(x), √w m(y), √w σ(y)) with moments of φ(x) around each target."""

    bandwidth: float | None = None
    centre: Tensor | None = None
    by_rows = False

    @property
    def ready(self) -> bool:
        return self.centre is not None

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> LawsBeside:
        if self.ready:
            return self
        feature, sides = self.feature.fitted(source, target), (source, target)
        values = [data.require_targets("TargetLaws") for data in sides]
        _check_widths(values)
        h = self.bandwidth or max(rank_bandwidth(d.weights, values[0].shape[1]) for d in sides)
        middles = [mass_centre(feature.points(data).detach(), data.weights) for data in sides]
        centre = torch.stack([middle.double() for middle in middles]).mean(dim=0)
        return replace(self, feature=feature, bandwidth=h, centre=centre)

    def state(self) -> dict[str, Tensor]:
        if self.bandwidth is None or self.centre is None:
            return self.feature.state()
        h = torch.tensor(self.bandwidth, dtype=torch.float64)
        return self.feature.state() | {"laws_bandwidth": h, "laws_centre": self.centre}

    def with_state(self, state: dict[str, Tensor]) -> LawsBeside:
        if "laws_centre" not in state:
            return self
        known = {"bandwidth": float(state["laws_bandwidth"]), "centre": state["laws_centre"]}
        return replace(self, feature=self.feature.with_state(state), **known)

    def embed(self, data: LabeledDataset) -> Tensor:
        if self.bandwidth is None or self.centre is None:
            raise InputError("a cost of targets must be fitted first", self, _FIT)
        targets = data.require_targets("TargetLaws")
        if targets.requires_grad:
            raise InputError(
                "TargetLaws looks at the order of targets, which has no gradient",
                "targets that move",
                "Move features alone (FeatureDriven, fd), or compare by TargetValues.",
            )
        points = self.feature.points(data)
        seen = points.detach() if data.fixed_laws else points
        ranks = target_ranks(targets, data.weights)
        mean, deviation = conditional_moments(seen, ranks, data.weights, self.bandwidth)
        root = math.sqrt(self.weight)
        return self._joined(data, points, root * (mean - self.centre.to(mean)), root * deviation)


_FIT = "Take cost.fitted(source, target), or ad.otdd, which does it."


def _check_widths(values: list[Tensor]) -> None:
    if values[0].shape[1] != values[1].shape[1]:
        raise InputError(
            "both datasets must have the same targets",
            f"{values[0].shape[1]} and {values[1].shape[1]} for each sample",
            "Take those that both have.",
        )


def _spreads(parts: list[Tensor], masses: list[Tensor]) -> Tensor:
    """The variance of each column within two datasets, the mean of both; between them where there
    is none within. Exactly 0 for a column of one value.
    """
    within = torch.stack([_variance(x, w) for x, w in zip(parts, masses, strict=True)]).mean(dim=0)
    both = _variance(torch.cat(parts), torch.cat(masses) / 2)
    return torch.where(within > 0, within, both)


def _variance(x: Tensor, mass: Tensor) -> Tensor:
    varies = (x.amax(dim=0) > x.amin(dim=0)).double()
    return varies * (mass @ (x - mass @ x).square())


def cost_for(cost: GroundCost | None, *datasets: LabeledDataset) -> GroundCost:
    """The cost that is given, or that of these datasets: the values of continuous targets where one
    of them has no labels, else features and label laws.

    Example:
        >>> import advect as ad
        >>> cost_for(None, ad.LabeledDataset([[0.0]], targets=[1.0])).label
        TargetValues(scaled=True)
        >>> cost_for(None, ad.LabeledDataset([[0.0]], ["a"])).label
        Bures(diagonal=False)
    """
    known = check_cost(cost)
    if known is not None or all(data.has_classes for data in datasets):
        return known or GroundCost()
    for data in datasets:
        data.require_targets("a comparison with a dataset of continuous targets")
    return GroundCost(label=TargetValues())

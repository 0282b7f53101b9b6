"""Label costs by the names of classes: equal names cost nothing, different names a constant.

    D_ij = penalty · [name_i ≠ name_j]            by names alone
    D_ij = W₂²(α_i, α_j) + penalty · [name_i ≠ name_j]    added to another label cost

The constant is the squared distance between the vertices of a simplex, one for each name, so the debiased
distance remains a distance. The same rule holds within a dataset, whose names differ."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from advect._util import check_kind, check_non_negative, refuse_if
from advect.cost.features import FeatureCost
from advect.cost.label_costs import NoLabels
from advect.cost.labels import LabelCost
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.laws import mass_centre
from advect.ot import Relative

_ROWS = 4096  # that are in float64 at a time
_STATE = "name_penalty"


@dataclass(frozen=True)
class ByName(LabelCost):
    """Compare classes by name: equal names cost nothing, different names a constant, alone or added to
    another label cost.

    Use it if equal names have the same meaning in both datasets, such as digits of two writers or sensors
    of two sites. If names are only numbers of unrelated classes (digits and syllables, both named 0 to 9),
    it matches the wrong classes. Use ``Bures`` for these, which compares label laws.

    Names are compared as they are written: 3, 3.0 and "3" are one name, "cat" and "Cat" are two. A class
    whose name is missing in the other dataset has the same cost to all classes there, so only features (and
    ``plus``) decide where it moves. Notes of distances and flows list such classes. Laws of single samples
    (jd-vl) have no names and raise an error.

    Args:
        penalty: the cost of a different name, as a squared distance of features before
            ``label_weight``; ``Relative(share)`` of the mean squared distance between samples of the two
            datasets, each about its own mean, which a flow takes at its first step and keeps.
        plus: a label cost to add: ``Bures()`` gives W₂² + penalty. By default none.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [9.0]], ["cat", "dog"])
        >>> b = ad.LabeledDataset([[0.0], [9.0], [5.0]], ["dog", "cat", "cow"])
        >>> ad.ByName(2.0)(a, b).tolist()
        [[0.0, 2.0, 2.0], [2.0, 2.0, 0.0]]
        >>> ad.ByName(2.0, plus=ad.MeansOnly())(a, b).tolist()
        [[81.0, 27.0, 2.0], [2.0, 18.0, 81.0]]
        >>> by_name = ad.otdd(a, b, cost=ad.GroundCost(label=ad.ByName(100.0)))
        >>> by_name.class_coupling["cat", "cat"] > by_name.class_coupling["cat", "dog"]
        True
    """

    penalty: float | Relative = Relative(1.0)
    plus: LabelCost = field(default_factory=NoLabels)
    names_count = True

    def __post_init__(self) -> None:
        if type(self.penalty) is not Relative:
            check_non_negative("penalty", self.penalty)
        check_kind(
            "plus must be a label cost", self.plus, LabelCost, "Pass ad.Bures(), or leave it out."
        )

    @property
    def estimates_covariances(self) -> bool:
        return self.plus.estimates_covariances

    def fitted(
        self, source: LabeledDataset, target: LabeledDataset, feature: FeatureCost
    ) -> ByName:
        """The penalty as a number if it is a share, and ``plus`` fitted."""
        plus, penalty = self.plus.fitted(source, target, feature), self.penalty
        if type(penalty) is Relative:
            points = [feature.points(data).detach() for data in (source, target)]
            penalty = _absolute(penalty, (points[0], points[1]), source, target)
        elif plus is self.plus:
            return self
        return replace(self, penalty=penalty, plus=plus)

    def state(self) -> dict[str, Tensor]:
        known = type(self.penalty) is not Relative
        own = {_STATE: torch.tensor(self.penalty, dtype=torch.float64)} if known else {}
        return self.plus.state() | own

    def with_state(self, state: dict[str, Tensor]) -> ByName:
        penalty = float(state[_STATE]) if _STATE in state else self.penalty
        return replace(self, penalty=penalty, plus=self.plus.with_state(state))

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        for data in (source, target):
            refuse_if(
                data.law_index is not None,
                "ByName compares classes, not laws of single samples",
                "a dataset with a law for each sample",
                "Join them by class (law=data.class_laws(), law_index=None), flow with FeatureDriven or "
                "JointFixedLabels, or compare by laws: ad.Bures().",
            )
            require_labels(data, "ByName")
        own = self._of_names(source, target)
        return self.plus(source, target) + own if self.plus.costs else own

    def _of_names(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        penalty: Any = self.penalty
        if type(penalty) is Relative:  # asked by itself: of these two datasets
            penalty = _absolute(penalty, (source.x.detach(), target.x.detach()), source, target)
        dtype = torch.promote_types(source.x.dtype, target.x.dtype)
        names = [tuple(map(spelled, data.classes)) for data in (source, target)]
        return penalty * _differ(names[0], names[1], source.x.device, dtype)


@lru_cache(maxsize=32)  # the same at every step of a flow, and a copy to a device waits
def _differ(
    rows: tuple[str, ...], columns: tuple[str, ...], device: torch.device, dtype: torch.dtype
) -> Tensor:
    """1 where two names differ, 0 where they are the same, (k, k')."""
    table = [[float(row != column) for column in columns] for row in rows]
    return torch.tensor(table, dtype=dtype).reshape(len(rows), len(columns)).to(device)


def spelled(name: Hashable) -> str:
    """A class name as it is compared: as text, whole numbers without a point."""
    plain: Any = name
    return str(int(plain)) if type(plain) is float and plain.is_integer() else str(plain)


def unmatched_classes(data: LabeledDataset, other: LabeledDataset) -> list[str]:
    """Names of classes with samples that no class with samples of the other dataset has."""
    mine, theirs = (
        [spelled(name) for name, count in one.counts.items() if count] for one in (data, other)
    )
    known = set(theirs)
    return [name for name in mine if name not in known]


def same_names(source: LabeledDataset, target: LabeledDataset) -> bool:
    """Whether both have the same class names, more than one, among classes with samples."""
    alone = unmatched_classes(source, target) + unmatched_classes(target, source)
    return not alone and sum(map(bool, source.counts.values())) > 1


def _absolute(
    penalty: Relative,
    points: tuple[Tensor, Tensor],
    source: LabeledDataset,
    target: LabeledDataset,
) -> float:
    """The share of E‖(x − μ) − (x' − μ')‖² = tr Cov(x) + tr Cov(x')."""
    # E‖(x − μ) − (x' − μ')‖² of independent samples is the sum of both variances.
    spreads = [_spread(points[0], source.weights), _spread(points[1], target.weights)]
    return penalty.share * sum(spreads)


def _spread(points: Tensor, weights: Tensor) -> float:
    """Σ w_i ‖x_i − μ‖², in float64, by differences from the mean of the mass."""
    # About a rough centre first: Σ w ‖x − c‖² − ‖μ − c‖² loses no digits far from the origin.
    rough = mass_centre(points, weights)
    total, shift = 0.0, torch.zeros(points.shape[1], dtype=torch.float64, device=points.device)
    for rows, mass in zip(points.split(_ROWS), weights.split(_ROWS), strict=True):
        away = (rows - rough).double()
        total += float((mass.double() * away.square().sum(dim=1)).sum())
        shift += mass.double() @ away
    return max(0.0, total - float(shift.square().sum()))

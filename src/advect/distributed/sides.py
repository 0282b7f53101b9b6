"""One transport problem of a step on one rank: the cost of its rows, and the gradient of its share
of the energy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from advect._util.ranks import Group
from advect.cost import GroundCost, NoLabels, PairCost
from advect.cost.features import EUCLIDEAN
from advect.data.dataset import LabeledDataset
from advect.distributed.pair_labels import own_distances, whole_distances
from advect.distributed.shards import cut, moving, on_leaves, with_mass
from advect.ot import Plan
from advect.transport.problem import KnownDistances


@dataclass(frozen=True, eq=False)
class Side:
    """The problem to the target, or that of a dataset with itself (``symmetric``).

    Attributes:
        pair: the cost between this rank's rows and all samples of the other dataset that have mass.
        own: label distances of this rank's pairs of classes, with their graph; None where there are
            no laws of classes.
    """

    pair: PairCost
    own: Tensor | None
    symmetric: bool
    group: Group

    def contract(self, plan: Plan, through: bool) -> Tensor:
        """A number whose gradient is that of this rank's share of ⟨P, C⟩, ``through`` laws of
        classes or not.

        Both arguments of a self-problem move. Plan and cost are symmetric: that is twice the
        gradient in the first, for all that is cut by rows. Distances between classes have the graph
        of both."""
        share = (2 if self.symmetric else 1) * self.pair.contract(plan).double()
        if self.own is None or not through:
            return share
        by_class = self.group.sum(self.pair.class_plan(plan))
        return share + self.pair.cost.label_weight / 2 * (by_class * self.own).sum().double()


def side_between(
    cost: GroundCost,
    mine: LabeledDataset,
    source: LabeledDataset,
    target: LabeledDataset,
    group: Group,
) -> Side:
    """The problem between this rank's rows ``mine`` of the source and the target, which may be the
    source.
    """
    other = on_leaves(target, {}) if moving(target) else target
    kept = with_mass(other)
    other = other if len(kept) == len(other) else cut(other, kept)
    if (
        isinstance(cost.label, NoLabels) or source.law_index is not None
    ):  # a law for each particle is cut like the rows
        return Side(cost.between(mine, other), None, source is target, group)
    places = _embedded(cost, source)
    own = own_distances(
        cost.label, places, places if source is target else _embedded(cost, target), group
    )
    cost = replace(cost, label=KnownDistances(whole_distances(own, group)))
    return Side(cost.between(mine, other), own, source is target, group)


def _embedded(cost: GroundCost, data: LabeledDataset) -> LabeledDataset:
    """The dataset in the space where features are compared: label laws live there too."""
    feature = cost.feature
    return feature.carry(data, feature.embed(data)) if isinstance(feature, EUCLIDEAN) else data

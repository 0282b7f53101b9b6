"""What rounding leaves of a ground cost, and the same cost from float64 on."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from advect.cost.features import Embedding, Sketch, SquaredEuclidean
from advect.cost.ground import GroundCost, PairCost
from advect.data import LabeledDataset
from advect.linalg import centred


def cost_rounding(pair: PairCost, dtype: torch.dtype) -> float:
    """How far entries of a cost in this dtype are from ½(‖x − x'‖² + …) of features and laws as they are.

    Products of centred features are off by a few roundings of (max‖x‖ + max‖x'‖)²/2. What a function of one's own
    returns counts as exact.
    """
    unit, error, reach = torch.finfo(dtype).eps / 2, 0.0, 0.0
    if pair.points is not None:
        reach, dim = _reach(pair), pair.points[0].shape[1]
        error = unit * (12 + math.sqrt(dim) / 2) * reach**2 / 2
        if isinstance(pair.cost.feature, Sketch):  # made of features that may be far from the origin
            far = max(float(torch.linalg.vector_norm(data.x.detach(), dim=1).max()) for data in (pair.source, pair.target))
            error += 8 * torch.finfo(pair.source.x.dtype).eps * far * reach
    if labels := _label_part(pair):
        error += 4 * max(unit, torch.finfo(pair.label_distances.dtype).eps / 2) * labels
        # Distances between laws are differences of numbers of this size, in float64.
        error += 128 * torch.finfo(torch.float64).eps * pair.cost.label_weight * reach**2
    return error


def largest_cost(pair: PairCost) -> float | None:
    """A bound of the entries of a cost, without looking at them; None for a function of one's own."""
    return None if pair.points is None else _reach(pair) ** 2 / 2 + _label_part(pair)


def _reach(pair: PairCost) -> float:
    """max‖x‖ + max‖x'‖ about the common centre: no two points are further apart."""
    assert pair.points is not None
    masses = (pair.source.weights, pair.target.weights)
    x, y = pair.points
    points = centred(x.detach(), y.detach(), masses)
    return sum(float(torch.linalg.vector_norm(part[mass > 0], dim=1).max()) for part, mass in zip(points, masses, strict=True))


def _label_part(pair: PairCost) -> float:
    if not pair.has_labels:
        return 0.0
    return pair.cost.label_weight / 2 * float(pair.label_distances.detach().abs().max())


def widened(
    cost: GroundCost, source: LabeledDataset, target: LabeledDataset
) -> tuple[GroundCost, LabeledDataset, LabeledDataset]:
    """The cost and the datasets in float64, so that distances and label laws are computed there from what is given.

    The points of an embedding count as given: its map may know no other dtype.
    """
    embedding = cost.feature if isinstance(cost.feature, Embedding) else None

    def wide(data: LabeledDataset) -> LabeledDataset:
        if embedding is not None:
            points: Tensor = embedding.embed(data)
            data = data.replace(x=points, sample_shape=tuple(points.shape[1:]))
        return data.replace(x=data.x.detach()).to(dtype=torch.float64)

    first = wide(source)
    cost = cost if embedding is None else replace(cost, feature=SquaredEuclidean())
    return cost, first, first if target is source else wide(target)

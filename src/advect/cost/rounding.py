"""What rounding leaves of a ground cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect._util.linalg import mass_centre
from advect.cost.labels import SINGLE_LABELS
from advect.cost.pair import PairCost

_ROWS = 512  # that are moved at a time


def cost_rounding(pair: PairCost, dtype: torch.dtype) -> float:
    """How far entries of a cost in this dtype are from ½(‖x − x'‖² + …) of features and laws as
    they are.

    Products of centred features are off by a few roundings of (max‖x‖ + max‖x'‖)²/2. What a
    function of one's own returns counts as exact."""
    unit, error, reach = torch.finfo(dtype).eps / 2, 0.0, 0.0
    if pair.points is not None:
        reach, dim = _reach(pair), pair.points[0].shape[1]
        error = unit * (12 + math.sqrt(dim) / 2) * reach**2 / 2
        if roundings := pair.cost.feature_cost.roundings:
            error += roundings * torch.finfo(pair.source.x.dtype).eps * _far(pair) * reach
    return error + (_law_rounding(pair, unit, reach) if pair.has_labels else 0.0)


def _law_rounding(pair: PairCost, unit: float, reach: float) -> float:
    """The share of laws: means are rounded at the origin, covariances in the dtype of x."""
    labels, weight = _label_part(pair), pair.cost.label_weight
    own = max(torch.finfo(data.x.dtype).eps for data in (pair.source, pair.target))
    wide = torch.finfo(torch.float64).eps
    means = (own + wide * math.sqrt(max(len(pair.source), len(pair.target)))) * 2 * _far(pair)
    # distances are differences of numbers of this size
    spread = (4 * own + 16 * wide) * weight * reach**2
    single = SINGLE_LABELS if own > wide else 0.0
    return (
        (4 * unit + single) * labels
        + spread
        + math.sqrt(2 * weight * labels) * means
        + weight / 2 * means**2
    )


def _far(pair: PairCost) -> float:
    """The largest distance from the origin of samples that have mass."""
    sides = [pair.source] if pair.target is pair.source else [pair.source, pair.target]
    return max(_largest(data.x.detach(), data.weights) for data in sides)


def largest_cost(pair: PairCost) -> float | None:
    """A bound of the entries of a cost, without looking; None for a function of one's own."""
    return None if pair.points is None else _reach(pair) ** 2 / 2 + _label_part(pair)


def _reach(pair: PairCost) -> float:
    """max‖x‖ + max‖x'‖ about the common centre: no two points are further apart."""
    assert pair.points is not None
    sides = list(zip(pair.points, (pair.source.weights, pair.target.weights), strict=True))
    centre = sum(mass_centre(points, mass) for points, mass in sides) / 2
    if pair.points[1] is pair.points[0]:
        return 2 * _largest(pair.points[0].detach(), sides[0][1], centre)
    return sum(_largest(points.detach(), mass, centre) for points, mass in sides)


def _largest(points: Tensor, mass: Tensor, centre: Tensor | float = 0.0) -> float:
    """The largest distance from the centre of points that have mass, some rows at a time."""
    parts = zip(points.split(_ROWS), mass.split(_ROWS), strict=True)
    lengths = [(torch.linalg.vector_norm(p - centre, dim=1) * (m > 0)).max() for p, m in parts]
    return float(torch.stack(lengths).max())


def _label_part(pair: PairCost) -> float:
    if not pair.has_labels:
        return 0.0
    return pair.cost.label_weight / 2 * pair.labels.largest

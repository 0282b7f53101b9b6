"""What rounding leaves of a ground cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.cost.labels import SINGLE_LABELS
from advect.cost.pair import PairCost
from advect.data.laws.linalg import mass_centre

_ROWS = 512  # that are moved at a time


@dataclass(frozen=True)
class Sizes:
    """What a cost is made of, in numbers.

    Attributes:
        reach: max‖x‖ + max‖x'‖ about the common centre: no two points are further apart.
        far: the largest distance from the origin of samples that have mass, where it matters.
        labels: a bound of the part of labels.
    """

    reach: float
    far: float
    labels: float


def sizes_of(pair: PairCost) -> Sizes:
    """The sizes of a pair, in one transfer from the device."""
    zero = torch.zeros((), dtype=torch.float64, device=pair.source.x.device)
    weight, felt = pair.cost.label_weight, pair.has_labels or pair.cost.feature_cost.roundings
    labels = weight / 2 * pair.labels.largest.detach().double() if pair.has_labels else zero
    reach = zero if pair.points is None else _reach(pair)
    return Sizes(*torch.stack([reach, _far(pair) if felt else zero, labels]).tolist())


def cost_rounding(pair: PairCost, dtype: torch.dtype, sizes: Sizes) -> float:
    """How far entries of a cost in this dtype are from ½(‖x − x'‖² + …) of features and laws as
    they are.
    """
    unit, error, reach = product_unit(dtype, pair.source.x.device), 0.0, sizes.reach
    if pair.points is not None:
        error = unit * (12 + math.sqrt(pair.points[0].shape[1]) / 2) * reach**2 / 2
        if roundings := pair.cost.feature_cost.roundings:
            error += roundings * torch.finfo(pair.source.x.dtype).eps * sizes.far * reach
    return error + (_law_rounding(pair, unit, sizes) if pair.has_labels else 0.0)


def product_unit(dtype: torch.dtype, device: torch.device) -> float:
    """The rounding of a factor of a matrix product, relatively. Where TF32 has been allowed on a
    GPU, products in float32 keep ten bits of a factor: costs are off by what the bounds then say,
    and float64 takes over where that is too much.
    """
    coarse = device.type != "cpu" and torch.backends.cuda.matmul.allow_tf32
    return 2.0**-11 if coarse and dtype == torch.float32 else torch.finfo(dtype).eps / 2


def _law_rounding(pair: PairCost, unit: float, sizes: Sizes) -> float:
    """The share of laws: means are rounded at the origin, covariances in the dtype of x."""
    labels, weight = sizes.labels, pair.cost.label_weight
    own = max(torch.finfo(data.x.dtype).eps for data in (pair.source, pair.target))
    wide = torch.finfo(torch.float64).eps
    means = (own + wide * math.sqrt(max(len(pair.source), len(pair.target)))) * 2 * sizes.far
    # distances are differences of numbers of this size
    spread = (4 * own + 16 * wide) * weight * sizes.reach**2
    single = SINGLE_LABELS if own > wide else 0.0
    return (
        (4 * unit + single) * labels
        + spread
        + math.sqrt(2 * weight * labels) * means
        + weight / 2 * means**2
    )


def largest_cost(pair: PairCost, sizes: Sizes | None = None) -> float | None:
    """A bound of the entries of a cost, without looking; None for a function of one's own."""
    if pair.points is None:
        return None
    sizes = sizes or sizes_of(pair)
    return sizes.reach**2 / 2 + sizes.labels


def _far(pair: PairCost) -> Tensor:
    sides = [pair.source] if pair.target is pair.source else [pair.source, pair.target]
    return torch.stack([_largest(data.x.detach(), data.weights) for data in sides]).max()


def _reach(pair: PairCost) -> Tensor:
    assert pair.points is not None
    sides = list(zip(pair.points, (pair.source.weights, pair.target.weights), strict=True))
    centre = sum(mass_centre(points, mass) for points, mass in sides) / 2
    if pair.points[1] is pair.points[0]:
        return 2 * _largest(pair.points[0].detach(), sides[0][1], centre)
    reaches = [_largest(points.detach(), mass, centre) for points, mass in sides]
    return torch.stack(reaches).sum()


def _largest(points: Tensor, mass: Tensor, centre: Tensor | float = 0.0) -> Tensor:
    """The largest distance from the centre of points that have mass, some rows at a time."""
    parts = zip(points.split(_ROWS), mass.split(_ROWS), strict=True)
    lengths = [(torch.linalg.vector_norm(p - centre, dim=1) * (m > 0)).max() for p, m in parts]
    return torch.stack(lengths).max().double()

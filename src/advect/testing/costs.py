"""What every ground cost promises: one matrix however it is read, symmetric, with its gradient."""

from __future__ import annotations

import torch

from advect.cost.ground import GroundCost
from advect.data.dataset import LabeledDataset
from advect.functionals.otdd import OTDD
from advect.ot.sinkhorn import Sinkhorn
from advect.testing.functionals import check_functional
from advect.testing.problems import require, small_pair


def check_cost(
    cost: GroundCost,
    source: LabeledDataset | None = None,
    target: LabeledDataset | None = None,
    *,
    rtol: float = 1e-4,
) -> None:
    """Try a feature cost or a label cost of one's own, as part of a ``GroundCost``.

    Args:
        cost: ``ad.GroundCost(feature=yours)`` or ``ad.GroundCost(label=yours)``.
        source, target: datasets that it takes; by default a few samples in three dimensions.
        rtol: how far the gradient of the energy may be from central differences.

    Raises:
        AssertionError: says which promise is broken.

    Example:
        >>> import advect as ad
        >>> ad.testing.check_cost(ad.GroundCost(label=ad.MeansOnly()))
    """
    first, second = small_pair()
    source, target = source or first, target or second
    cost = cost.fitted(source, target)
    matrix = cost.between(source, target).matrix()
    n, m = len(source), len(target)
    require(matrix.shape == (n, m), f"a cost must be a matrix ({n}, {m})", tuple(matrix.shape))
    require(bool(torch.isfinite(matrix).all()), "costs must be finite")
    require(float(matrix.min()) >= 0, "costs must not be negative", float(matrix.min()))
    _check_within(cost, source)
    _check_order(cost, source, target, matrix)
    energy = OTDD(target, cost=cost, solver=Sinkhorn(epsilon=0.5, tol=1e-9))
    check_functional(energy, source, rtol=rtol)


def _check_within(cost: GroundCost, data: LabeledDataset) -> None:
    within = cost.between(data, data).matrix()
    size = float(within.max())
    off = float((within - within.T).abs().max())
    require(off <= 1e-9 * size, "costs within a dataset must be symmetric", off)
    own = float(within.diagonal().abs().max())
    require(own <= 1e-9 * size, "a sample must cost nothing to itself", own)


def _check_order(
    cost: GroundCost, source: LabeledDataset, target: LabeledDataset, matrix: torch.Tensor
) -> None:
    turned = torch.arange(len(source) - 1, -1, -1)
    other = cost.between(source.subset(turned), target).matrix()
    off = float((other - matrix[turned]).abs().max())
    require(off <= 1e-9 * float(matrix.max()), "costs must follow the order of the samples", off)

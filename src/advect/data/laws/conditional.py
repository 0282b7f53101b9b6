"""The law of features given a continuous target: mean and deviations under kernel weights.

The kernel is Gaussian in the ranks of the targets, in (0, 1), and not in their values. So laws stay
what they are under any change of the targets that keeps or turns their order, column by column:
other units, a logarithm, a minus sign."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from advect._util.linalg import mass_centre

_ENTRIES = 1 << 22  # of a block of kernel weights
_NONE = 1e-13  # of the variance of a column: what rounding leaves of a variance that is none


def target_ranks(targets: Tensor, weights: Tensor) -> Tensor:
    """Where each target is among the others, by mass: that below it and half of that at it, (n, q)
    in (0, 1); columns by themselves.

    Example:
        >>> target_ranks(torch.tensor([[3.0], [1.0], [3.0], [9.0]]), torch.full((4,), 0.25)).flatten().tolist()
        [0.5, 0.125, 0.5, 0.875]
    """
    columns = []
    for values in targets.detach().T:
        ordered, order = values.sort()
        new = torch.cat([ordered.new_zeros(1), (ordered.diff() != 0).to(ordered)]).long()
        place = torch.empty_like(order).scatter_(0, order, new.cumsum(0))
        # as many places as samples: how many there are is not asked
        mass = weights.new_zeros(len(values), dtype=torch.float64)
        mass = mass.index_add_(0, place, weights.double())
        columns.append((mass.cumsum(0) - mass / 2)[place])
    return torch.stack(columns, dim=1)


def rank_bandwidth(weights: Tensor, q: int) -> float:
    """Silverman's rule for ranks, which are uniform: (4/(q + 2))^(1/(q + 4)) n^(−1/(q + 4)) / √12,
    with n = 1/Σw², the number of samples where weights are even.

    Example:
        >>> round(rank_bandwidth(torch.full((100,), 0.01), 1), 3)
        0.122
    """
    n = 1 / float(weights.double().square().sum())
    return (4 / (q + 2)) ** (1 / (q + 4)) * n ** (-1 / (q + 4)) / math.sqrt(12)


def conditional_moments(
    x: Tensor, ranks: Tensor, weights: Tensor, bandwidth: float
) -> tuple[Tensor, Tensor]:
    """For each sample, mean and deviations of the features around its target, (n, d) each, float64;
    differentiable in ``x``. Deviations of coinciding features are 0.

    Example:
        >>> x, ranks = torch.tensor([[0.0], [2.0], [9.0]]), torch.tensor([[0.2], [0.2], [0.9]])
        >>> mean, deviation = conditional_moments(x, ranks, torch.ones(3) / 3, 0.01)
        >>> mean.flatten().tolist(), deviation.flatten().tolist()
        ([1.0, 1.0, 9.0], [1.0, 1.0, 0.0])
    """
    order = _order(x.detach(), ranks)  # sums do not depend on the order of the samples
    x, ranks, weights = x[order], ranks[order], weights[order]
    centre = mass_centre(x.detach(), weights).double()
    about = x.double() - centre
    smooth: Any = _Smoothed.apply(torch.cat([about, about.square()], 1), ranks, weights, bandwidth)
    mean, square = smooth.chunk(2, dim=1)
    variance = square - mean.square()
    spread = (weights.double() @ about.detach().square()).clamp_min(torch.finfo().tiny)
    some = variance > _NONE * spread
    deviation = torch.where(some, variance, 1.0).sqrt() * some
    back = order.argsort()
    return (mean + centre)[back], deviation[back]


def _order(x: Tensor, ranks: Tensor) -> Tensor:
    """By ranks, then by features."""
    order = x.double().sum(dim=1).argsort(stable=True)
    for column in ranks.T.flip(0):
        order = order[column[order].argsort(stable=True)]
    return order


class _Smoothed(torch.autograd.Function):
    """Σ_j ω_ij v_j with ω_ij ∝ w_j exp(−‖u_i − u_j‖²/2h²), summing to one: weights in blocks, made
    again for the gradient.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, ranks: Tensor, weights: Tensor, h: float) -> Tensor:
        ctx.save_for_backward(ranks, weights)
        ctx.h = h
        return torch.cat([kernel @ values for _, kernel in _blocks(ranks, weights, h)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (grad,), (ranks, weights) = grads, ctx.saved_tensors
        out = torch.zeros_like(grad)
        for rows, kernel in _blocks(ranks, weights, ctx.h):
            out += kernel.T @ grad[rows]
        return out, None, None, None


def _blocks(ranks: Tensor, weights: Tensor, h: float) -> Any:
    """(rows, their kernel weights), a block at a time."""
    places, logs = ranks.double() / h, weights.double().log()
    step = max(1, _ENTRIES // len(ranks))
    for first in range(0, len(ranks), step):
        rows = slice(first, first + step)
        gaps = torch.cdist(places[rows], places, compute_mode="donot_use_mm_for_euclid_dist")
        yield rows, torch.softmax(logs - gaps.square() / 2, dim=1)

"""The arithmetic of entropic transport: exponentials of costs in place, and sums of them that no
epsilon overflows.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def fill_kernel(cost: Tensor, f: Tensor, g: Tensor, epsilon: float, out: Tensor) -> Tensor:
    """exp((f_i + g_j − C_ij)/ε) written into ``out``, which may be the cost, without
    temporaries.
    """
    torch.add((g / epsilon).to(out.dtype)[None, :], cost, alpha=-1 / epsilon, out=out)
    return exp_(out.add_((f / epsilon).to(out.dtype)[:, None]))


def exp_(values: Tensor) -> Tensor:
    """exp in place, with 0 for what would be below the normal range: exponentials that underflow
    take twenty times as long.
    """
    least = math.log(torch.finfo(values.dtype).tiny) + 0.1
    return torch.threshold_(values.clamp_min_(least).exp_(), 1.01 * math.exp(least), 0.0)


def softmin(
    cost: Tensor, potential: Tensor, weights: Tensor, epsilon: float, out: Tensor
) -> Tensor:
    """T(g)_i = −ε log Σ_j b_j exp((g_j − C_ij)/ε), stable for any epsilon; ``out`` is scratch
    space.
    """
    shift = (potential / epsilon + weights.log()).to(out.dtype)
    torch.add(shift, cost, alpha=-1 / epsilon, out=out)
    top = out.amax(dim=1, keepdim=True)
    sums = exp_(out.sub_(top)).sum(dim=1)
    return -epsilon * (top.squeeze(1).double() + sums.double().log())


class ColumnSums:
    """T(f)_j = −ε log Σ_i a_i exp((f_i − C_ij)/ε) over blocks of rows that come one after the
    other.
    """

    def __init__(self, columns: int, device: torch.device) -> None:
        self.top = torch.full((columns,), -math.inf, dtype=torch.float64, device=device)
        self.sums = torch.zeros(columns, dtype=torch.float64, device=device)

    def add(self, costs: Tensor, f: Tensor, a: Tensor, epsilon: float, out: Tensor) -> None:
        shift = (f / epsilon + a.log()).to(out.dtype)
        torch.add(shift[:, None], costs, alpha=-1 / epsilon, out=out)
        # of numbers in the dtype of ``out``: it fits there again
        top = torch.maximum(self.top, out.amax(dim=0).double())
        # no row with mass yet: nothing to subtract
        sums = exp_(out.sub_(top.to(out.dtype).nan_to_num(neginf=0.0))).sum(dim=0).double()
        self.sums = sums + torch.where(self.sums > 0, self.sums * torch.exp(self.top - top), 0.0)
        self.top = top

    def softmin(self, epsilon: float) -> Tensor:
        return -epsilon * (self.top + self.sums.log())

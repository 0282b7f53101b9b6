"""Pairs of samples, and how they are drawn from a plan."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class _Ends(NamedTuple):
    x0: Any
    x1: Any
    y0: Any
    y1: Any


class Pairs(_Ends):
    """Pairs, row by row: x0[i] goes to x1[i], with conditions y0[i] and y1[i].

    Attributes:
        plan: the plan that the pairs were drawn from.
        rows, columns: positions of both ends in the arrays that were passed, or in the datasets.
    """

    plan: Tensor
    rows: Tensor
    columns: Tensor


def draw_pairs(
    plan: Tensor, replace: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Rows and columns of pairs in proportion to the plan; without replacement each row once."""
    mass = plan.sum(dim=1)
    if replace:
        rows = torch.multinomial(mass, len(mass), replacement=True, generator=generator)
    else:
        rows = torch.randperm(len(mass), generator=generator)
        rows = rows[mass[rows] > 0]
    # a column for each row: multinomial allows no more than 2²⁴ outcomes
    return rows, torch.multinomial(plan[rows], 1, generator=generator)[:, 0]


def as_pairs(plan: Tensor, rows: Tensor, columns: Tensor, *ends: Any) -> Pairs:
    """Pairs with the plan that they come from."""
    pairs = Pairs(*ends)
    pairs.plan, pairs.rows, pairs.columns = plan, rows, columns
    return pairs


def take_rows(values: Any, rows: Tensor) -> Any:
    """Rows of an array or tensor; None for None."""
    if values is None:
        return None
    return values[rows.to(values.device)] if torch.is_tensor(values) else np.asarray(values)[rows]


def assignment(cost: Tensor) -> Tensor:
    """The exact plan of a square cost between uniform measures."""
    from scipy.optimize import linear_sum_assignment

    plan = torch.zeros_like(cost)
    plan[linear_sum_assignment(cost.numpy())] = 1 / len(cost)
    return plan

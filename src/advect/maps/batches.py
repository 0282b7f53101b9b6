"""What pairs of a mini-batch are made of: rows and columns that are paired among themselves, draws
from a plan, rows of what users pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Group(NamedTuple):
    """Rows and columns of a batch that are paired among themselves, and the masses of the columns;
    rows have the same mass each.
    """

    rows: Tensor
    columns: Tensor
    mass: Tensor | None = None

    @classmethod
    def of_class(cls, code: int, y0: Tensor, y1: Tensor, shares: Tensor) -> Group:
        """The samples of a class of the source with those of its partners, ``shares`` (k',); each
        partner that is there has its share, its samples the same mass each.
        """
        columns = (shares[y1] > 0).nonzero()[:, 0]
        own = y1[columns]
        counts = own.bincount(minlength=len(shares)).clamp_min(1)
        return cls((y0 == code).nonzero()[:, 0], columns, shares[own] / counts[own])


def assigned(cost: Tensor) -> Tensor:
    """The exact plan of a square cost between points of the same mass each: an assignment.

    Example:
        >>> assigned(torch.tensor([[1.0, 0.0], [0.0, 5.0]])).tolist()
        [[0.0, 0.5], [0.5, 0.0]]
    """
    from scipy.optimize import linear_sum_assignment

    plan = torch.zeros_like(cost)
    plan[linear_sum_assignment(cost.numpy())] = 1 / len(cost)
    return plan


def drawn_from(
    plan: Tensor, replace: bool, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Rows and columns of as many pairs as the plan has rows, drawn in proportion to it; without
    replacement each row with mass once, in random order, with a column of its own part of the plan.

    Example:
        >>> plan = torch.eye(3)[[2, 0, 1]] / 3
        >>> i, j = drawn_from(plan, False, torch.Generator().manual_seed(0))
        >>> sorted(zip(i.tolist(), j.tolist()))
        [(0, 2), (1, 0), (2, 1)]
    """
    mass = plan.sum(dim=1)
    if replace:
        rows = torch.multinomial(mass, len(mass), replacement=True, generator=generator)
    else:
        rows = torch.randperm(len(mass), generator=generator)
        rows = rows[mass[rows] > 0]
    # a column is drawn for a row, not a pair from all: multinomial knows no more than 2²⁴ outcomes
    return rows, torch.multinomial(plan[rows], 1, generator=generator)[:, 0]


def taken(values: Any, rows: Tensor) -> Any:
    """These rows of a tensor, or of anything else as an array; None of None.

    Example:
        >>> taken(["a", "b"], torch.tensor([1, 1, 0])).tolist()
        ['b', 'b', 'a']
    """
    if values is None:
        return None
    if isinstance(values, Tensor):
        return values[rows.to(values.device)]
    return np.asarray(values)[rows.numpy()]

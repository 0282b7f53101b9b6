"""The regularisation of entropic transport, as a number or as a share of the mean cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from torch import Tensor

from advect._util.checks import check_positive
from advect.errors import InputError
from advect.ot.blocks import as_cost
from advect.ot.cost import Cost
from advect.ot.solution import AnyCost
from advect.ot.solver import Solver


@dataclass(frozen=True)
class Relative:
    """A regularisation given as a share of the mean cost Σ a_i b_j C_ij, so that it follows the
    scale of the data.

    Example:
        >>> import torch, advect as ad
        >>> cost = torch.tensor([[0.0, 4.0], [4.0, 0.0]])
        >>> ad.Sinkhorn(epsilon=ad.Relative(0.1)).solve(cost).epsilon    # a tenth of the mean cost 2
        0.2
    """

    share: float

    def __post_init__(self) -> None:
        check_positive("share", self.share)


Epsilon = float | Relative


class Entropic(Solver):
    """A solver with an ``epsilon``, which ``prepare`` turns into a number; a frozen dataclass."""

    epsilon: Epsilon

    @property
    def regularisation(self) -> float:
        return float(cast(float, self.epsilon))

    def with_epsilon(self, epsilon: float) -> Self:
        return replace(cast(Any, self), epsilon=epsilon)

    def prepare(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        return self.with_epsilon(epsilon_for(self.epsilon, as_cost(cost), a, b))


def check_epsilon(epsilon: Epsilon) -> None:
    """A positive number, or a share."""
    if not isinstance(epsilon, Relative):
        check_positive("epsilon", epsilon)


def epsilon_for(epsilon: Epsilon, cost: Cost, a: Tensor, b: Tensor) -> float:
    """Epsilon as a number for this problem."""
    if not isinstance(epsilon, Relative):
        return epsilon
    mean = cost.mean(a, b)
    if not math.isfinite(mean):
        remedy = "Check the features and the cost function."
        raise InputError("the cost must be finite", f"a mean of {mean}", remedy)
    return epsilon.share * mean if mean > 0 else 1e-20  # all costs zero: so are the values

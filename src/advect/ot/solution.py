"""What a transport solver hands back, and the checks of what it is given."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_weights
from advect.ot.blocks import as_cost
from advect.ot.cost import Cost
from advect.ot.plan import Plan, as_plan

Potentials = tuple[Tensor, Tensor]
Start = Potentials | None  # to begin from
Mass = Tensor | None  # weights; None for equal ones
AnyCost = Cost | Tensor


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved transport problem between weights a (n,) and b (m,) under a cost C (n, m).

    Attributes:
        value: the optimal value: ⟨P, C⟩ + epsilon KL(P | a ⊗ b), with epsilon = 0 for exact
            transport.
        potentials: (f, g), float64, dual optimal: value = ⟨a, f⟩ + ⟨b, g⟩. Points of zero weight
            have them too.
        epsilon: the regularisation used, in units of the cost.
        converged: whether ``marginal_error`` met the tolerance, and ``value_error`` is small
            against the costs.
        n_iter: iterations used.
        marginal_error: ‖P 1 − a‖₁ + ‖Pᵀ 1 − b‖₁ of the returned plan.
        coupling: the plan as something that multiplies, ``coupling @ v`` and ``coupling.T @ u``; no
            matrix is formed for it. It may read the cost that was solved, and never writes to it.
        value_error: how far ``value`` can be from the optimum under the cost as given, rounding
            included, in units of the cost; infinite where a solver does not say. Of
            ``NystromSinkhorn`` an estimate, of ``MiniBatch`` how far it can be from the mean over
            the parts that were drawn.
        reach: how far mass is carried before it is left behind, where marginals may be off
            (``Sinkhorn(reach=…)``); None where they may not. The value then counts what is left,
            potentials are those of the penalised dual, and ``marginal_error`` is that of the
            marginals which they ask for, a e^(−f/reach²), as a share of ``mass``.
        mass: of the plan: 1, or less with a reach.

    Example:
        >>> import torch, advect as ad
        >>> cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> solution = ad.ExactOT().solve(cost)
        >>> solution.value, solution.plan().tolist()
        (0.0, [[0.5, 0.0], [0.0, 0.5]])
        >>> (solution.coupling @ torch.ones(2, 1)).flatten().tolist()
        [0.5, 0.5]
    """

    value: float
    potentials: Potentials
    epsilon: float
    converged: bool
    n_iter: int
    marginal_error: float
    coupling: Plan
    value_error: float = math.inf
    reach: float | None = None
    mass: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "coupling", as_plan(self.coupling))  # a matrix will do

    @cached_property
    def _plan(self) -> Tensor:
        return self.coupling.dense()

    def plan(self) -> Tensor:
        """The transport plan P (n, m) as a matrix, made on first use."""
        return self._plan

    @property
    def parts(self) -> Potentials:
        """What each point adds to the value, (h, k): ⟨a, h⟩ + ⟨b, k⟩ is the value. Without a reach
        the potentials.
        """
        if self.reach is None:
            return self.potentials
        factor = self.reach**2 + self.epsilon / 2
        f, g = self._lost
        return factor * f, factor * g

    @property
    def slopes(self) -> Potentials:
        """The derivative of the value in the weights a and b, up to a constant where their sum is
        fixed. Without a reach the potentials.
        """
        if self.reach is None:
            return self.potentials
        factor = self.reach**2 + self.epsilon
        f, g = self._lost
        return factor * f, factor * g

    def asked(self, a: Tensor, b: Tensor) -> Potentials:
        """The marginals that the plan should have: a and b, or with a reach what the potentials ask
        for.
        """
        if self.reach is None:
            return a, b
        f, g = self._lost
        return a * (1 - f), b * (1 - g)

    @property
    def _lost(self) -> Potentials:
        """The shares of points that a reach leaves behind, 1 − e^(−f/reach²)."""
        rho = (self.reach or math.inf) ** 2
        f, g = (-torch.expm1(-part / rho) for part in self.potentials)
        return f, g

    def release(self) -> None:
        """Let go of matrices that the coupling keeps only to be fast."""
        self.coupling.release()


def check_problem(cost: Any, a: Mass, b: Mass) -> tuple[Cost, Tensor, Tensor]:
    """A cost, and float64 probability weights for its rows and columns."""
    cost = as_cost(cost)
    return cost, _weights("a", a, cost.shape[0], cost), _weights("b", b, cost.shape[1], cost)


def _weights(name: str, weights: Mass, n: int, like: Cost) -> Tensor:
    if weights is None:
        return torch.full((n,), 1 / n, dtype=torch.float64, device=like.device)
    weights = torch.as_tensor(weights)
    if weights.requires_grad:  # else the same object, of which something may be known
        weights = weights.detach()
    weights = weights.to(device=like.device, dtype=torch.float64)
    return check_weights(name, weights, n)

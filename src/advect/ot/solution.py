"""What a solver returns, the checks of its inputs, and points without mass."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_weights, seen_weights
from advect.ot.blocks import as_cost
from advect.ot.cost import Cost
from advect.ot.plan import Plan, ScatteredPlan, as_plan

Potentials = tuple[Tensor, Tensor]
Start = Potentials | None  # to begin from
Mass = Tensor | None  # weights; None for equal ones
AnyCost = Cost | Tensor


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved transport problem between weights a (n,) and b (m,) under a cost C (n, m).

    Attributes:
        value: ⟨P, C⟩ + epsilon KL(P | a ⊗ b), with epsilon = 0 for exact transport.
        potentials: (f, g), float64, with value = ⟨a, f⟩ + ⟨b, g⟩.
        epsilon: the regularisation, in units of the cost.
        converged: whether ``marginal_error`` met the tolerance and ``value_error`` is small.
        n_iter: iterations used.
        marginal_error: ‖P 1 − a‖₁ + ‖Pᵀ 1 − b‖₁ of the plan.
        coupling: the plan as an operator, ``coupling @ v`` and ``coupling.T @ u``.
        value_error: a bound of the error of ``value``, rounding included; infinite if unknown. Of
            ``MiniBatch``, the error of the mean over the drawn parts.
        reach: that of ``Sinkhorn(reach=…)``, or None. With a reach the value includes the penalties,
            and ``marginal_error`` refers to a e^(−f/reach²), as a share of ``mass``.
        mass: of the plan: 1, or less with a reach.

    Example:
        >>> import torch, advect as ad
        >>> solution = ad.ExactOT().solve(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> solution.value, solution.plan().tolist()
        (0.0, [[0.5, 0.0], [0.0, 0.5]])
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
        """The transport plan P (n, m) as a matrix, computed on first use."""
        return self._plan

    @property
    def parts(self) -> Potentials:
        """What each point adds to the value, (h, k): ⟨a, h⟩ + ⟨b, k⟩ is the value."""
        if self.reach is None:
            return self.potentials
        factor = self.reach**2 + self.epsilon / 2
        f, g = self._lost
        return factor * f, factor * g

    @property
    def slopes(self) -> Potentials:
        """The derivative of the value in the weights, up to a constant where their sum is fixed."""
        if self.reach is None:
            return self.potentials
        factor = self.reach**2 + self.epsilon
        f, g = self._lost
        return factor * f, factor * g

    def asked(self, a: Tensor, b: Tensor) -> Potentials:
        """The marginals that the plan should have: a and b, or fewer with a reach."""
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
        """Free matrices that the coupling stores only to be fast."""
        self.coupling.release()


def check_problem(cost: Any, a: Mass, b: Mass) -> tuple[Cost, Tensor, Tensor]:
    """A ``Cost``, and float64 probability weights for its rows and columns."""
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


class Support:
    """The rows and columns of a problem that have mass."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b, self.rows, self.columns = a, b, a > 0, b > 0
        self.whole = seen_weights(a)[1] > 0 and seen_weights(b)[1] > 0

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        return self.rows.nonzero()[:, 0], self.columns.nonzero()[:, 0]

    def within(self, cost: Cost) -> Cost:
        """The cost between points with mass."""
        return cost if self.whole else cost.select(*self.positions)

    def cut(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Values of all points, restricted to those with mass."""
        return (f, g) if self.whole else (f[self.rows], g[self.columns])

    def plan(self, inner: Plan) -> Plan:
        """A plan between points with mass as one between all points."""
        if self.whole:
            return inner
        return ScatteredPlan([(1.0, *self.positions, inner)], (len(self.a), len(self.b)))

    def extended(
        self, cost: Cost, f: Tensor, g: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Potentials of points with mass, and T(g) and T(f), times ``damping``, of the others."""
        if self.whole:
            return f, g
        start = torch.zeros_like(self.b).masked_scatter_(self.columns, g)
        kernel = cost.kernel(torch.float64, room=0)
        reach_f, reach_g = kernel.softmins(start, self.a, self.b, epsilon, damping)
        return reach_f.masked_scatter_(self.rows, f), reach_g.masked_scatter_(self.columns, g)

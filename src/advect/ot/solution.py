"""What a transport solver promises, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from advect._checks import check_finite, check_weights
from advect.errors import InputError

Potentials = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Solution:
    """A solved transport problem between weights a (n,) and b (m,) under a cost C (n, m).

    Attributes:
        value: the optimal value: ⟨P, C⟩ + epsilon KL(P | a ⊗ b), with epsilon = 0 for exact transport.
        potentials: (f, g), float64, dual optimal: value = ⟨a, f⟩ + ⟨b, g⟩. Points of zero weight have them too.
        epsilon: the regularisation used, in units of the cost.
        converged: whether ``marginal_error`` met the tolerance.
        n_iter: iterations used.
        marginal_error: ‖P 1 − a‖₁ + ‖Pᵀ 1 − b‖₁ of the returned plan.
        make_plan: makes the plan anew; it may write it into a matrix it is given, which may be the cost.

    Example:
        >>> import torch, advect as ad
        >>> cost = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> solution = ad.ExactOT().solve(cost)
        >>> solution.value, solution.plan().tolist()
        (0.0, [[0.5, 0.0], [0.0, 0.5]])
    """

    value: float
    potentials: Potentials
    epsilon: float
    converged: bool
    n_iter: int
    marginal_error: float
    make_plan: Callable[[Tensor | None], Tensor]

    @cached_property
    def _plan(self) -> Tensor:
        return self.make_plan(None)

    def plan(self) -> Tensor:
        """The transport plan P (n, m), made on first use."""
        return self._plan


class Solver(Protocol):
    """Anything that solves transport problems: ``Sinkhorn``, ``ExactOT``, or one's own.

    A symmetric problem (``solve_self``) is that of a measure with itself; its two potentials coincide.
    """

    def prepare(self, cost: Tensor, a: Tensor, b: Tensor) -> Solver:
        """The solver with every option that depends on the problem made a number, so that related problems share it."""
        ...

    def solve(self, cost: Tensor, a: Tensor | None = None, b: Tensor | None = None, init: Potentials | None = None) -> Solution:
        """Transport a to b under the cost, from potentials ``init`` if given."""
        ...

    def solve_self(self, cost: Tensor, a: Tensor | None = None, init: Tensor | None = None) -> Solution:
        """Transport a to itself under a symmetric cost."""
        ...

    def certify(self, cost: Tensor, a: Tensor, b: Tensor, potentials: Potentials) -> Solution | None:
        """These potentials as a solution if they are one to rounding, otherwise None."""
        ...

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype in which the solver wants its costs; None to follow the data."""
        ...


def check_problem(cost: Tensor, a: Tensor | None, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """A finite floating cost matrix and float64 probability weights for its rows and columns."""
    cost = torch.as_tensor(cost)
    if cost.ndim != 2 or cost.numel() == 0:
        raise InputError(
            "a cost must be a matrix (n, m) with n, m > 0", f"shape {tuple(cost.shape)}", "Pass one entry for each pair."
        )
    if cost.dtype not in (torch.float32, torch.float64):
        cost = cost.to(torch.float32)
    cost = cost.detach()
    check_finite("the cost", cost, "Check the features and the cost function.")
    n, m = cost.shape
    return cost, _weights("a", a, n, cost), _weights("b", b, m, cost)


def _weights(name: str, weights: Tensor | None, n: int, like: Tensor) -> Tensor:
    if weights is None:
        return torch.full((n,), 1 / n, dtype=torch.float64, device=like.device)
    return check_weights(name, torch.as_tensor(weights).detach().to(device=like.device, dtype=torch.float64), n)

"""What a transport solver promises, and what it hands back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

import torch
from torch import Tensor

from advect._util.checks import check_finite, check_methods, check_weights
from advect.errors import InputError
from advect.ot.blocks import BlockedCost, Index

Potentials = tuple[Tensor, Tensor]
Cost = Tensor | BlockedCost


class Plan(Protocol):
    """A plan that is not formed: it multiplies, as a tensor does."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def T(self) -> Factor: ...  # as tensors have it

    def __matmul__(self, v: Tensor) -> Tensor: ...

    def pieces(self) -> Iterator[tuple[Index, Index, Tensor]]:
        """(rows, columns, plan there) for parts that add up to the plan."""
        ...

    def release(self) -> None:
        """Let go of matrices that can be made again."""
        ...


class Factor(Protocol):
    """Something that multiplies matrices from the left."""

    def __matmul__(self, v: Tensor) -> Tensor: ...


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
        make_plan: makes the plan anew; it may write it into a matrix it is given, which may be the
            cost.
        operator: the plan as products, where the problem was solved without its matrix.
        value_error: how far ``value`` can be from the optimum under the cost as given, rounding
            included, in units of the cost; infinite where a solver does not say. Of
            ``NystromSinkhorn`` an estimate, of ``MiniBatch`` how far it can be from the mean over
            the parts that were drawn.

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
    operator: Plan | None = None
    value_error: float = math.inf

    @cached_property
    def _plan(self) -> Tensor:
        return self.make_plan(None)

    def plan(self) -> Tensor:
        """The transport plan P (n, m), made on first use."""
        return self._plan

    @property
    def coupling(self) -> Tensor | Plan:
        """The plan as something that multiplies, ``coupling @ v`` and ``coupling.T @ u``; no matrix
        where none was used.

        Example:
            >>> import torch, advect as ad
            >>> solution = ad.ExactOT().solve(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
            >>> (solution.coupling @ torch.ones(2, 1)).flatten().tolist()
            [0.5, 0.5]
        """
        return self.plan() if self.operator is None else self.operator

    def release(self) -> None:
        """Let go of matrices that the coupling keeps only to be fast."""
        if self.operator is not None:
            self.operator.release()


class Solver(Protocol):
    """Anything that solves transport problems: ``Sinkhorn``, ``ExactOT``, or one's own.

    A symmetric problem (``solve_self``) is that of a measure with itself; its two potentials
    coincide."""

    def prepare(self, cost: Cost, a: Tensor, b: Tensor) -> Solver:
        """The solver with every option that depends on the problem made a number, so that related
        problems share it.
        """
        ...

    def solve(
        self,
        cost: Cost,
        a: Tensor | None = None,
        b: Tensor | None = None,
        init: Potentials | None = None,
    ) -> Solution:
        """Transport a to b under the cost, from potentials ``init`` if given."""
        ...

    def solve_self(
        self, cost: Cost, a: Tensor | None = None, init: Tensor | None = None
    ) -> Solution:
        """Transport a to itself under a symmetric cost."""
        ...

    def certify(
        self, cost: Cost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if they are one to rounding, and to a marginal error
        ``slack``; otherwise None.
        """
        ...

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype in which the solver wants its costs; None to follow the data."""
        ...


def check_solver(solver: object, name: str = "solver") -> Solver:
    """What has the methods of a solver, as one; an error for a name or a number."""
    remedy = "Pass ad.Sinkhorn(), ad.ExactOT(), or one's own."
    check_methods(
        f"{name} must be a transport solver", solver, ("prepare", "solve", "solve_self"), remedy
    )
    return cast(Solver, solver)


def check_problem(cost: Cost, a: Tensor | None, b: Tensor | None) -> tuple[Cost, Tensor, Tensor]:
    """A finite floating cost matrix and float64 probability weights for its rows and columns."""
    if isinstance(cost, BlockedCost):  # its entries are looked at when they are made
        return cost, _weights("a", a, cost.shape[0], cost), _weights("b", b, cost.shape[1], cost)
    cost = torch.as_tensor(cost)
    if cost.ndim != 2 or cost.numel() == 0:
        raise InputError(
            "a cost must be a matrix (n, m) with n, m > 0",
            f"shape {tuple(cost.shape)}",
            "Pass one entry for each pair.",
        )
    if cost.dtype not in (torch.float32, torch.float64):
        cost = cost.to(torch.float32)
    cost = cost.detach()
    check_finite("the cost", cost, "Check the features and the cost function.")
    n, m = cost.shape
    return cost, _weights("a", a, n, cost), _weights("b", b, m, cost)


def _weights(name: str, weights: Tensor | None, n: int, like: Cost) -> Tensor:
    if weights is None:
        return torch.full((n,), 1 / n, dtype=torch.float64, device=like.device)
    return check_weights(
        name, torch.as_tensor(weights).detach().to(device=like.device, dtype=torch.float64), n
    )

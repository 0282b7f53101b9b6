"""The interface of transport solvers: two methods, and defaults for the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from advect._util.checks import check_methods
from advect.ot.blocks import as_cost
from advect.ot.cost import Cost
from advect.ot.divergence import SIDES, Divergence, warn_unless_converged
from advect.ot.solution import AnyCost, Mass, Potentials, Solution, Start, check_problem

Keep = Callable[[str, Solution], Solution]


def released(side: str, solution: Solution) -> Solution:
    """The solution without matrices that can be computed again."""
    solution.release()
    return solution


class Solver(ABC):
    """Base class of transport solvers.

    A subclass defines ``solve`` and ``solve_self`` (a measure with itself, under a symmetric cost) for
    a ``Cost`` or a matrix. A plain class with these two methods works as a solver too: it always
    receives a matrix and float64 weights that sum to one. See ``advect.testing.check_solver``.

    Example:
        >>> import torch, advect as ad
        >>> class Independent:
        ...     def solve(self, cost, a, b, init=None):
        ...         f = cost.double() @ b
        ...         return ad.ot.Solution(float(a @ f), (f, 0 * b), 0.0, True, 0, 0.0, a[:, None] * b, 1e-9)
        ...     def solve_self(self, cost, a, init=None):
        ...         return self.solve(cost, a, a)
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> between, within = (x - x.T - 4).square() / 2, (x - x.T).square() / 2
        >>> ad.ot.divergence(between, within, within, solver=Independent()).value
        8.0
    """

    refines: ClassVar[bool] = False  # ``refined`` is more precise
    in_blocks: ClassVar[bool] = False  # never needs a whole cost matrix
    stays: ClassVar[bool] = False  # self-problems have value 0 and need no solve
    stochastic: ClassVar[bool] = False  # results depend on random draws, which ``at`` changes

    @abstractmethod
    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        """Transport a to b; potentials ``init`` to start from change the work, not the result."""

    @abstractmethod
    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Transport a to itself under a symmetric cost."""

    def prepare(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver with problem-dependent options made numbers, so that related problems share them."""
        return self

    def certify(
        self, cost: AnyCost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if they are one up to rounding and ``slack``, else None."""
        return None

    def divergence(
        self,
        make: Callable[[str], Cost],
        a: Tensor,
        b: Tensor,
        *,
        warm: dict[str, Tensor] | None = None,
        target: Solution | None = None,
        keep: Keep | None = None,
    ) -> Divergence:
        """The three problems of a divergence by a prepared solver, one cost at a time.

        Args:
            make: makes the cost of a side ("cross", "source" or "target"), which is freed before the
                next unless a solution needs it.
            a, b: weights that sum to 1.
            warm: potentials "f", "g" and "self" to start from; any may be missing. Without it the
                self-problems come first, and their potentials are tried on the cross problem: for equal
                measures, in any order, they solve it, and the divergence is exactly zero.
            target: the solution within b, if known.
            keep: what to keep of a solution, given its side; by default all but matrices.
        """
        keep = keep or released

        def within(side: str, weights: Tensor, init: Tensor | None = None) -> Solution:
            return keep(side, self.solve_self(make(side), weights, init=init))

        if warm is not None:
            start = (warm["f"], warm["g"]) if "f" in warm and "g" in warm else None
            cross = keep("cross", self.solve(make("cross"), a, b, init=start))
            source = within("source", a, warm.get("self"))
            return Divergence(cross, source, target or within("target", b), (a, b))
        source, target = within("source", a), target or within("target", b)
        guess = source.potentials[0], target.potentials[0]
        slack = 2 * (source.marginal_error + target.marginal_error)
        cost = make("cross")
        certified = self.certify(cost, a, b, guess, slack)
        cross = keep("cross", certified or self.solve(cost, a, b))
        return Divergence(cross, source, target, (a, b), equal=certified is not None)

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that costs should have; None to follow the data."""
        return None

    @property
    def regularisation(self) -> float:
        """Epsilon as a number, of a prepared solver; 0 for exact transport."""
        return 0.0

    def with_epsilon(self, epsilon: float) -> Self:
        """The same solver with another regularisation, if it has one."""
        return self

    @property
    def tolerance(self) -> float | None:
        """The marginal error at which the solver stops, if ``sharpened`` can reduce it."""
        return None

    def with_tolerance(self, tol: float) -> Self:
        """The same solver with another tolerance, if it has one."""
        return self

    def sharpened(self, share: float, largest: float) -> Self | None:
        """The solver with this share of its tolerance, for costs up to ``largest``; None if impossible."""
        return None

    def refined(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver for this problem, as precise as float64 allows."""
        return self

    def precise(self, shape: tuple[int, int], largest: float, dtype: torch.dtype) -> bool:
        """Whether costs up to ``largest`` in this dtype are precise enough for the prepared solver."""
        return True

    @property
    def leaves_mass(self) -> bool:
        """Whether the marginals of a plan may differ from the weights."""
        return False

    def scratch(self, n: int, m: int) -> int:
        """Entries of matrices that the three problems need besides the costs."""
        return 3 * max(n, m) ** 2

    def at(self, step: int) -> Self:
        """The same solver with the draws of another step of a flow."""
        return self


def check_solver(solver: Any, name: str = "solver") -> Solver:
    """A ``Solver``, or an object with its two methods as one; an error for anything else."""
    if isinstance(solver, Solver):
        return solver
    remedy = "Pass ad.Sinkhorn(), ad.ExactOT(), or an object with solve and solve_self."
    what = f"{name} must be a transport solver"
    check_methods(what, solver, ("solve", "solve_self"), remedy)
    return _Adopted(solver)


@dataclass(frozen=True, repr=False)
class _Adopted(Solver):
    """An object with the two methods; it receives matrices and checked weights."""

    own: Any

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        cost, a, b = check_problem(cost, a, b)
        return self.own.solve(cost.dense(), a, b, init=init)

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        cost, a, _ = check_problem(cost, a, None)
        return self.own.solve_self(cost.dense(), a, init=init)

    def __repr__(self) -> str:
        return repr(self.own)


def divergence(
    cross_cost: AnyCost,
    source_cost: AnyCost,
    target_cost: AnyCost,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    solver: Solver,
) -> Divergence:
    """The debiased divergence S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b).

    Args:
        cross_cost, source_cost, target_cost: cost matrices (n, m), (n, n), (m, m), or ``Cost``
            objects such as ``BlockedCost``.
        a, b: weights; uniform by default.
        solver: for each problem; a relative epsilon refers to the cross problem.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.rand(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> cost = lambda x, y: (x - y.T).square() / 2
        >>> s = ad.ot.divergence(cost(x, x + 1), cost(x, x), cost(x, x), solver=ad.Sinkhorn(epsilon=0.05))
        >>> round(s.value, 6)                                # a shift by 1: exactly ½
        0.5
    """
    solved = solve_divergence((cross_cost, source_cost, target_cost), a, b, solver=solver)
    warn_unless_converged(solved, solved.converged)
    return solved


def solve_divergence(
    costs: tuple[AnyCost, AnyCost, AnyCost],
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    solver: Solver,
) -> Divergence:
    """``divergence`` without its warning."""
    solver = check_solver(solver)
    cross, a, b = check_problem(costs[0], a, b)
    sides = dict(zip(SIDES, (cross, as_cost(costs[1]), as_cost(costs[2])), strict=True))
    return solver.prepare(cross, a, b).divergence(sides.__getitem__, a, b)

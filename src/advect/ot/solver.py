"""What a transport solver promises: two methods, and defaults for all else that callers ask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from advect._util.checks import check_methods
from advect.ot.blocks import as_cost
from advect.ot.cost import Cost
from advect.ot.divergence import SIDES, Divergence, warn_unless_converged
from advect.ot.solution import AnyCost, Mass, Potentials, Solution, Start, check_problem

Keep = Callable[[str, Solution], Solution]


def released(side: str, solution: Solution) -> Solution:
    """The solution without matrices that can be made again."""
    solution.release()
    return solution


class Solver(ABC):
    """Anything that solves transport problems: ``Sinkhorn``, ``ExactOT``, or one's own.

    One's own writes ``solve`` and ``solve_self``. A cost comes as a matrix or as a ``Cost``
    (``advect.ot.check_problem`` makes either a ``Cost`` with checked weights); a class with these
    two methods that is no ``Solver`` works as well, and gets matrices. A symmetric problem
    (``solve_self``) is that of a measure with itself; its two potentials coincide. The rest has
    defaults, for solvers that take costs and problems as they are.

    Example:
        >>> import torch, advect as ad
        >>> class Independent(ad.ot.Solver):
        ...     def solve(self, cost, a=None, b=None, init=None):
        ...         cost, a, b = ad.ot.check_problem(cost, a, b)
        ...         plan = ad.ot.DensePlan(a[:, None] * b)
        ...         f, value = cost.dense().double() @ b, cost.mean(a, b)
        ...         return ad.ot.Solution(value, (f, 0 * b), 0.0, True, 0, 0.0, plan)
        ...     def solve_self(self, cost, a=None, init=None):
        ...         return self.solve(cost, a, a)
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> Independent().solve((x - x.T).square() / 2).value
        1.0
    """

    @abstractmethod
    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        """Transport a to b under the cost, from potentials ``init`` if given: they change the work,
        not the result.
        """

    @abstractmethod
    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        """Transport a to itself under a symmetric cost."""

    def prepare(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver with every option that depends on the problem made a number, so that related
        problems share it.
        """
        return self

    def certify(
        self, cost: AnyCost, a: Tensor, b: Tensor, potentials: Potentials, slack: float = 0.0
    ) -> Solution | None:
        """These potentials as a solution if they are one to rounding, and to a marginal error
        ``slack``; otherwise None.
        """
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
        """The three problems of a divergence by a solver that is prepared for them, one cost at a
        time.

        Args:
            make: makes the cost of a side ("cross", "source" or "target") when its turn has come;
                it is let go of before the next, unless a solution keeps it.
            a, b: weights that sum to 1.
            warm: potentials "f", "g" and "self" (within a) to start from, any of which may be
                missing. Without it the self-problems come first and their potentials are tried on
                the cross problem: when a and b are the same measure, in whatever order, they solve
                it, and the divergence vanishes to the last bit.
            target: the solution within b, where it is known.
            keep: what is to be kept of a solution, given its side; by default all but matrices that
                can be made again.
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
        """The dtype in which the solver wants its costs; None to follow the data."""
        return None

    @property
    def regularisation(self) -> float:
        """Epsilon as a number, of a prepared solver; 0 for exact transport."""
        return 0.0

    def with_epsilon(self, epsilon: float) -> Self:
        """The same solver with another regularisation, where it has one."""
        return self

    @property
    def tolerance(self) -> float | None:
        """The marginal error at which the solver stops, where ``sharpened`` can make it less."""
        return None

    def with_tolerance(self, tol: float) -> Self:
        """The same solver with another tolerance, where it has one."""
        return self

    def sharpened(self, share: float, largest: float) -> Self | None:
        """The solver with at most this share of its tolerance, for costs up to ``largest``; None
        where it cannot be sharper.
        """
        return None

    @property
    def refines(self) -> bool:
        """Whether ``refined`` is any closer."""
        return False

    def refined(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver for this problem as close as float64 allows."""
        return self

    def precise(self, shape: tuple[int, int], largest: float, dtype: torch.dtype) -> bool:
        """Whether costs up to ``largest`` in this dtype have digits enough for what the solver,
        prepared for them, makes of them.
        """
        return True

    @property
    def leaves_mass(self) -> bool:
        """Whether a plan may leave mass behind, so that its marginals are not the weights."""
        return False

    @property
    def in_blocks(self) -> bool:
        """Whether costs are wanted in blocks, since whole matrices are never looked at."""
        return False

    def scratch(self, n: int, m: int) -> int:
        """Entries of matrices that solving the problems of a divergence takes beside the costs: a
        kernel, and another one of twice the size if it has to go on in float64.
        """
        return 3 * max(n, m) ** 2

    @property
    def stays(self) -> bool:
        """Whether a measure always stays where it is in its problem with itself, where that is free:
        there is nothing to debias then, and only the problem between two has to be solved.
        """
        return False

    @property
    def stochastic(self) -> bool:
        """Whether a result depends on random draws, which ``at`` changes."""
        return False

    def at(self, step: int) -> Self:
        """The same with the draws of another step of a flow."""
        return self


def check_solver(solver: Any, name: str = "solver") -> Solver:
    """A solver, or what has its two methods as one; an error for a name or a number."""
    if isinstance(solver, Solver):
        return solver
    remedy = "Pass ad.Sinkhorn(), ad.ExactOT(), or one's own."
    what = f"{name} must be a transport solver"
    check_methods(what, solver, ("solve", "solve_self"), remedy)
    return _Adopted(solver)


@dataclass(frozen=True, repr=False)
class _Adopted(Solver):
    """A solver that has no more than the two methods, and is given matrices."""

    own: Any

    def solve(self, cost: AnyCost, a: Mass = None, b: Mass = None, init: Start = None) -> Solution:
        return self.own.solve(as_cost(cost).dense(), a, b, init=init)

    def solve_self(self, cost: AnyCost, a: Mass = None, init: Tensor | None = None) -> Solution:
        return self.own.solve_self(as_cost(cost).dense(), a, init=init)

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
    """S(a, b) under the costs between a and b, within a, and within b.

    The problems are solved one after the other, each letting go of its matrices before the next.

    Args:
        cross_cost, source_cost, target_cost: cost matrices (n, m), (n, n), (m, m), or ``Cost``
            objects such as ``BlockedCost``.
        a, b: weights; uniform by default.
        solver: how each problem is solved; a relative epsilon refers to the cross problem.

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
    """``divergence`` without a word on what it cannot resolve."""
    solver = check_solver(solver)
    cross, a, b = check_problem(costs[0], a, b)
    sides = dict(zip(SIDES, (cross, as_cost(costs[1]), as_cost(costs[2])), strict=True))
    return solver.prepare(cross, a, b).divergence(sides.__getitem__, a, b)

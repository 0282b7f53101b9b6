"""The interface of transport solvers: two methods, and defaults for the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from advect._util.checks import check_methods, check_weights
from advect.ot.cost import Cost, as_cost
from advect.ot.plan import ScatteredPlan
from advect.ot.solution import SIDES, Divergence, Potentials, Solution, warn_unresolved

Start = Potentials | None  # to begin from
Mass = Tensor | None  # weights; None for equal ones
AnyCost = Cost | Tensor
Keep = Callable[[str, Solution], Solution]

_NEAR = 1e-3  # share of the mean cost, from which measures are taken for different


class Solver(ABC):
    """Base class of transport solvers.

    A subclass defines ``solve`` and ``solve_self`` (a measure with itself, under a symmetric cost) for
    a ``Cost`` or a matrix. A plain class with these two methods works as a solver too: it always
    receives a matrix and float64 weights that sum to one. See ``advect.testing.check_solver``.

    Attributes:
        dtype: that costs should have; None to follow the data.
        epsilon: the regularisation, a number for a prepared solver; 0 for exact transport.
        reach: beyond which mass may be left behind; None if marginals are met.
        stochastic: whether results depend on random draws. Such a solver looks at parts of a cost
            and never needs a whole matrix.

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

    dtype: Any = None
    epsilon: Any = 0.0
    reach: Any = None
    stochastic: ClassVar[bool] = False

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
            target: the solution within b, if known; with ``warm``.
            keep: what to keep of a solution, given its side; by default all but matrices.
        """
        keep = keep or (lambda side, solution: solution.released())
        if warm is not None:
            start = (warm["f"], warm["g"]) if "f" in warm and "g" in warm else None
            cross = keep("cross", self.solve(make("cross"), a, b, init=start))
            source = keep("source", self.solve_self(make("source"), a, init=warm.get("self")))
            target = target or keep("target", self.solve_self(make("target"), b))
            return Divergence(cross, source, target, (a, b))
        cost = make("source")
        gap, source = -cost.mean(a, a) / 2, keep("source", self.solve_self(cost, a))
        cost = make("target")
        gap, target = gap - cost.mean(b, b) / 2, keep("target", self.solve_self(cost, b))
        cost = make("cross")
        mean, certified = cost.mean(a, b), None
        # For equal measures the mean costs of all three problems are the same.
        if abs(gap + mean) <= _NEAR * abs(mean):
            guess = source.potentials[0], target.potentials[0]
            slack = 2 * (source.marginal_error + target.marginal_error)
            certified = self.certify(cost, a, b, guess, slack)
        cross = keep("cross", certified or self.solve(cost, a, b))
        return Divergence(cross, source, target, (a, b), equal=certified is not None)

    def continued(self, epsilon: float | None, tol: float | None, step: int) -> Self:
        """The solver at a later step of a flow: its epsilon and tolerance, if known, and other draws."""
        return self

    def finer_tolerance(self, share: float, epsilon: float, largest: float) -> float | None:
        """This share of the solver's tolerance, for costs up to ``largest``; None if impossible."""
        return None

    def refined(self, cost: AnyCost, a: Tensor, b: Tensor) -> Self:
        """The solver for this problem, as precise as float64 allows."""
        return self


def check_problem(cost: Any, a: Mass, b: Mass) -> tuple[Cost, Tensor, Tensor]:
    """A ``Cost``, and float64 probability weights for its rows and columns."""
    cost, found = cost if isinstance(cost, Cost) else as_cost(cost), []
    for name, weights, n in (("a", a, cost.shape[0]), ("b", b, cost.shape[1])):
        if weights is None:
            weights = torch.full((n,), 1 / n, dtype=torch.float64, device=cost.device)
        elif name == "b" and b is a and found:  # a self-problem
            found.append(found[0])
            continue
        weights = torch.as_tensor(weights).detach().to(device=cost.device, dtype=torch.float64)
        found.append(check_weights(name, weights, n))
    return cost, found[0], found[1]


class Support:
    """The rows and columns of a problem that have mass, where some have none."""

    def __init__(self, cost: Cost, a: Tensor, b: Tensor) -> None:
        self.cost, self.a, self.b, self.rows, self.columns = cost, a, b, a > 0, b > 0
        self.positions = self.rows.nonzero()[:, 0], self.columns.nonzero()[:, 0]

    def problem(self) -> tuple[Cost, Tensor, Tensor]:
        """The problem between points with mass."""
        return (self.cost.select(*self.positions), *self.cut(self.a, self.b))

    def cut(self, f: Tensor, g: Tensor) -> Potentials:
        """Values of all points, restricted to those with mass."""
        return f[self.rows], g[self.columns]

    def extended(self, found: Solution) -> Solution:
        """A solution between points with mass as one between all points.

        Points without mass get the potentials T(g) and T(f), damped as those of points with mass.
        """
        (f, g), epsilon = found.potentials, found.epsilon
        damping = 1.0 if found.reach is None else found.reach**2 / (found.reach**2 + epsilon)
        start = torch.zeros_like(self.b).masked_scatter_(self.columns, g)
        kernel = self.cost.kernel(torch.float64, room=0)
        all_f, all_g = kernel.softmins(start, self.a, self.b, epsilon, damping)
        potentials = all_f.masked_scatter_(self.rows, f), all_g.masked_scatter_(self.columns, g)
        plan = ScatteredPlan([(1.0, *self.positions, found.coupling)], self.cost.shape)
        return replace(found, potentials=potentials, coupling=plan)


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
    if not solved.converged:
        warn_unresolved(solved)
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

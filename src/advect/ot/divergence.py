"""The debiased divergence of three cost matrices, and problems in which points have no mass."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from advect.errors import ConvergenceWarning
from advect.ot.cost import Cost, as_cost
from advect.ot.plan import ScatteredPlan
from advect.ot.solver import (
    SIDES,
    AnyCost,
    Divergence,
    Potentials,
    Solution,
    Solver,
    check_problem,
    check_solver,
)


class Support:
    """The rows and columns of a problem that have mass."""

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
        """Extend a solution between points with mass to all points.

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


def warn_unresolved(solved: Divergence) -> None:
    """Warn if the three problems are solved; their difference is below the error."""
    if solved.met or solved.equal:
        warnings.warn(
            f"the divergence is {solved.value:.3e} with an error of {solved.error:.1e}: the measures are "
            "too close for this dtype, "
            "tolerance and epsilon. Use float64 without tol, a smaller epsilon if it is large "
            "compared with the costs, or ExactOT.",
            ConvergenceWarning,
            stacklevel=3,
        )

"""The debiased divergence (Feydy et al. 2019): zero between equal measures, positive otherwise.

S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩

Here are the three solves, their sum and its gradient for every use: distances, flows, the inner
problems of a label cost, parts that are drawn at random."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from advect.errors import ConvergenceWarning
from advect.ot.certificate import RESOLVED
from advect.ot.solution import Cost, Potentials, Solution, Solver, check_solver

Term = TypeVar("Term", float, Tensor)


def debiased(cross: Term, source: Term, target: Term) -> Term:
    """OT(a, b) − ½ OT(a, a) − ½ OT(b, b): of values, and of whatever is linear in them."""
    return cross - (source + target) / 2


def envelope(value: float, contracted: Tensor) -> Tensor:
    """The value of a solver with the gradient of ⟨P, C⟩ at its plan P, which is held fixed.

    At an optimal plan that is the gradient of the value (envelope theorem): what a change of the
    plan would add vanishes to first order, so nothing is differentiated through iterations."""
    contracted = contracted.double()
    return value + (contracted - contracted.detach())


@dataclass(frozen=True, eq=False)
class Divergence:
    """The three solved problems behind a divergence.

    Attributes:
        cross, source, target: the solutions between a and b, a and a, b and b.
        weights: a and b.
        cost_error: how far entries of the costs can be off, as far as the value feels it.
        equal: whether the potentials of the self-problems solve the problem between a and b, to
            rounding.
        contracted: ⟨P, C⟩ of the three problems, debiased, with a graph to what moves; None where
            the plans have not been contracted.

    Example:
        >>> import torch, advect as ad
        >>> x = torch.linspace(0, 1, 30)[:, None]
        >>> cost = (x - x.T).square() / 2
        >>> ad.ot.divergence(cost, cost, cost, solver=ad.Sinkhorn(epsilon=0.01)).value
        0.0
    """

    cross: Solution
    source: Solution
    target: Solution
    weights: Potentials
    cost_error: float = 0.0
    equal: bool = False
    contracted: Tensor | None = None

    @property
    def solutions(self) -> tuple[Solution, Solution, Solution]:
        return self.cross, self.source, self.target

    @property
    def signed(self) -> float:
        """S(a, b) as the solves give it: their errors can leave it below 0."""
        return debiased(*(part.value for part in self.solutions))

    @property
    def value(self) -> float:
        """S(a, b), at least 0; NaN where a solve has failed."""
        return self.signed if math.isnan(self.signed) else max(0.0, self.signed)

    @property
    def loss(self) -> Tensor:
        """``signed`` as a tensor, differentiable where the plans have been contracted."""
        zero = torch.zeros((), dtype=torch.float64, device=self.weights[0].device)
        return envelope(self.signed, zero if self.contracted is None else self.contracted)

    @cached_property
    def contributions(self) -> tuple[Tensor, Tensor]:
        """How much each point adds to the value: a_i (f_i − f^aa_i) and b_j (g_j − g^bb_j).

        f + c and g − c are the same solution: the total is shared equally between the two sides.
        """
        (a, b), (f, g) = self.weights, self.cross.potentials
        from_source = a * (f - self.source.potentials[0])
        from_target = b * (g - self.target.potentials[0])
        lead = (from_source.sum() - from_target.sum()) / 2
        return from_source - a * lead / a.sum(), from_target + b * lead / b.sum()

    @property
    def error(self) -> float:
        """How far ``value`` can be from S(a, b): what the three problems state, and what the costs
        are off by.
        """
        cross, source, target = (part.value_error for part in self.solutions)
        return cross + (source + target) / 2 + self.cost_error

    @property
    def sampled(self) -> bool:
        """Whether it is a mean over random parts of the samples, and not of the whole: ``error`` is
        that of this mean then.
        """
        return False

    @property
    def drawn(self) -> float:
        """The share of the source's mass that took part: 1 unless parts are drawn at random."""
        return 1.0

    @property
    def standard_error(self) -> float:
        """Of the value, where parts are drawn at random; 0 where they are not."""
        return 0.0

    @property
    def met(self) -> bool:
        """Whether all three problems met their tolerance."""
        return all(part.converged for part in self.solutions)

    @property
    def converged(self) -> bool:
        """Whether all three problems met their tolerance, and ``error`` is below 1 % of ``value``
        (or they are ``equal``).
        """
        return self.met and (self.equal or self.error <= RESOLVED * self.value)


def divergence(
    cross_cost: Cost,
    source_cost: Cost,
    target_cost: Cost,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    solver: Solver,
) -> Divergence:
    """S(a, b) under the costs between a and b, within a, and within b.

    Costs that come in blocks are solved one after the other, each letting go of its matrices before
    the next.

    The self-problems come first: when a and b are the same measure, in whatever order, their
    potentials solve the cross problem already, and the divergence vanishes to the last bit.

    Args:
        cross_cost, source_cost, target_cost: cost matrices (n, m), (n, n), (m, m), or
            ``BlockedCost``.
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
    costs: tuple[Cost, Cost, Cost],
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    solver: Solver,
) -> Divergence:
    """``divergence`` without a word on what it cannot resolve."""
    check_solver(solver)
    a, b = (
        torch.full((n,), 1 / n, dtype=torch.float64, device=costs[0].device)
        if weights is None
        else weights.double()
        for n, weights in zip(costs[0].shape, (a, b), strict=True)
    )
    sides = dict(zip(SIDES, costs, strict=True))
    return solve_three(sides.__getitem__, a, b, solver.prepare(costs[0], a, b))


SIDES: tuple[str, ...] = ("cross", "source", "target")


def _kept(side: str, cost: Cost, solution: Solution) -> Solution:
    solution.release()
    return solution


def solve_three(
    make: Callable[[str], Cost],
    a: Tensor,
    b: Tensor,
    solver: Solver,
    *,
    warm: dict[str, Tensor] | None = None,
    target: Solution | None = None,
    keep: Callable[[str, Cost, Solution], Solution] = _kept,
) -> Divergence:
    """The three problems by a solver that is prepared for them, one cost at a time.

    Args:
        make: makes the cost of a side ("cross", "source" or "target") when its turn has come; it is
            let go of before the next, unless a solution keeps it.
        warm: potentials "f", "g" and "self" (within a) to start from, any of which may be missing.
            Without it the self-problems come first and their potentials are tried on the cross
            problem: when a and b are the same measure, in whatever order, they solve it, and the
            divergence vanishes to the last bit.
        target: the solution within b, where it is known.
        keep: what is to be kept of a solution, told its side and its cost.
    """
    if (together := getattr(solver, "divergence", None)) is not None:
        return _together(make, a, b, together, keep)

    def solved(side: str, solve: Callable[[Cost], Solution]) -> Solution:
        cost = make(side)
        return keep(side, cost, solve(cost))

    def within(side: str, weights: Tensor, init: Tensor | None = None) -> Solution:
        return solved(side, lambda cost: solver.solve_self(cost, weights, init=init))

    if warm is not None:
        start = (warm["f"], warm["g"]) if "f" in warm and "g" in warm else None
        cross = solved("cross", lambda cost: solver.solve(cost, a, b, init=start))
        source = within("source", a, warm.get("self"))
        return Divergence(cross, source, target or within("target", b), (a, b))
    source, target = within("source", a), target or within("target", b)
    guess = source.potentials[0], target.potentials[0]
    slack = 2 * (source.marginal_error + target.marginal_error)
    cost = make("cross")
    certified = solver.certify(cost, a, b, guess, slack)
    cross = keep("cross", cost, certified or solver.solve(cost, a, b))
    return Divergence(cross, source, target, (a, b), equal=certified is not None)


def _together(
    make: Callable[[str], Cost],
    a: Tensor,
    b: Tensor,
    solve: Callable[..., Divergence],
    keep: Callable[[str, Cost, Solution], Solution],
) -> Divergence:
    """By a solver that looks at the three problems at once."""
    costs = [make(side) for side in SIDES]
    found = solve(*costs, a, b)
    parts = zip(SIDES, costs, found.solutions, strict=True)
    return replace(found, **{side: keep(side, cost, part) for side, cost, part in parts})


def warn_unless_converged(solved: Divergence, converged: bool) -> None:
    """A word where the problems are solved and their difference is still not known: the solver has
    warned of the rest.

    A solver that only looks at the potentials it is given (``equal``) warns of nothing.
    """
    if not converged and (solved.met or solved.equal):
        warnings.warn(
            f"the divergence is {solved.value:.3e}, known to {solved.error:.1e}: the measures are "
            "too close for this dtype, "
            "tolerance and epsilon. Pass float64 and no tol, a smaller epsilon if it is large "
            "against the costs, or ExactOT.",
            ConvergenceWarning,
            stacklevel=3,
        )

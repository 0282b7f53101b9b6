"""The debiased divergence (Feydy et al. 2019): zero between equal measures, positive otherwise.

S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect.errors import ConvergenceWarning
from advect.ot.certificate import RESOLVED
from advect.ot.solution import Cost, Solution, Solver, check_solver


@dataclass(frozen=True, eq=False)
class Divergence:
    """The three solved problems behind a divergence.

    Attributes:
        value: S(a, b), at least 0; NaN where a solve has failed.
        cross, source, target: the solutions between a and b, a and a, b and b.
        contributions: how much each point adds to the value.
        cost_error: how far entries of the costs can be off, as far as the value feels it.
        equal: whether the potentials of the self-problems solve the problem between a and b, to
            rounding.

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
    contributions: tuple[Tensor, Tensor]
    cost_error: float = 0.0
    equal: bool = False

    @property
    def value(self) -> float:
        total = float(self.contributions[0].sum() + self.contributions[1].sum())
        return total if math.isnan(total) else max(0.0, total)

    @property
    def error(self) -> float:
        """How far ``value`` can be from S(a, b): what the three problems state, and what the costs
        are off by.
        """
        return (
            self.cross.value_error
            + (self.source.value_error + self.target.value_error) / 2
            + self.cost_error
        )

    @property
    def sampled(self) -> bool:
        """Whether it is a mean over random parts of the samples, and not of the whole: ``error`` is
        that of this mean then.
        """
        return False

    @property
    def standard_error(self) -> float:
        """Of the value, where parts are drawn at random; 0 where they are not."""
        return 0.0

    @property
    def met(self) -> bool:
        """Whether all three problems met their tolerance."""
        return self.cross.converged and self.source.converged and self.target.converged

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
    cost_error: float = 0.0,
) -> Divergence:
    """``divergence`` for costs that are off by so much, without a word on what it cannot
    resolve.
    """
    check_solver(solver)
    cross_cost, source_cost, target_cost = costs
    a, b = (
        torch.full((n,), 1 / n, dtype=torch.float64, device=cross_cost.device)
        if weights is None
        else weights.double()
        for n, weights in zip(cross_cost.shape, (a, b), strict=True)
    )
    solver = solver.prepare(cross_cost, a, b)
    if (
        own := getattr(solver, "divergence", None)
    ) is not None:  # a solver that looks at the three problems together
        return replace(own(cross_cost, source_cost, target_cost, a, b), cost_error=cost_error)
    source = solver.solve_self(source_cost, a)
    source.release()
    target = solver.solve_self(target_cost, b)
    target.release()
    guess, slack = (
        (source.potentials[0], target.potentials[0]),
        2 * (source.marginal_error + target.marginal_error),
    )
    certified = solver.certify(cross_cost, a, b, guess, slack)
    cross = certified or solver.solve(cross_cost, a, b)
    cross.release()
    return joined(cross, source, target, a, b, cost_error, equal=certified is not None)


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


def joined(
    cross: Solution,
    source: Solution,
    target: Solution,
    a: Tensor,
    b: Tensor,
    cost_error: float = 0.0,
    *,
    equal: bool = False,
) -> Divergence:
    """The divergence of three solved problems."""
    f, g = cross.potentials
    from_source, from_target = a * (f - source.potentials[0]), b * (g - target.potentials[0])
    # f + c and g − c are the same solution: share the total equally between the two sides.
    lead = (from_source.sum() - from_target.sum()) / 2
    contributions = (from_source - a * lead / a.sum(), from_target + b * lead / b.sum())
    return Divergence(cross, source, target, contributions, cost_error, equal)

"""The debiased divergence (Feydy et al. 2019): zero between equal measures, positive otherwise.

S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advect.ot.solution import Cost, Solution, Solver


@dataclass(frozen=True, eq=False)
class Divergence:
    """The three solved problems behind a divergence.

    Attributes:
        value: S(a, b), at least 0.
        cross, source, target: the solutions between a and b, a and a, b and b.

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

    @property
    def value(self) -> float:
        return max(0.0, float(self.contributions[0].sum() + self.contributions[1].sum()))

    @property
    def converged(self) -> bool:
        return self.cross.converged and self.source.converged and self.target.converged


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

    Costs that come in blocks are solved one after the other, each letting go of its matrices before the next.

    The self-problems come first: when a and b are the same measure, in whatever order, their potentials solve the
    cross problem already, and the divergence vanishes to the last bit.

    Args:
        cross_cost, source_cost, target_cost: cost matrices (n, m), (n, n), (m, m), or ``BlockedCost``.
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
    a, b = (
        torch.full((n,), 1 / n, dtype=torch.float64, device=cross_cost.device) if weights is None else weights.double()
        for n, weights in zip(cross_cost.shape, (a, b), strict=True)
    )
    solver = solver.prepare(cross_cost, a, b)
    if (own := getattr(solver, "divergence", None)) is not None:  # a solver that looks at the three problems together
        return own(cross_cost, source_cost, target_cost, a, b)
    source = solver.solve_self(source_cost, a)
    source.release()
    target = solver.solve_self(target_cost, b)
    target.release()
    guess = (source.potentials[0], target.potentials[0])
    cross = solver.certify(cross_cost, a, b, guess) or solver.solve(cross_cost, a, b)
    cross.release()
    return joined(cross, source, target, a, b)


def joined(cross: Solution, source: Solution, target: Solution, a: Tensor, b: Tensor) -> Divergence:
    """The divergence of three solved problems."""
    f, g = cross.potentials
    from_source, from_target = a * (f - source.potentials[0]), b * (g - target.potentials[0])
    # f + c and g − c are the same solution: share the total equally between the two sides.
    lead = (from_source.sum() - from_target.sum()) / 2
    return Divergence(cross, source, target, (from_source - a * lead / a.sum(), from_target + b * lead / b.sum()))

"""The debiased divergence (Feydy et al. 2019): zero between equal measures, positive otherwise.

S(a, b) = OT(a, b) − ½ OT(a, a) − ½ OT(b, b) = ⟨a, f − f_aa⟩ + ⟨b, g − g_bb⟩
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from advect.ot.solution import Solution, Solver


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
    cross_cost: Tensor,
    source_cost: Tensor,
    target_cost: Tensor,
    a: Tensor | None = None,
    b: Tensor | None = None,
    *,
    solver: Solver,
) -> Divergence:
    """S(a, b) under the costs between a and b, within a, and within b.

    The self-problems come first: when a and b are the same measure, in whatever order, their potentials solve the
    cross problem already, and the divergence vanishes to the last bit.

    Args:
        cross_cost, source_cost, target_cost: cost matrices (n, m), (n, n), (m, m).
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
    a = (
        torch.full((len(cross_cost),), 1 / len(cross_cost), dtype=torch.float64, device=cross_cost.device)
        if a is None
        else a.double()
    )
    m = cross_cost.shape[1]
    b = torch.full((m,), 1 / m, dtype=torch.float64, device=cross_cost.device) if b is None else b.double()
    solver = solver.prepare(cross_cost, a, b)
    source, target = solver.solve_self(source_cost, a), solver.solve_self(target_cost, b)
    guess = (source.potentials[0], target.potentials[0])
    cross = solver.certify(cross_cost, a, b, guess) or solver.solve(cross_cost, a, b)
    f, g = cross.potentials
    from_source, from_target = a * (f - source.potentials[0]), b * (g - target.potentials[0])
    # f + c and g − c are the same solution: share the total equally between the two sides.
    lead = (from_source.sum() - from_target.sum()) / 2
    return Divergence(cross, source, target, (from_source - a * lead / a.sum(), from_target + b * lead / b.sum()))

"""Points with mass and points without."""

from __future__ import annotations

import torch
from torch import Tensor

from advect._util.checks import seen_weights
from advect.ot.cost import Cost
from advect.ot.plan import Plan, ScatteredPlan


class Support:
    """The rows and columns of a problem that have mass."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b, self.rows, self.columns = a, b, a > 0, b > 0
        self.whole = seen_weights(a)[1] > 0 and seen_weights(b)[1] > 0

    @property
    def positions(self) -> tuple[Tensor, Tensor]:
        """Where the points with mass are."""
        return self.rows.nonzero()[:, 0], self.columns.nonzero()[:, 0]

    def within(self, cost: Cost) -> Cost:
        """The cost between points with mass."""
        return cost if self.whole else cost.select(*self.positions)

    def cut(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of all points, at those with mass."""
        return (f, g) if self.whole else (f[self.rows], g[self.columns])

    def plan(self, inner: Plan) -> Plan:
        """A plan between points with mass, as one between all points."""
        if self.whole:
            return inner
        return ScatteredPlan([(1.0, *self.positions, inner)], (len(self.a), len(self.b)))

    def extended(
        self, cost: Cost, f: Tensor, g: Tensor, epsilon: float, damping: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Potentials of points with mass, and of the others T(g) and T(f), times ``damping``."""
        if self.whole:
            return f, g
        start = torch.zeros_like(self.b).masked_scatter_(self.columns, g)
        kernel = cost.kernel(torch.float64, room=0)
        reach_f, reach_g = kernel.softmins(start, self.a, self.b, epsilon, damping)
        return reach_f.masked_scatter_(self.rows, f), reach_g.masked_scatter_(self.columns, g)

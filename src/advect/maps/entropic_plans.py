"""Entropic plans of a map: the potentials of two problems that are solved together, and rows of a
plan for points that were in neither.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect.data.dataset import LabeledDataset
from advect.ot import Sinkhorn

TOL = 1e-4  # marginal error of the plans
BLOCK = 4_000_000  # entries of a block of plan rows, 16 or 32 MB
_ANNEALING_RATIO, _ANNEALING_TOL = 0.2, 0.03


def solve_both(
    cross: Tensor, within: Tensor, weights: Tensor, solver: Sinkhorn
) -> tuple[Tensor, Tensor]:
    """Potentials on the first states of their transport to themselves, and on the last states of
    that from the first.

    Groups of points that are far apart for ε leave their potentials nearly free against each other,
    and two solutions may settle differently. So one problem starts from the other, and what is
    annealed is the difference of the two: where nothing but the mean has moved it is zero
    throughout, and the map is exact."""
    final = solver.regularisation
    epsilon = max(float(cross.max()), final)
    own = torch.zeros_like(weights)
    difference = own, own
    while True:
        tol = TOL if epsilon == final else _ANNEALING_TOL
        step = Sinkhorn(epsilon, tol=tol)
        own = step.solve_self(within, weights, init=own).potentials[0]
        f, g = step.solve(
            cross, weights, weights, init=(own + difference[0], own + difference[1])
        ).potentials
        if epsilon == final:
            return own, g
        difference = f - own, g - own
        epsilon = max(_ANNEALING_RATIO * epsilon, final)


class Side:
    """One measure that new points are transported to: rows of the plan, and their barycentres.

    The score of particle j for x is x·x_j + (g_j − ½‖x_j‖² + ε log b_j) − label cost: the cost
    without ½‖x‖², which all particles share. The label cost is linear in the weights of the
    classes, so it is more columns of the same product."""

    def __init__(
        self, state: LabeledDataset, potential: Tensor, labels: Tensor | None, epsilon: float
    ) -> None:
        x = state.x
        self.epsilon, self.labels = epsilon, None if labels is None else labels.to(x)  # (k, k')
        self.points = x
        self.columns = (
            x if labels is None else torch.cat([x, one_hot(state.y, labels.shape[1]).to(x)], dim=1)
        )
        self.shift = potential - x.double().square().sum(dim=1) / 2 + epsilon * state.weights.log()

    def plan(self, x: Tensor, classes: Tensor | None) -> Tensor:
        """Rows π(x), (n, m), for points and weights of their classes (n, k)."""
        if self.labels is not None and classes is not None:
            x = torch.cat([x, -classes @ self.labels.to(x)], dim=1)
        scores = torch.addmm(self.shift.to(x), x, self.columns.to(x).T)
        scores -= scores.amax(dim=1, keepdim=True)
        return scores.div_(self.epsilon).softmax(dim=1)

    def image(self, x: Tensor, classes: Tensor | None) -> Tensor:
        """Σ_j π_j(x) x_j."""
        return self.plan(x, classes) @ self.points.to(x)

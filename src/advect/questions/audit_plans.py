"""Transport of samples to others, and never to themselves: who stands for whom.

A dataset is carried to itself under C_ij = ½ ‖x_i − x_j‖², with the diagonal left out:

    P_ij = a_i a_j exp((h_i + h_j − C_ij)/ε)  for i ≠ j ,   h_i = −ε log Σ_{j≠i} a_j exp((h_j − C_ij)/ε)

All samples give and get their own mass, so that none is everyone's neighbour. h_i is the price of mass
at x_i: it is high where no other sample is near. The second equation says at once what it is at a point
that had no part in it, and to whom its mass would go.

Costs are cut where they are a multiple of the median and of what lonely samples pay, so that one gross
error does not set the scale for all; epsilon is a share of the median."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect._util.memory import MemoryLimit, as_bytes
from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.ot import BlockedCost, Cost, Sinkhorn
from advect.ot.plan import Index

EPSILON = 0.1  # of the median cost
_FARTHEST = 50.0  # typical costs, or costs of lonely samples, beyond which all are one
_LONELY = 0.98  # the share of samples that have a nearer neighbour than a lonely one
_LEAST = 1e-4  # of the farthest cost: epsilon follows no smaller ones
_LOOKED_AT = 1000  # rows that the median is taken over
_TOL = 1e-4  # of a plan: shares to some digits


@dataclass(frozen=True, eq=False)
class Crowd:
    """Points with masses, and what their transport to one another found.

    Attributes:
        points: (m, p), float64.  mass: (m,), summing to one.
        price: h, (m,).
        typical: the median cost between two points.  far: what costs are cut at.
        converged: whether the plan is solved.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
        >>> crowd = Crowd.of(points, torch.full((3,), 1 / 3, dtype=torch.float64))
        >>> plan = torch.cat([shares for _, shares, _, _ in crowd.among_itself()])
        >>> plan.diagonal().tolist(), [round(share, 3) for share in plan.sum(0).tolist()]
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    """

    points: Tensor
    mass: Tensor
    price: Tensor
    typical: float
    far: float
    limit: MemoryLimit
    converged: bool

    @classmethod
    def of(cls, points: Tensor, mass: Tensor, limit: MemoryLimit = None) -> Crowd:
        free = cls(points, mass, torch.zeros_like(mass), 1.0, 1.0, limit, True)
        if len(points) == 1:
            return free
        rows = torch.linspace(0, len(points) - 1, min(len(points), _LOOKED_AT)).round().long()
        found = free._alone(points, True)(rows.to(points.device))
        typical = _typical(found[found.isfinite()])
        lonely = float(found.amin(dim=1).quantile(_LONELY))
        far = _FARTHEST * max(typical, lonely)
        free = replace(free, typical=max(typical, far * _LEAST), far=far)
        solver = Sinkhorn(epsilon=free.epsilon, tol=_TOL)
        solved = solver.solve(free._cost(points, True), mass, mass)
        f, g = solved.potentials  # one, but for a constant that they trade
        return replace(free, price=(f + g) / 2, converged=solved.converged)

    @property
    def epsilon(self) -> float:
        return EPSILON * self.typical

    def among_itself(self) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """What ``toward`` says of the points themselves, each without itself."""
        return self._shares(self.points, True)

    def toward(self, points: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """For blocks of other points: which rows, their shares among the crowd (they sum to one), such
        shares were everyone free to choose the nearest, and their price.
        """
        return self._shares(points, False)

    def prices(self, points: Tensor) -> Tensor:
        """h at other points."""
        return torch.cat([price for *_, price in self.toward(points)])

    def nearest(self) -> tuple[Tensor, Tensor]:
        """For each point the position of the nearest other one, and how far it is."""
        rows = self._alone(self.points, True)
        n = len(self.points)
        blocks = self._cost(self.points, True).blocks()
        at = torch.cat([rows(block).argmin(dim=1) for block in blocks])
        if n == 1:
            return at, torch.full((1,), torch.inf, dtype=self.points.dtype)
        return at, torch.linalg.vector_norm(self.points - self.points[at], dim=1)

    def _shares(self, points: Tensor, same: bool) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        cost, weights = self._cost(points, same), self.mass.log()
        for rows in cost.blocks():
            free = weights - cost.rows(rows) / self.epsilon
            held = free + self.price / self.epsilon
            price = -self.epsilon * held.logsumexp(dim=1)
            yield rows, torch.softmax(held, dim=1), torch.softmax(free, dim=1), price

    def _alone(self, points: Tensor, same: bool) -> _Rows:
        limit = as_bytes(self.limit, points.device)
        crowd = LabeledDataset(self.points)
        first = crowd if same else LabeledDataset(points)
        pair = GroundCost(label=NoLabels()).between(first, crowd)
        return _Rows(pair.blocked(torch.float64, limit), same)

    def _cost(self, points: Tensor, same: bool) -> Cost:
        rows, far = self._alone(points, same), self.far

        def cut(index: Index) -> Tensor:
            made = rows(index)
            never = made.isinf()
            return made.clamp_max_(far).masked_fill_(never, 4 * far)

        shape = len(points), len(self.points)
        return BlockedCost.of(cut, shape, room=rows.cost.room or 0, like=points)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of a cost; of points with themselves, infinite on the diagonal."""

    cost: BlockedCost
    same: bool

    def __call__(self, index: Index) -> Tensor:
        rows = self.cost.rows(index)
        if self.same:
            at = torch.arange(self.cost.shape[0], device=rows.device)[index]
            rows[torch.arange(len(at), device=rows.device), at] = torch.inf
        return rows


def _typical(costs: Tensor) -> float:
    """The median, or if half of the costs are nothing, the mean of the others; 1 where all are."""
    median = float(costs.median()) if len(costs) else 0.0
    if median > 0:
        return median
    some = costs[costs > 0]
    return float(some.mean()) if len(some) else 1.0

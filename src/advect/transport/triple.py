"""The three transport problems of a debiased distance, solved one at a time.

S(ρ, β) = OT_c(ρ, β) − ½ OT_c(ρ, ρ) − ½ OT_c(β, β)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from advect.cost import PairCost
from advect.cost.labels import LabelCost
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot.cost import Cost, DenseCost
from advect.ot.dual import Scale
from advect.ot.plan import NoPlan
from advect.ot.solution import SIDES, Divergence, Solution
from advect.ot.solver import Solver


@dataclass(eq=False)
class Triple:
    """The problems between source and target, within the source, and within the target.

    Args:
        between: makes the ground cost of a side, when its turn has come.
        weights: of source and target.
        dtype: of the costs.
        limit: bytes for costs in blocks; None for matrices.
        copies: of the features that a step keeps beside the costs.
    """

    between: Callable[[str], PairCost]
    weights: tuple[Tensor, Tensor]
    dtype: torch.dtype
    limit: int | None
    copies: int = 0
    pairs: dict[str, PairCost] = field(default_factory=dict, init=False)
    _cross: Cost | None = field(default=None, init=False)  # made before it is solved

    def pair(self, side: str) -> PairCost:
        """The ground cost of a side."""
        if side not in self.pairs:
            self.pairs[side] = self.between(side)
        return self.pairs[side]

    def make(self, side: str) -> Cost:
        """The cost of a side for a solver, as a matrix or in blocks."""
        if side == "cross" and self._cross is not None:
            cost, self._cross = self._cross, None
            return cost
        pair = self.pair(side)
        if self.limit is None:
            return DenseCost(pair.matrix(self.dtype))
        samples = len(pair.source) + len(pair.target)
        beside = self.copies * samples * pair.source.dim * self.dtype.itemsize
        return pair.blocked(self.dtype, self.limit, beside)

    def prepared(self, solver: Solver, *, refined: bool = False) -> Solver:
        """The solver with every option that depends on the problem made a number, or as precise as it
        can be.
        """
        self._cross = cost = self.make("cross")
        solver = solver.prepare(cost, *self.weights)
        return solver.refined(cost, *self.weights) if refined else solver

    def largest(self) -> float:
        """The largest cost between source and target, before they are solved, or a bound of it where
        looking would take a pass over blocks.
        """
        bound = None if self.limit is None else self.pair("cross").largest
        if bound is None:
            assert self._cross is not None
            bound = max(map(abs, self._cross.extremes()))
        return bound

    def rounding(self, side: str) -> float:
        """How far entries of the cost of a side are off."""
        return self.pair(side).rounding(self.dtype)

    def is_precise(self, solver: Solver, largest: float) -> bool:
        """Whether costs of this dtype have digits enough for what the prepared solver makes of them."""
        if self.dtype == torch.float64 or not solver.epsilon:
            return True
        return Scale(
            (len(self.weights[0]), len(self.weights[1])), 0.0, largest, solver.epsilon
        ).enough(self.dtype)

    def solve(self, solver: Solver) -> Divergence:
        """All three solutions with their plans, by a prepared solver."""
        found = solver.divergence(self.make, *self.weights)
        cross, source, target = map(self.rounding, SIDES)
        return replace(found, cost_error=cross + (source + target) / 2)

    def step(self, solver: Solver, warm: dict[str, Tensor], target: Solution | None) -> Divergence:
        """Values, potentials and gradient alone: each plan is contracted and released with its cost.

        The problem within the target is solved once in a flow, and its value holds its rounding.
        """
        pulls, roundings = {}, {}

        def keep(side: str, solution: Solution) -> Solution:
            if not (math.isfinite(solution.value) and math.isfinite(solution.marginal_error)):
                raise InputError(
                    f"{type(solver).__name__} found no solution of a transport problem",
                    f"a value of {solution.value} at epsilon {solution.epsilon:.3g}",
                    "Raise its epsilon, or use ad.Sinkhorn().",
                )
            roundings[side], error = self.rounding(side), solution.value_error
            if side == "target":
                error += roundings[side]
            else:
                pulls[side] = self.pull(side, solution)
            del self.pairs[side]
            return replace(solution, value_error=error, coupling=NoPlan())

        found = solver.divergence(self.make, *self.weights, warm=warm, target=target, keep=keep)
        # Of parts that were drawn it is a mean over their mass: in these units a sample that was
        # drawn moves by T(x) − x, and the others stay.
        contracted = found.drawn * (pulls["cross"] - pulls["source"] / 2)
        error = roundings["cross"] + roundings["source"] / 2
        return replace(found, cost_error=error, contracted=contracted)

    def pull(self, side: str, solution: Solution) -> Tensor:
        """⟨P, C⟩ with a graph to what moves; zero where nothing does."""
        pair = self.pair(side)
        if not pair.moves():
            return torch.zeros((), dtype=torch.float64, device=pair.source.x.device)
        return pair.contract(solution.coupling).double()


@dataclass(frozen=True, eq=False)
class KnownDistances(LabelCost):
    """A label cost with given distances; for soft labels also those within either dataset."""

    distances: Tensor
    own: tuple[Tensor, Tensor] | None = None

    def within(self, source: LabeledDataset, target: LabeledDataset) -> tuple[Tensor, Tensor]:
        return (self.distances, self.distances) if self.own is None else self.own

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return self.distances

"""The three transport problems of two datasets: their costs in one dtype within a limit of memory,
each made when its turn has come.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from advect.cost import PairCost
from advect.cost.labels import LabelCost
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot.blocks import DenseCost
from advect.ot.certificate import Scale
from advect.ot.cost import Cost
from advect.ot.divergence import SIDES, Divergence, debiased
from advect.ot.plan import NoPlan
from advect.ot.solution import Solution
from advect.ot.solver import Solver


class Side:
    """One of the three problems: its ground cost, made on first use, and what rounding leaves of it."""

    def __init__(
        self,
        between: Callable[[], PairCost],
        dtype: torch.dtype,
        limit: int | None,
        copies: int,
        agreed: Callable[[float], float],
    ) -> None:
        self.between, self.dtype, self.limit = between, dtype, limit
        self.copies, self.agreed = copies, agreed

    @cached_property
    def pair(self) -> PairCost:
        return self.between()

    def cost(self) -> Cost:
        """The cost as a matrix or in blocks."""
        if self.limit is None:
            return DenseCost(self.pair.matrix(self.dtype))
        samples = len(self.pair.source) + len(self.pair.target)
        beside = self.copies * samples * self.pair.source.dim * self.dtype.itemsize
        return self.pair.blocked(self.dtype, self.limit, beside)

    @cached_property
    def rounding(self) -> float:
        """How far entries of the cost are off."""
        return self.agreed(self.pair.rounding(self.dtype))

    def release(self) -> None:
        """Free the ground cost; the bound of its rounding stays."""
        self.__dict__.pop("pair", None)


class Problem:
    """The problems between source and target, within the source, and within the target."""

    def __init__(
        self,
        between: Callable[[str], PairCost],
        weights: tuple[Tensor, Tensor],
        dtype: torch.dtype,
        limit: int | None,
        copies: int = 0,
    ) -> None:
        self.weights, self.dtype, self.limit = weights, dtype, limit
        self.sides = {
            side: Side(partial(between, side), dtype, limit, copies, self.agreed) for side in SIDES
        }
        self._prepared: Cost | None = None  # that of the cross problem, made before it is solved

    def pair(self, side: str) -> PairCost:
        """The ground cost of a side."""
        return self.sides[side].pair

    def make(self, side: str) -> Cost:
        """The cost of a side for a solver."""
        if side == "cross" and self._prepared is not None:
            cost, self._prepared = self._prepared, None
            return cost
        return self._made(side)

    def _made(self, side: str) -> Cost:
        return self.sides[side].cost()

    def prepared(self, solver: Solver) -> Solver:
        """The solver with every option that depends on the problem made a number."""
        self._prepared = self.make("cross")
        return solver.prepare(self._prepared, *self.weights)

    def refined(self, solver: Solver) -> Solver:
        """The solver, prepared, with the least tolerance it can reach; as it is where it knows of
        none.
        """
        solver = self.prepared(solver)
        assert self._prepared is not None
        return solver.refined(self._prepared, *self.weights)

    @cached_property
    def largest(self) -> float:
        """The largest cost between source and target, before they are solved; or a bound of it
        where looking would take a pass over blocks.
        """
        assert self._prepared is not None
        bound = None if self.limit is None else self.pair("cross").largest
        if bound is None:
            return max(map(abs, self._prepared.extremes()))
        return self.agreed(bound)

    def agreed(self, number: float) -> float:
        """The largest of what the ranks have found: here there is one."""
        return number

    def precise(self, solver: Solver) -> bool:
        """Whether costs of this dtype have digits enough for what the prepared solver makes of
        them.
        """
        wide = self.dtype == torch.float64
        return wide or solver.precise(self.shape, self.largest, self.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.weights[0]), len(self.weights[1])

    def rounding_bound(self, epsilon: float) -> float:
        """How far rounding alone can take the cross value from the truth, whatever the tolerance
        is; nothing in float64.
        """
        if self.dtype == torch.float64:
            return 0.0
        scale = Scale(self.shape, 0.0, self.largest, epsilon)
        return scale.value_rounding(self.dtype) + self.sides["cross"].rounding

    def solve_with_plans(self, solver: Solver) -> Divergence:
        """All three solutions with their plans, by a prepared solver."""
        found = solver.divergence(self.make, *self.weights)
        cross, source, target = (self.sides[side].rounding for side in SIDES)
        return replace(found, cost_error=cross + (source + target) / 2)

    def solve_for_gradient(
        self, solver: Solver, warm: dict[str, Tensor], target: Solution | None
    ) -> Divergence:
        """The values, potentials and gradients alone: each plan is contracted and let go of, with
        its cost.
        """
        pulls: dict[str, Tensor] = {}

        def keep(side: str, solution: Solution) -> Solution:
            _check_found(solution, solver)
            problem, error = self.sides[side], solution.value_error
            if side == "target":  # it stays where it is, and is remembered with its rounding
                error += problem.rounding
            else:
                _ = problem.rounding  # while the ground cost is there
                pulls[side] = self._pull(side, problem.pair, solution)
            problem.release()
            return replace(solution, value_error=error, coupling=NoPlan())

        start = self.cut(warm)
        found = solver.divergence(self.make, *self.weights, warm=start, target=target, keep=keep)
        # Of parts that were drawn it is a mean over their mass: in these units a sample that was
        # drawn moves by T(x) − x, and the others stay.
        fixed = torch.zeros_like(pulls["cross"])
        contracted = found.drawn * debiased(pulls["cross"], pulls["source"], fixed)
        error = self.sides["cross"].rounding + self.sides["source"].rounding / 2
        return replace(found, cost_error=error, contracted=contracted)

    def _pull(self, side: str, pair: PairCost, solution: Solution) -> Tensor:
        """⟨P, C⟩ with a graph to what moves; zero where nothing does."""
        if not pair.moves:
            return torch.zeros((), dtype=torch.float64, device=pair.source.x.device)
        return pair.contract(solution.coupling).double()

    def cut(self, potentials: dict[str, Tensor]) -> dict[str, Tensor]:
        """Potentials of all samples at those that the problems are about: all of them."""
        return potentials

    def spread(self, potentials: dict[str, Tensor]) -> dict[str, Tensor]:
        """Potentials of the problems for all samples."""
        return potentials


@dataclass(frozen=True, eq=False)
class KnownDistances(LabelCost):
    """A label cost with given distances; for soft labels also those within either dataset."""

    distances: Tensor
    own: tuple[Tensor, Tensor] | None = None

    def within(self, source: LabeledDataset, target: LabeledDataset) -> tuple[Tensor, Tensor]:
        return (self.distances, self.distances) if self.own is None else self.own

    def __call__(self, source: LabeledDataset, target: LabeledDataset) -> Tensor:
        return self.distances


def _check_found(solution: Solution, solver: Solver) -> None:
    """An error if a solver failed without any solution: no fault of the data."""
    if not (math.isfinite(solution.value) and math.isfinite(solution.marginal_error)):
        raise InputError(
            f"{type(solver).__name__} found no solution of a transport problem",
            f"a value of {solution.value} at epsilon {solution.epsilon:.3g}",
            "Raise its epsilon, or use ad.Sinkhorn().",
        )

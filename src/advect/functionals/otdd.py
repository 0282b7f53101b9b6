"""T_β(ρ) = ½ OTDD²(ρ, β): the debiased distance to a target dataset as a functional (paper, section
4).

    T_β(ρ) = OT_c(ρ, β) − ½ OT_c(ρ, ρ) − ½ OT_c(β, β) ,     c(z, z') = ½(‖x − x'‖² + label_weight W₂²(α_y, α_y'))

With the ½ inside, its velocity in x is T(x) − x for the transport map T (minus the self-transport
map when regularised), so that an explicit Euler step of size τ shrinks an exact distance by the
factor 1 − τ."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from advect._util.memory import MemoryLimit, as_bytes
from advect.cost import GroundCost, PairCost, Sketch
from advect.cost.ground import check_cost
from advect.cost.rounding import cost_rounding
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.functionals.base import Functional
from advect.ot import BlockedCost, MiniBatch, Sinkhorn, Solution, Solver
from advect.ot.solution import check_solver
from advect.transport.problem import is_precise, largest_of, rounding_error, sharper

_MATRICES = 4  # of n × max(n, m) numbers in a step: cost, kernel (and a wider one)
# share of the energy that rounding may take before float64 takes over: it is bounded from far above
_LOST = 0.1


class OTDD(Functional):
    """The energy ½ OTDD² to a target dataset, with warm starts from one call to the next.

    A relative epsilon is made a number at the first call after ``reset``, so that a whole flow
    descends one functional. The target's problem with itself is solved once. The potentials of the
    last call start the next one: that changes the work and not the result. Costs are computed in
    the dtype of the data, and in float64 from where that has not digits enough for the plan (a
    small epsilon) or for what is left of the energy; ``error`` bounds that of the last call.
    Likewise the tolerance of a ``Sinkhorn`` is made smaller where what it leaves open could be more
    than a tenth of the energy: near the target a fixed one would show values and follow velocities
    of its own error.

    Args:
        target: the dataset to move toward.
        cost: the ground cost; by default full Gaussian label laws, label_weight 1. Label distances
            are taken anew at each step. ``GroundCost(label=NoLabels())`` is the feature-only
            comparison of the paper.
        solver: ``Sinkhorn(...)`` (default: epsilon 1 % of the mean cost, marginal error 1e-3),
            ``ExactOT()``, or for many samples ``MiniBatch(...)``, with other draws at each step, or
            ``NystromSinkhorn(...)``.
        memory_limit: bytes, or a text like "2GiB", that a step may take beside the datasets; by
            default half of what is free when a flow starts. Where the matrices of a step do not
            fit, it works in blocks of rows.

    Example:
        >>> import torch, advect as ad
        >>> target = ad.LabeledDataset([[2.0], [3.0]], ["a", "a"])
        >>> energy = ad.OTDD(target, cost=ad.GroundCost(label=ad.NoLabels()), solver=ad.ExactOT())
        >>> energy(ad.LabeledDataset([[0.0], [1.0]], ["b", "b"])).item()
        2.0
    """

    def __init__(
        self,
        target: LabeledDataset,
        *,
        cost: GroundCost | None = None,
        solver: Solver | None = None,
        memory_limit: MemoryLimit = None,
    ) -> None:
        if not isinstance(target, LabeledDataset):
            raise InputError(
                "target must be a LabeledDataset",
                type(target).__name__,
                "Wrap arrays as ad.LabeledDataset(x, y).",
            )
        self.target = target
        self.cost = check_cost(cost) or GroundCost()
        self.solver: Solver = check_solver(solver or Sinkhorn(tol=1e-3))
        self.memory_limit = memory_limit
        if memory_limit is not None:
            as_bytes(memory_limit)
        self.reset()

    @property
    def stochastic(self) -> bool:
        return isinstance(self.solver, MiniBatch)

    @property
    def converged(self) -> bool:
        return self._converged

    @property
    def error(self) -> float:
        """How far the value of the last call can be from the energy: the solver's tolerance, and
        rounding.
        """
        return self._error

    def reset(self) -> None:
        self._converged = True
        self._prepared: Solver | None = None
        self._limit: int | None = None
        self._fitted: GroundCost | None = None
        self._own: PairCost | None = None
        self._calls = 0
        self._wide = False
        self._tol: float | None = None  # of a solver that was sharpened
        self._error = math.inf
        self._open = self._largest = (
            0.0  # of the last call: what its solver left open, and the largest cost
        )
        self._target: _Own | None = None
        self._potentials: dict[str, Tensor] = {}

    def state(self) -> dict[str, Tensor]:
        if self._prepared is None:
            return {}
        epsilon = getattr(self._prepared, "epsilon", 0.0)
        numbers = {"epsilon": epsilon, "calls": self._calls, "wide": self._wide}
        numbers |= {"error": self._error, "converged": self._converged}
        if self._tol is not None:
            numbers["tol"] = self._tol
        if self._target is not None:
            numbers |= {f"target_{name}": value for name, value in self._target._asdict().items()}
        numbers = {
            name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()
        }
        feature = self._fitted.feature if self._fitted else None
        if isinstance(feature, Sketch) and feature.basis is not None:
            numbers["sketch"] = feature.basis
        return {**self._potentials, **numbers}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.reset()
        if not state:
            return
        self._potentials = {name: state[name] for name in ("f", "g", "self") if name in state}
        self._calls = int(state.get("calls", 0))
        if "sketch" in state and isinstance(self.cost.feature, Sketch):
            self._fitted = replace(
                self.cost, feature=replace(self.cost.feature, basis=state["sketch"])
            )
        self._wide = bool(state.get("wide", False))
        if "target_value" in state:
            error, met = (
                state.get("target_value_error", math.inf),
                state.get("target_converged", True),
            )
            self._target = _Own(float(state["target_value"]), float(error), bool(met))
        epsilon = float(state["epsilon"])
        with_epsilon = getattr(self.solver, "with_epsilon", None)
        self._prepared = self.solver if with_epsilon is None else with_epsilon(epsilon)
        if "tol" in state and isinstance(self._prepared, Sinkhorn):
            self._tol = float(state["tol"])
            self._prepared = replace(self._prepared, tol=self._tol)
        self._error = float(state.get("error", math.inf))
        self._converged = bool(state.get("converged", True))

    def __call__(self, rho: LabeledDataset) -> Tensor:
        """½ OTDD² as a float64 number, differentiable in features and laws."""
        cost = self._fitted = self._fitted or self.cost.fitted(rho, self.target)
        call = self._together if isinstance(self.solver, MiniBatch) else self._evaluate
        found = call(cost, rho, self._dtype(rho))
        if found is None:  # and stay there, as a flow that has come so far will
            self._wide, self._target = True, None
            found = call(cost, rho, torch.float64)
        while found is not None and self._sharpen(float(found.detach())):
            found = call(cost, rho, self._dtype(rho))  # from the potentials just found
        assert found is not None
        return found

    def _sharpen(self, value: float) -> bool:
        """Whether the solver now has a smaller tolerance, which it keeps, since its own leaves too
        much of this value open.
        """
        finer = sharper(self._prepared, self._open, value, self._largest)
        if finer is None:
            return False
        self._prepared, self._tol = finer, getattr(finer, "tol", None)
        return True

    def _dtype(self, rho: LabeledDataset) -> torch.dtype:
        return (
            torch.float64
            if self._wide
            else self.solver.dtype or torch.promote_types(rho.x.dtype, self.target.x.dtype)
        )

    def _evaluate(self, cost: GroundCost, rho: LabeledDataset, dtype: torch.dtype) -> Tensor | None:
        """The energy by costs in this dtype; None if it has not digits enough for its plan, or for
        what is left of it.
        """
        blocked = self._in_blocks(rho, dtype)
        cross = cost.between(rho, self.target)
        matrix = self._costs(cross, dtype, blocked)
        solver = self._prepared = self._prepared or self.solver.prepare(
            matrix, rho.weights, self.target.weights
        )
        if dtype != torch.float64 and not is_precise(solver, cross, matrix):
            return None
        beyond = self._beyond(cost, solver, dtype, blocked)
        f, g = self._potentials.get("f"), self._potentials.get("g")
        warm = None if f is None or g is None or len(f) != len(rho) else (f, g)
        solved = _found(solver.solve(matrix, rho.weights, self.target.weights, init=warm), solver)
        lost = 0.0 if dtype == torch.float64 else rounding_error(solver, cross, matrix)
        self._largest = largest_of(cross, matrix)
        pulled, value, (f, g) = _pull(cross, solved, matrix), solved.value, solved.potentials
        met, self._open, error = (
            solved.converged,
            solved.value_error,
            solved.value_error + cost_rounding(cross, dtype),
        )
        del matrix, solved, cross  # a solution keeps its cost: let go of it before the next is made
        within = cost.between(rho, rho)
        start = self._potentials.get("self")
        start = None if start is None or len(start) != len(rho) else start
        matrix = self._costs(within, dtype, blocked)
        alone = _found(solver.solve_self(matrix, rho.weights, init=start), solver)
        value = value - 0.5 * alone.value - 0.5 * beyond.value
        if 2 * lost > _LOST * abs(value):
            return None
        pulled = pulled - 0.5 * _pull(within, alone, matrix)
        self._converged = met and alone.converged and beyond.converged
        self._error = (
            error + (alone.value_error + beyond.value_error) / 2 + cost_rounding(within, dtype)
        )
        self._potentials = {"f": f, "g": g, "self": alone.potentials[0]}
        return (
            value + pulled - pulled.detach()
        )  # the value of the solver, the gradient of the cost (envelope theorem)

    def _together(self, cost: GroundCost, rho: LabeledDataset, dtype: torch.dtype) -> Tensor | None:
        """By a solver that draws parts of both datasets and needs the three problems at once; anew
        at each call.
        """
        blocked = self._in_blocks(rho, dtype)
        cross, within = cost.between(rho, self.target), cost.between(rho, rho)
        own = self._own = self._own or cost.between(self.target, self.target)
        between, inside, beyond = (
            self._costs(pair, dtype, blocked) for pair in (cross, within, own)
        )
        if self._prepared is None:
            self._prepared = self.solver.prepare(between, rho.weights, self.target.weights)
        assert isinstance(self._prepared, MiniBatch)
        if dtype != torch.float64 and not is_precise(self._prepared, cross, between):
            return None
        solved = self._prepared.at(self._calls).divergence(
            between, inside, beyond, rho.weights, self.target.weights
        )
        self._calls, self._converged, self._error = (
            self._calls + 1,
            solved.met,
            solved.error + 2 * cost_rounding(cross, dtype),
        )
        # A mean over the mass that was drawn: in these units a sample that was drawn moves by T(x)
        # − x, and the others stay.
        pulled = solved.drawn * (
            _pull(cross, solved.cross, between) - 0.5 * _pull(within, solved.source, inside)
        )
        value = solved.contributions[0].sum() + solved.contributions[1].sum()
        return value + pulled - pulled.detach()

    def _in_blocks(self, rho: LabeledDataset, dtype: torch.dtype) -> bool:
        """Whether the matrices of a step would pass the limit."""
        if self._limit is None:
            self._limit = as_bytes(self.memory_limit, rho.x.device)
        side = max(len(rho), len(self.target))
        if getattr(self.solver, "in_blocks", False):
            return True
        return _MATRICES * side * len(rho) * dtype.itemsize > self._limit

    def _costs(self, pair: PairCost, dtype: torch.dtype, blocked: bool) -> Tensor | BlockedCost:
        if not blocked:
            return pair.matrix(dtype)
        # Laws keep a factor of the size of the data, and the pull is as large as the features.
        beside = 3 * (len(pair.source) + len(pair.target)) * pair.source.dim * dtype.itemsize
        return pair.blocked(dtype, self._limit or 0, beside)

    def _beyond(self, cost: GroundCost, solver: Solver, dtype: torch.dtype, blocked: bool) -> _Own:
        """The target's problem with itself, solved once."""
        if self._target is None:
            target = (
                self.target.replace()
            )  # a copy, so that what its laws keep for later calls goes with it
            pair = cost.between(target, target)
            solved = _found(
                solver.solve_self(self._costs(pair, dtype, blocked), self.target.weights), solver
            )
            self._target = _Own(
                solved.value, solved.value_error + cost_rounding(pair, dtype), solved.converged
            )
        return self._target


class _Own(NamedTuple):
    """What is remembered of a problem that is solved once."""

    value: float
    value_error: float
    converged: bool


def _found(solution: Solution, solver: Solver) -> Solution:
    """The solution, unless a solver failed without any: no fault of the data."""
    if math.isfinite(solution.value) and math.isfinite(solution.marginal_error):
        return solution
    raise InputError(
        f"{type(solver).__name__} found no solution of a transport problem",
        f"a value of {solution.value} at epsilon {solution.epsilon:.3g}",
        "Raise its epsilon (or its rank), or use ad.Sinkhorn().",
    )


def _pull(pair: PairCost, solution: Solution, matrix: Tensor | BlockedCost) -> Tensor:
    """⟨P, C⟩ with a graph to what moves; zero where nothing does. The plan is written over a cost
    matrix.
    """
    if not pair.moves:
        return torch.zeros((), dtype=torch.float64, device=pair.source.x.device)
    if isinstance(matrix, BlockedCost):
        return pair.contract(solution.coupling).double()
    return pair.contract(solution.make_plan(matrix)).double()

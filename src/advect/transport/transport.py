"""The debiased transport problem between two labeled datasets, for every use: a distance, a step of
a flow, and a flow on several ranks.

    S(ρ, β) = OT_c(ρ, β) − ½ OT_c(ρ, ρ) − ½ OT_c(β, β)

Here is what every one of them decides alike: whether the costs fit into memory, in which dtype they
are computed, which epsilon and which tolerance the solver has, where it starts, what is solved once,
and what the gradient is (``advect.ot.divergence``: the envelope theorem)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect._util.checks import check_kind
from advect._util.memory import MemoryLimit, as_bytes
from advect.cost import GroundCost, PairCost
from advect.cost.ground import check_cost
from advect.data.dataset import LabeledDataset
from advect.ot.divergence import SIDES, Divergence
from advect.ot.ranks import Group
from advect.ot.sinkhorn import Sinkhorn
from advect.ot.solver import Solver
from advect.transport.problem import KnownDistances, Problem
from advect.transport.ranks import ShardedProblem, agreed_limit
from advect.transport.state import State

Pairs = tuple[PairCost, PairCost, PairCost]

_WIDE = torch.float64
_LARGE = 2**26  # bytes below which memory is not asked about
_MATRICES = 4  # of n × max(n, m) numbers in a step: cost, kernel (and a wider one)
_COPIES = 3  # of the features in a step: laws keep a factor of their size, and so has the gradient
# share of the energy that rounding may take before float64 takes over: it is bounded from far above
_LOST = 0.1
_LOOSE = 0.1  # share of a value that a tolerance may leave open, as far as that is bounded


@dataclass(frozen=True, eq=False)
class Transport:
    """The debiased problem under a ground cost, by a solver, within a limit of memory."""

    cost: GroundCost
    solver: Solver
    memory_limit: MemoryLimit = None
    group: Group | None = None

    def __post_init__(self) -> None:
        check_cost(self.cost)
        if self.group is not None:
            what, remedy = "a sharded flow needs a Sinkhorn solver", "Pass ad.Sinkhorn(epsilon=…)."
            check_kind(what, self.solver, Sinkhorn, remedy)
        if self.memory_limit is not None:
            as_bytes(self.memory_limit)

    def begin(self, rho: LabeledDataset, target: LabeledDataset) -> dict[str, Tensor]:
        """The state before the first step: what the cost has fitted to these datasets."""
        fitted, group = self.cost.fitted(rho, target).state(), self.group
        return fitted if group is None else {k: group.of_first(v) for k, v in fitted.items()}

    def __call__(
        self, rho: LabeledDataset, target: LabeledDataset, tensors: dict[str, Tensor]
    ) -> tuple[Divergence, dict[str, Tensor]]:
        """One step: values, gradient (``Divergence.loss``) and potentials, with one matrix at a
        time, and the state for the next step (``State.to_tensors``).
        """
        state = State.from_tensors(tensors or self.begin(rho, target))
        while True:
            step = self._step(rho, target, state)
            if step is None:  # float64 from here on, as a flow that has come so far will need it
                state = replace(state, wide=True, target_value=None, target_labels=None)
                continue
            divergence, state, largest_cost = step
            tol = self._smaller_tolerance(divergence, state, largest_cost)
            if tol is None:
                return divergence, state.to_tensors()
            state = replace(state, tol=tol)  # once more, from the potentials just found

    def _step(
        self, rho: LabeledDataset, target: LabeledDataset, state: State
    ) -> tuple[Divergence, State, float] | None:
        """A step in the dtype of the state, and the largest cost; None if the dtype has not digits
        enough for the plan, or for what is left of the energy.
        """
        problem = self._flow_problem(rho, target, state)
        solver = problem.prepared(self._restored(state))
        if not problem.precise(solver):
            return None
        epsilon, largest, drawn = solver.regularisation, problem.largest, solver.stochastic
        target_pair = problem.pair("target") if drawn else None
        rounding = 0.0 if drawn else problem.rounding_bound(epsilon)
        potentials = state.potentials(len(rho), len(target))
        found = problem.solve_for_gradient(
            solver.at(state.calls), potentials, state.target_solution
        )
        if 2 * rounding > _LOST * abs(found.signed):
            return None
        after = State(
            self.cost.with_state(state.fitted).state(),
            epsilon=epsilon,
            tol=state.tol,
            wide=state.wide,
            calls=state.calls + drawn,
            error=found.error,
            converged=found.met,
            mass_left=found.mass_left if solver.leaves_mass else None,
        )
        if target_pair is None:
            (f, g), within = found.cross.potentials, found.source.potentials[0]
            spread = problem.spread({"f": f, "g": g, "self": within})
            after = replace(
                after,
                f=spread["f"],
                g=spread["g"],
                within=spread["self"],
                target_value=found.target.value,
                target_value_error=found.target.value_error,
                target_converged=found.target.converged,
                iterations=found.cross.n_iter,
                self_iterations=found.source.n_iter,
            )
        elif target_pair.has_labels:
            after = replace(after, target_labels=target_pair.label_distances.detach())
        return found, after, largest

    def _smaller_tolerance(self, found: Divergence, state: State, largest: float) -> float | None:
        """A smaller tolerance where what the solver's own leaves open could be a tenth of the
        value; None where it need not, or cannot, be smaller. The bound is from far above: what is
        really left open is a small part of it.
        """
        left, value = found.cross.value_error, abs(found.signed)
        if left <= _LOOSE * value:
            return None
        share = min(0.1, _LOOSE / 4 * value / left)
        finer = self._restored(state).sharpened(share, largest)
        return None if finer is None else finer.tolerance

    def _restored(self, state: State) -> Solver:
        """The solver with the epsilon and the tolerance of the flow."""
        solver = self.solver
        if state.epsilon is not None:
            solver = solver.with_epsilon(state.epsilon)
        return solver if state.tol is None else solver.with_tolerance(state.tol)

    def _flow_problem(self, rho: LabeledDataset, target: LabeledDataset, state: State) -> Problem:
        """The problems of a step."""
        cost = self.cost.with_state(state.fitted)
        dtype = _WIDE if state.wide else self._dtype(rho, target)
        labels, size = state.target_labels, 1 if self.group is None else self.group.size
        rows = -(-len(rho) // size)
        needed = _MATRICES * max(len(rho), len(target)) * rows * dtype.itemsize
        limit = self._limit(needed, rho.x.device)
        if self.group is not None:
            problem = ShardedProblem(cost, rho, target, dtype, limit, _COPIES, self.group)
            problem.check(first=state.f is None)
            return problem

        def between(side: str) -> PairCost:
            if side == "cross":
                return cost.between(rho, target)
            if side == "source":
                return cost.within(rho)
            own = target._replace()  # a copy, so that what its laws keep for later goes with it
            fixed = cost if labels is None else replace(cost, label=KnownDistances(labels))
            return fixed.between(own, own)

        return Problem(between, (rho.weights, target.weights), dtype, limit, _COPIES)

    def _dtype(self, rho: LabeledDataset, target: LabeledDataset) -> torch.dtype:
        return self.solver.dtype or torch.promote_types(rho.x.dtype, target.x.dtype)

    def _limit(self, needed: int, device: torch.device) -> int | None:
        """Bytes for costs in blocks; None where matrices of so many bytes fit."""
        in_blocks = self.solver.in_blocks  # it never looks at whole matrices
        if not in_blocks and self.memory_limit is None and needed < _LARGE:
            return None
        limit = (
            as_bytes(self.memory_limit, device)
            if self.group is None
            else agreed_limit(self.memory_limit, device, self.group)
        )
        return limit if in_blocks or needed > limit else None

    def solve_with_plans(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[Divergence, Pairs]:
        """The problem under a fitted cost from a cold start, with all plans at hand, and the ground
        costs; in float64 where the dtype of the datasets has not digits enough for a plan.
        """
        problem = self._distance_problem(self.cost, source, target, self._dtype(source, target))
        solver = problem.prepared(self.solver)
        cross, within_source, within_target = map(problem.pair, SIDES)
        if problem.precise(solver):
            found = problem.solve_with_plans(solver)
        else:
            del problem
            wide = self._distance_problem(*self.cost.widened(source, target), _WIDE)
            found = wide.solve_with_plans(wide.prepared(self.solver))
        return found, (cross, within_source, within_target)

    def problem(self, source: LabeledDataset, target: LabeledDataset) -> tuple[Problem, Solver]:
        """The problems under a fitted cost, not solved yet, and the solver prepared for them."""
        problem = self._distance_problem(self.cost, source, target, self._dtype(source, target))
        solver = problem.prepared(self.solver)
        if problem.precise(solver):
            return problem, solver
        wide = self._distance_problem(*self.cost.widened(source, target), _WIDE)
        return wide, wide.prepared(self.solver)

    def refined(self, source: LabeledDataset, target: LabeledDataset) -> Divergence:
        """As ``solve_with_plans``, to the last digits of float64, costs included, as far as the solver goes."""
        wide = self._distance_problem(*self.cost.widened(source, target), _WIDE)
        return wide.solve_with_plans(wide.refined(self.solver))

    def _distance_problem(
        self, cost: GroundCost, source: LabeledDataset, target: LabeledDataset, dtype: torch.dtype
    ) -> Problem:
        """The problems of a distance, whose costs stay."""
        n, m = len(source), len(target)
        needed = (n * m + n * n + m * m + self.solver.scratch(n, m)) * dtype.itemsize
        limit = self._limit(needed, source.x.device)
        sides = ((source, target), (source, source), (target, target))
        pairs = (
            tuple(cost.between(*side) for side in sides)
            if limit is None
            else cost.between_all(source, target, limit)
        )
        between = dict(zip(SIDES, pairs, strict=True)).__getitem__
        return Problem(between, (source.weights, target.weights), dtype, limit)


def check_dataset(name: str, data: LabeledDataset) -> LabeledDataset:
    """A labeled dataset; an error for anything else."""
    remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
    check_kind(f"{name} must be a LabeledDataset", data, LabeledDataset, remedy)
    return data

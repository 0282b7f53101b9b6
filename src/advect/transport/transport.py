"""The debiased transport problem between two labeled datasets, for every use: a distance, a step of
a flow, and a flow on several ranks.

Each of them decides here whether the costs fit into memory, in which dtype they are computed, which
epsilon and which tolerance the solver has, where it starts, what is solved once, and what the gradient
is (``advect.ot.solution``: the envelope theorem).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect._util.checks import check_kind
from advect._util.memory import MemoryLimit, as_bytes
from advect.cost import GroundCost, PairCost
from advect.data.dataset import LabeledDataset
from advect.ot.dual import Scale
from advect.ot.ranks import Group
from advect.ot.solution import SIDES, Divergence
from advect.ot.solver import Solver
from advect.transport.ranks import ShardedTriple, agreed_limit
from advect.transport.state import State
from advect.transport.triple import KnownDistances, Triple

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
            divergence, after, largest = step
            # The bound of what the tolerance leaves open is from far above. Where it could be a
            # tenth of the value, the problem is solved once more from the potentials just found.
            left, value = divergence.cross.value_error, abs(divergence.signed)
            tol = None
            if left > _LOOSE * value:
                solver = self.solver.continued(after.epsilon, after.tol, 0)
                share = min(0.1, _LOOSE / 4 * value / left)
                tol = solver.finer_tolerance(share, divergence.cross.epsilon, largest)
            if tol is None:
                return divergence, after.to_tensors()
            state = replace(after, tol=tol)

    def _step(
        self, rho: LabeledDataset, target: LabeledDataset, state: State
    ) -> tuple[Divergence, State, float] | None:
        """A step in the dtype of the state, and the largest cost; None if the dtype has not digits
        enough for the plan, or for what is left of the energy.
        """
        triple = self._flow_problem(rho, target, state)
        solver = self.solver.continued(state.epsilon, state.tol, state.calls)
        solver, drawn = triple.prepared(solver), self.solver.stochastic
        largest = triple.largest()
        if not triple.is_precise(solver, largest):
            return None
        target_labels = triple.pair("target").labels if drawn else None
        rounding = 0.0
        if triple.dtype != _WIDE and not drawn:
            shape = len(rho), len(target)
            scale = Scale(shape, 0.0, largest, float(solver.epsilon or largest))
            ends = (0.0, largest, 0.0, largest)  # potentials are not known yet
            rounding = scale.value_error(triple.dtype, 0.0, ends) + triple.rounding("cross")
        found = triple.step(solver, *state.start(len(rho), len(target)))
        if 2 * rounding > _LOST * abs(found.signed):
            return None
        after = replace(
            State(state.fitted),
            epsilon=float(solver.epsilon),
            tol=state.tol,
            wide=state.wide,
            calls=state.calls + drawn,
            error=found.error,
            converged=found.met,
            mass_left=None if solver.reach is None else found.mass_left,
            target_labels=None if target_labels is None else target_labels.distances.detach(),
        )
        if not drawn:
            (f, g), within = found.cross.potentials, found.source.potentials[0]
            after = replace(
                after,
                f=f,
                g=g,
                within=within,
                target_value=found.target.value,
                target_value_error=found.target.value_error,
                target_converged=found.target.converged,
                iterations=found.cross.n_iter,
                self_iterations=found.source.n_iter,
            )
        return found, after, largest

    def _flow_problem(self, rho: LabeledDataset, target: LabeledDataset, state: State) -> Triple:
        """The problems of a step."""
        cost = self.cost.with_state(state.fitted)
        dtype = self.solver.dtype or torch.promote_types(rho.x.dtype, target.x.dtype)
        dtype = _WIDE if state.wide else dtype
        labels, size = state.target_labels, 1 if self.group is None else self.group.size
        rows = -(-len(rho) // size)
        needed = _MATRICES * max(len(rho), len(target)) * rows * dtype.itemsize
        limit = self._limit(needed, rho.x.device)
        if self.group is not None:
            problem = ShardedTriple(cost, rho, target, dtype, limit, _COPIES, self.group)
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

        return Triple(between, (rho.weights, target.weights), dtype, limit, _COPIES)

    def _limit(self, needed: int, device: torch.device) -> int | None:
        """Bytes for costs in blocks; None where matrices of so many bytes fit."""
        in_blocks = self.solver.stochastic  # it never looks at whole matrices
        if not in_blocks and self.memory_limit is None and needed < _LARGE:
            return None
        limit = (
            as_bytes(self.memory_limit, device)
            if self.group is None
            else agreed_limit(self.memory_limit, device, self.group)
        )
        return limit if in_blocks or needed > limit else None

    def prepared(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[Triple, Solver, Pairs]:
        """The problems under a fitted cost, not solved yet, the solver prepared for them, and the
        ground costs; in float64 where the dtype of the datasets has not digits enough for a plan.
        """
        dtype = self.solver.dtype or torch.promote_types(source.x.dtype, target.x.dtype)
        triple = self._distance_problem(self.cost, source, target, dtype)
        solver = triple.prepared(self.solver)
        pairs = triple.pair("cross"), triple.pair("source"), triple.pair("target")
        if not triple.is_precise(solver, triple.largest()):
            triple = self._distance_problem(*self.cost.widened(source, target), _WIDE)
            solver = triple.prepared(self.solver)
        return triple, solver, pairs

    def refined(self, source: LabeledDataset, target: LabeledDataset) -> Divergence:
        """As ``Triple.solve``, to the last digits of float64, costs included, as far as the solver goes."""
        wide = self._distance_problem(*self.cost.widened(source, target), _WIDE)
        return wide.solve(wide.prepared(self.solver, refined=True))

    def _distance_problem(
        self, cost: GroundCost, source: LabeledDataset, target: LabeledDataset, dtype: torch.dtype
    ) -> Triple:
        """The problems of a distance, whose costs stay."""
        n, m = len(source), len(target)
        needed = (n * m + n * n + m * m + 3 * max(n, m) ** 2) * dtype.itemsize
        limit = self._limit(needed, source.x.device)
        pairs = cost.between_all(source, target, limit)
        between = dict(zip(SIDES, pairs, strict=True)).__getitem__
        return Triple(between, (source.weights, target.weights), dtype, limit)


def check_dataset(name: str, data: LabeledDataset) -> LabeledDataset:
    """A labeled dataset; an error for anything else."""
    if not isinstance(data, LabeledDataset):
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind(f"{name} must be a LabeledDataset", data, LabeledDataset, remedy)
    return data

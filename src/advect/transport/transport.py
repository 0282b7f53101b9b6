"""The debiased transport problem between two labeled datasets, for every use: a distance, a step of
a flow, and a flow on several ranks.

    S(ρ, β) = OT_c(ρ, β) − ½ OT_c(ρ, ρ) − ½ OT_c(β, β)

``Triple`` solves the three problems one at a time. ``Transport`` decides whether the costs fit into
memory, in which dtype they are computed, which epsilon and tolerance the solver has, where it starts, and
which problems are solved once. The gradient is that of the envelope theorem (``advect.ot.solver``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from advect._util import InputError, MemoryLimit, as_bytes, check_kind
from advect.cost import GroundCost, PairCost
from advect.cost.label_costs import KnownDistances
from advect.data.dataset import LabeledDataset
from advect.ot import SIDES, Cost, DenseCost, Divergence, NoPlan, Solution, Solver
from advect.ot.dual import Scale
from advect.transport.state import State

Pairs = tuple[PairCost, PairCost, PairCost]

_WIDE = torch.float64
_LARGE = 2**26  # bytes below which the free memory is not checked
_MATRICES = 4  # of n × max(n, m) numbers in a step: cost, kernel (and a wider one)
COPIES = 3  # of the features in a step: laws keep a factor of their size, and so has the gradient
# share of the energy above which a rounding error switches to float64 (the bound is loose)
_LOST = 0.1
# Rounding of a value: units in the last place of the largest value, at most a share of the value.
_ROUNDING_UNITS, _ROUNDING_SHARE = 16, 1e-3
_SMALL, _OVERHEAD = 4_000_000, 16  # n m (d + overhead) up to which a second thread saves no time
_LOOSE = 0.1  # largest error that the tolerance may cause, as a share of the value


@dataclass(eq=False)
class Triple:
    """The problems between source and target, within the source, and within the target.

    Args:
        between: creates the ground cost of a side when it is needed.
        weights: of source and target.
        dtype: of the costs.
        limit: bytes for costs in blocks; None for matrices.
        copies: number of copies of the features that a step stores in addition to the costs.
    """

    between: Callable[[str], PairCost]
    weights: tuple[Tensor, Tensor]
    dtype: torch.dtype
    limit: int | None
    copies: int = 0
    pairs: dict[str, PairCost] = field(default_factory=dict)
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
        pair = self.pairs.get(side) or self.pair(side)
        if self.limit is None:
            return DenseCost(pair.matrix(self.dtype))
        samples = len(pair.source) + len(pair.target)
        extra = self.copies * samples * pair.source.dim * self.dtype.itemsize
        return pair.blocked(self.dtype, self.limit, extra)

    def prepared(self, solver: Solver) -> tuple[Solver, float, bool]:
        """The solver with its problem-dependent options as numbers, a bound of the costs between samples
        with mass, and whether this dtype is precise enough for the solver.
        """
        # A relative epsilon refers to the cross problem, whose cost is kept for its solve.
        self._cross = cost = self.make("cross")
        solver, largest = solver.prepare(cost, *self.weights), self.pairs["cross"].sizes.largest
        if self.limit is None:  # costs in blocks are not inspected, which would take a pass
            largest = min(largest, max(map(abs, cost.extremes())))
        if self.dtype == _WIDE or not solver.epsilon:
            return solver, largest, True
        return solver, largest, Scale(cost.shape, 0.0, largest, solver.epsilon).suffices(self.dtype)

    def rounding(self, side: str) -> float:
        """The rounding error of the entries of the cost of a side."""
        return self.pair(side).rounding(self.dtype)

    def solve(self, solver: Solver) -> Divergence:
        """All three solutions with their plans, by a prepared solver."""
        found = solver.divergence(self.make, *self.weights)
        cross, source, target = (self.pairs[side].rounding(self.dtype) for side in SIDES)
        return replace(found, cost_error=cross + (source + target) / 2)

    def step(self, solver: Solver, warm: dict[str, Tensor], target: Solution | None) -> Divergence:
        """Values, potentials and gradient only. Each plan is contracted and released together with its cost.

        The problem within the target is solved once in a flow.
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

        # The envelope theorem: the gradient of the value is that of ⟨P, C⟩ at the fixed plan P. The
        # problem within the target has no gradient.
        found = solver.divergence(self.make, *self.weights, warm=warm, target=target, keep=keep)
        # For mini-batches it is a mean over the drawn mass: a drawn sample moves by T(x) − x, and the
        # others stay.
        contracted = found.drawn * (pulls["cross"] - pulls["source"] / 2)
        error = roundings["cross"] + roundings["source"] / 2
        return replace(found, cost_error=error, contracted=contracted)

    def pull(self, side: str, solution: Solution) -> Tensor:
        """⟨P, C⟩ with a graph to the moving tensors; zero if there are none."""
        pair = self.pair(side)
        if not pair.moves():
            return torch.zeros((), dtype=torch.float64, device=pair.source.x.device)
        return pair.contract(solution.coupling).double()


@dataclass(frozen=True, eq=False)
class Transport:
    """The debiased problem under a ground cost, by a solver, within a limit of memory."""

    cost: GroundCost
    solver: Solver
    memory_limit: MemoryLimit = None

    def begin(self, rho: LabeledDataset, target: LabeledDataset) -> dict[str, Tensor]:
        """The state before the first step: what the cost has fitted to these datasets."""
        return self.cost.fitted(rho, target).state()

    def __call__(
        self, rho: LabeledDataset, target: LabeledDataset, tensors: dict[str, Tensor]
    ) -> tuple[Divergence, dict[str, Tensor]]:
        """One step: values, gradient (``Divergence.loss``) and potentials, with one matrix at a
        time, and the state for the next step (``State.to_tensors``).
        """
        # Solve and certify; then, where the certificate is not good enough, once more in float64
        # or with a smaller tolerance. The state remembers both for the steps that follow.
        state = State.from_tensors(tensors or self.begin(rho, target))
        while True:
            step = self._step(rho, target, state)
            if step is None:  # float64 from here on: the following steps need it too
                state = replace(state, wide=True, target_value=None, target_labels=None)
                continue
            divergence, after, largest = step
            # The bound of the error that the tolerance allows is loose. Where it may be a tenth of the
            # value, the problem is solved once more from the potentials just found.
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
        """A step in the dtype of the state, and the largest cost; None if this dtype is not precise enough
        for the plan or for the remaining energy.
        """
        # 1. The three problems and the solver with its epsilon as a number, fixed for the whole flow.
        triple = self._flow_problem(rho, target, state)
        solver = self.solver.continued(state.epsilon, state.tol, state.calls)
        solver, largest, is_precise = triple.prepared(solver)
        drawn = self.solver.stochastic
        if not is_precise:
            return None
        target_labels = triple.pair("target").labels if drawn else None
        # 2. The rounding error in this dtype, as far as it is known before the solve.
        rounding = 0.0
        if triple.dtype != _WIDE and not drawn:
            scale = Scale((len(rho), len(target)), 0.0, largest, float(solver.epsilon or largest))
            ends = (0.0, largest, 0.0, largest)  # potentials are not known yet
            rounding = scale.value_error(triple.dtype, 0.0, ends) + triple.rounding("cross")
        # 3. Solve from the potentials of the previous step, and contract each plan for the gradient.
        found = triple.step(solver, *state.start(len(rho), len(target)))
        if 2 * rounding > _LOST * abs(found.signed):
            return None
        # 4. The state of the next step.
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
        cost, labels, weights = self.cost.with_state(state.fitted), state.target_labels, rho.weights
        dtype = self.solver.dtype or torch.promote_types(rho.x.dtype, target.x.dtype)
        dtype = _WIDE if state.wide else dtype
        needed = _MATRICES * max(len(rho), len(target)) * len(rho) * dtype.itemsize
        limit = self._limit(needed, rho)

        pairs = {}
        if limit is None and rho.law_index is None:
            pairs = dict(zip(SIDES, cost.between_all(rho, target), strict=True))

        def between(side: str) -> PairCost:
            if side == "cross":
                return cost.between(rho, target)
            if side == "source":
                return cost.within(rho)
            own = target._replace()  # a copy, so that cached laws are freed with it
            fixed = cost if labels is None else replace(cost, label=KnownDistances(labels))
            return fixed.between(own, own)

        return Triple(between, (weights, target.weights), dtype, limit, COPIES, pairs)

    def _limit(self, needed: int, data: LabeledDataset) -> int | None:
        """Bytes for costs in blocks; None where matrices of so many bytes fit."""
        in_blocks = self.solver.stochastic  # it never needs whole matrices
        if not in_blocks and self.memory_limit is None and needed < _LARGE:
            return None
        limit = as_bytes(self.memory_limit, data.x.device)
        return limit if in_blocks or needed > limit else None

    def prepared(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[Triple, Solver, Pairs]:
        """The problems under a fitted cost, not solved yet, the solver prepared for them, and the
        ground costs; in float64 if the dtype of the datasets is not precise enough for a plan.
        """
        dtype = self.solver.dtype or torch.promote_types(source.x.dtype, target.x.dtype)
        # In the dtype of the data, unless its rounding is too coarse for this epsilon.
        triple = self._distance_problem(self.cost, source, target, dtype)
        solver, _, is_precise = triple.prepared(self.solver)
        pairs = triple.pairs["cross"], triple.pairs["source"], triple.pairs["target"]
        if not is_precise:
            triple = self._distance_problem(*self.cost.widened(source, target), _WIDE)
            solver = triple.prepared(self.solver)[0]
        return triple, solver, pairs

    def refined(self, source: LabeledDataset, target: LabeledDataset) -> Divergence:
        """As ``Triple.solve``, with costs in float64 and as precisely as the solver can."""
        wide = self._distance_problem(*self.cost.widened(source, target), _WIDE)
        return wide.solve(wide.prepared(self.solver)[0].refined(wide.make("cross"), *wide.weights))

    def _distance_problem(
        self, cost: GroundCost, source: LabeledDataset, target: LabeledDataset, dtype: torch.dtype
    ) -> Triple:
        """The problems of a distance, whose costs are kept in memory."""
        # three matrices, and up to three more in a solve
        n, m = len(source), len(target)
        needed = (n * m + n * n + m * m + 3 * max(n, m) ** 2) * dtype.itemsize
        small = needed < _LARGE and self.memory_limit is None and not self.solver.stochastic
        limit = None if small else self._limit(needed, source)
        known = dict(zip(SIDES, cost.between_all(source, target, limit), strict=True))
        weights = source.weights, target.weights
        return Triple(known.__getitem__, weights, dtype, limit, pairs=known)


@contextmanager
def threads_for(x: Tensor, y: Tensor) -> Iterator[None]:
    """One thread for a problem between few samples, where more would only wait for each other."""
    threads = torch.get_num_threads()
    if threads == 1 or len(x) * len(y) * (x[:1].numel() + _OVERHEAD) > _SMALL:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_dataset(name: str, data: LabeledDataset) -> LabeledDataset:
    """A labeled dataset; an error for anything else."""
    if not isinstance(data, LabeledDataset):
        check_kind(
            f"{name} must be a LabeledDataset",
            data,
            LabeledDataset,
            "Wrap arrays as ad.LabeledDataset(x, y).",
        )
    return data


def rounding(dtype: torch.dtype, largest: float, size: float) -> float:
    """The rounding error of a value of this size, next to values as large as ``largest``.

    Terms of a value may cancel, so rounding goes by the largest. At most a thousandth of the value
    is attributed to the dtype of the features, which a functional need not have used.
    """
    wide, narrow = (
        _ROUNDING_UNITS * torch.finfo(kind).eps * largest for kind in (torch.float64, dtype)
    )
    return max(wide, min(narrow, _ROUNDING_SHARE * size))

"""T_β(ρ) = ½ OTDD²(ρ, β) with the particles' rows on several ranks; the formula is that of
``advect.functionals.otdd``.

Each rank makes its rows of the cost to the target and of the cost within ρ, solves both problems
together with the others, and contracts its rows of the plans. What it differentiates is its share
of the energy: its rows of the feature part, its pairs of classes of the label part. The shares add
up to the energy, so the sum of their gradients is the gradient, on every rank: what follows
(dynamics, integrator, other functionals) runs everywhere on the same numbers and moves the same
dataset."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_kind
from advect._util.memory import MemoryLimit, as_bytes
from advect._util.ranks import Group
from advect.cost import GroundCost, NoLabels, PairCost, Sketch
from advect.cost.ground import check_cost
from advect.cost.rounding import cost_rounding
from advect.data.dataset import LabeledDataset
from advect.distributed.shards import cut, moving, on_leaves, with_mass
from advect.distributed.sides import Side, side_between
from advect.errors import InputError
from advect.functionals.base import Functional, State
from advect.ot import DenseCost, ShardedCost, Sinkhorn
from advect.ot.certificate import Scale
from advect.ot.solution import Potentials

_MATRICES = 4  # of this rank's rows in a step: cost and kernel, and as much to spare
# share of the energy that rounding may take before float64 takes over: it is bounded from far above
_LOST = 0.1


@dataclass(frozen=True)
class Work:
    """What one call did on this rank: its rows, the iterations of both problems, seconds of its own
    processor time.
    """

    rows: int = 0
    cross_iterations: int = 0
    self_iterations: int = 0
    seconds: float = 0.0


class ShardedOTDD(Functional):
    """The energy ½ OTDD² to a target dataset, computed by all ranks of a group; of one rank, what
    ``OTDD`` computes.

    Every rank calls it with the same dataset and gets the same number, with the whole gradient. Its
    memory (warm starts) is that of ``OTDD``: checkpoints can be resumed on another number of ranks.

    Args:
        target: the dataset to move toward, the same on every rank.
        group: the ranks; one by default.
        cost: the ground cost; full Gaussian label laws by default.
        solver: a ``Sinkhorn``; by default that of ``OTDD``.
        memory_limit: bytes, or a text like "2GiB", that a step may take on a rank beside the
            datasets; by default this rank's part of half of what is free. Where its rows of the
            matrices do not fit, they are computed in blocks at each use.

    Attributes:
        work: what the last call did on this rank.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(60, generator=generator)
        >>> target = ad.datasets.gaussians(60, shift=(5.0, 0.0), generator=generator)
        >>> with ad.distributed.group() as ranks:
        ...     energy = ad.distributed.ShardedOTDD(target, group=ranks)
        ...     result = ad.distributed.flow(source, energy, group=ranks, integrator=ad.Euler(0.2), n_steps=20)
        >>> result.status, result.values[-1] < 0.01 * result.values[0], energy.work.rows
        ('completed', True, 60)
    """

    target: LabeledDataset

    def __init__(
        self,
        target: LabeledDataset,
        *,
        group: Group | None = None,
        cost: GroundCost | None = None,
        solver: Sinkhorn | None = None,
        memory_limit: MemoryLimit = None,
    ) -> None:
        remedy = "Wrap arrays as ad.LabeledDataset(x, y)."
        check_kind("target must be a LabeledDataset", target, LabeledDataset, remedy)
        if solver is not None and not isinstance(solver, Sinkhorn):
            raise InputError(
                "a sharded flow needs a Sinkhorn solver",
                type(solver).__name__,
                "Pass ad.Sinkhorn(epsilon=…).",
            )
        cost = check_cost(cost)
        if cost is not None and isinstance(cost.feature, Sketch) and cost.feature.basis is None:
            raise InputError(
                "a sharded flow needs a fitted sketch",
                cost.feature,
                "Call sketch.fit(source, target) first.",
            )
        self.target, self.group = target, group or Group()
        self.cost, self.solver = cost or GroundCost(), solver or Sinkhorn(tol=1e-3)
        self.work = Work()
        self.memory_limit = memory_limit
        if memory_limit is not None:
            as_bytes(memory_limit)

    @property
    def name(self) -> str:
        # the same energy, however it is computed: results of one and of many processes are alike
        return "OTDD"

    @property
    def options(self) -> dict[str, Any]:
        return {"cost": self.cost, "solver": self.solver}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        """½ OTDD² as a float64 number, the same on every rank, differentiable in features and
        laws.
        """
        begun = time.thread_time()
        call = _Call(self, state)
        energy, rows, iterations = call.energy(rho)
        self.work = Work(rows, *iterations, time.thread_time() - begun)
        return {self.name: energy}, call.state()

    @cached_property
    def limit(self) -> int:
        """The least limit of all ranks; ranks of one machine share what is free there."""
        device, limit = self.target.x.device, self.memory_limit
        sharing = (
            int(os.environ.get("LOCAL_WORLD_SIZE", self.group.size))
            if limit is None and device.type == "cpu"
            else 1
        )
        return -int(self.group.largest(-as_bytes(limit, device) / sharing))


class _Call:
    """One evaluation: what the state remembers, and what will be remembered after it."""

    def __init__(self, functional: ShardedOTDD, state: State) -> None:
        self.target, self.group = functional.target, functional.group
        self.cost, self.solver, self._limit = functional.cost, functional.solver, functional.limit
        self._potentials = {name: state[name] for name in ("f", "g", "self") if name in state}
        self._wide = bool(state.get("wide", False))
        self._tol: float | None = None  # of a solver that was sharpened
        self._open = self._largest = 0.0
        self._error, self._converged = math.inf, True
        known = state.get("target_value")
        self._target_value = None if known is None else float(known)
        self._target_error = float(state.get("target_value_error", math.inf))
        self._prepared: Sinkhorn | None = None
        if state:
            self._prepared = self.solver.with_epsilon(float(state["epsilon"]))
        if self._prepared is not None and "tol" in state:
            self._tol = float(state["tol"])
            self._prepared = replace(self._prepared, tol=self._tol)

    def state(self) -> State:
        numbers = {
            "epsilon": self._prepared.epsilon if self._prepared else 0.0,
            "wide": self._wide,
            "error": self._error,
            "converged": self._converged,
        }
        if self._tol is not None:
            numbers["tol"] = self._tol
        if self._target_value is not None:
            numbers |= {
                "target_value": self._target_value,
                "target_value_error": self._target_error,
            }
        return {
            **self._potentials,
            **{name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()},
        }

    def energy(self, rho: LabeledDataset) -> tuple[Tensor, int, tuple[int, int]]:
        """The energy with its graph, this rank's rows, and the iterations of both problems."""
        self._check(rho)
        whole, through = _Leaves(rho), self._through_laws(rho)
        mine = self._share(whole.dataset)
        mine = mine.replace(x=mine.x.detach().requires_grad_(rho.x.requires_grad))
        with torch.enable_grad():
            solved = self._evaluate(rho, mine, whole, through)
            if solved is None:  # float32 has not digits enough: from here on in float64
                self._wide, self._target_value = True, None
                solved = self._evaluate(rho, mine, whole, through)
            while solved is not None and self._sharpen(solved[1]):
                solved = self._evaluate(rho, mine, whole, through)  # from the potentials just found
        assert solved is not None
        energy, value, iterations = solved
        total = rho.weights.new_tensor(value)
        for tensor, gradient in self._gradients(energy, mine, whole, through):
            pulled = (tensor * gradient).sum().double()
            total = (
                total + pulled - pulled.detach()
            )  # the value of the solver, the gradient of the cost (envelope theorem)
        return total, len(mine), iterations

    def _sharpen(self, value: float) -> bool:
        """As in ``OTDD``: a smaller tolerance where this one leaves too much of the value open; on
        all ranks alike.
        """
        left, solver = self.group.largest(self._open), self._prepared
        if solver is None or left <= 0.1 * abs(value):
            return False
        finer = solver.sharpened(min(0.1, 0.025 * abs(value) / left), self._largest)
        if finer is None:
            return False
        self._prepared, self._tol = finer, finer.tol
        return True

    def _evaluate(
        self, rho: LabeledDataset, mine: LabeledDataset, whole: _Leaves, through: bool
    ) -> tuple[Tensor, float, tuple[int, int]] | None:
        """This rank's share of the energy, its value, the iterations; None where float32 has not
        digits enough.
        """
        cross = self._side(mine, whole.dataset, self.target)
        costs = self._costs(cross.pair, rho, self.target)
        a, b = (data.weights[data.weights > 0] for data in (rho, self.target))
        solver = self._prepared = self._prepared or self.solver.prepare(costs, a, b)
        dtype, scale = costs.dtype, Scale.of(costs, solver.regularisation)
        scale.check_epsilon()
        narrow = dtype != torch.float64
        if narrow and not scale.enough(dtype):
            return None
        beyond = self._beyond(solver)
        solved = solver.solve(costs, a, b, self._warm("f", "g", rho, self.target))
        energy = cross.contract(solved.coupling, through)
        value, n_iter, met = solved.value, solved.n_iter, solved.converged
        potentials = (
            self._all(solved.potentials[0], rho),
            self._all(solved.potentials[1], self.target),
        )
        error = solved.value_error + self._rounding(cross.pair, dtype)
        self._open, self._largest = solved.value_error, scale.largest
        del cross, costs, solved  # one matrix of this rank's rows at a time
        within = self._side(mine, whole.dataset, whole.dataset)
        start = self._warm("self", "self", rho, rho)
        start = None if start is None else start[0]
        alone = solver.solve_self(self._costs(within.pair, rho, rho), a, start)
        value = value - 0.5 * alone.value - 0.5 * beyond
        if narrow and 4 * scale.value_rounding(dtype) > _LOST * abs(
            value
        ):  # twice for the solves, and for the costs
            return None
        energy = energy - 0.5 * within.contract(alone.coupling, through)
        self._converged = met and alone.converged
        self._error = (
            error
            + (alone.value_error + self._target_error + self._rounding(within.pair, dtype)) / 2
        )
        self._potentials = {
            "f": potentials[0],
            "g": potentials[1],
            "self": self._all(alone.potentials[0], rho),
        }
        return energy, value, (n_iter, alone.n_iter)

    def _check(self, rho: LabeledDataset) -> None:
        least = min(len(with_mass(data)) for data in (rho, self.target))
        if least < self.group.size:
            raise InputError(
                f"{self.group.size} ranks need at least as many samples with mass",
                least,
                "Use fewer ranks.",
            )
        laws = [] if rho.law is None else rho.law.tensors().values()
        fixed = () if self._potentials else (self.target.x, self.target.y, self.target.weights)
        self.group.require_same("the data of a flow", rho.x, rho.y, rho.weights, *laws, *fixed)

    def _share(self, data: LabeledDataset) -> LabeledDataset:
        """This rank's rows of what has mass: the rest has no part in a plan, and does not move."""
        kept = with_mass(data)
        return cut(data, kept[self.group.rows(len(kept))])

    def _costs(self, pair: PairCost, source: LabeledDataset, target: LabeledDataset) -> ShardedCost:
        """The cost of this rank's rows, as a matrix where that fits, else in blocks; on all ranks
        alike.
        """
        dtype = torch.float64 if self._wide else torch.promote_types(source.x.dtype, target.x.dtype)
        n, columns = (int((data.weights > 0).sum()) for data in (source, target))
        rows = -(-n // self.group.size)  # of the rank that has most
        room = max(0, self._limit - 3 * (rows + columns) * pair.source.dim * dtype.itemsize)
        if _MATRICES * rows * columns * dtype.itemsize > self._limit:
            own = self.group.each(lambda: pair.blocked(dtype, room))
        else:
            own = self.group.each(lambda: DenseCost(pair.matrix(dtype)))
        return ShardedCost(own, n, self.group)

    def _warm(
        self, first: str, second: str, rho: LabeledDataset, other: LabeledDataset
    ) -> Potentials | None:
        f, g = self._potentials.get(first), self._potentials.get(second)
        if f is None or g is None or len(f) != len(rho) or len(g) != len(other):
            return None
        return f[rho.weights > 0], g[other.weights > 0]

    def _all(self, potential: Tensor, data: LabeledDataset) -> Tensor:
        """Potentials of samples with mass, with zeros for the others."""
        return torch.zeros_like(data.weights).masked_scatter_(data.weights > 0, potential)

    def _beyond(self, solver: Sinkhorn) -> float:
        """The value of the target's problem with itself, solved once."""
        if self._target_value is None:
            target = (
                self.target.replace()
            )  # a copy, so that what its laws keep for later calls goes with it
            own = self._side(self._share(target), target, target)
            costs = self._costs(own.pair, target, target)
            solved = solver.solve_self(costs, target.weights[target.weights > 0])
            self._target_value = solved.value
            self._target_error = solved.value_error + self._rounding(own.pair, costs.dtype)
        return self._target_value

    def _rounding(self, pair: PairCost, dtype: torch.dtype) -> float:
        """What rounding leaves of the costs, on the rank where it is most."""
        return self.group.largest(cost_rounding(pair, dtype))

    @property
    def _has_labels(self) -> bool:
        return self.cost.label_weight > 0 and not isinstance(self.cost.label, NoLabels)

    def _through_laws(self, rho: LabeledDataset) -> bool:
        """Whether a gradient is wanted in laws of classes; the same on every rank, whatever its
        pairs are.
        """
        if not self._has_labels or rho.law_index is not None:
            return False
        return (
            bool(set(moving(rho)) - {"x"})
            if rho.law is not None
            else rho.law_features.requires_grad
        )

    def _side(self, mine: LabeledDataset, source: LabeledDataset, target: LabeledDataset) -> Side:
        cost = self.cost if self._has_labels else replace(self.cost, label=NoLabels())
        return side_between(cost, mine, source, target, self.group)

    def _gradients(
        self, energy: Tensor, mine: LabeledDataset, whole: _Leaves, through: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """What moves, and the sum over ranks of the gradients of their shares."""
        if not whole.leaves or not energy.requires_grad:
            return
        wanted = {**({"rows": mine.x} if mine.x.requires_grad else {}), **whole.leaves}
        found = torch.autograd.grad(
            energy, list(wanted.values()), allow_unused=True, materialize_grads=True
        )
        gradients = dict(zip(wanted, found, strict=True))
        kept = with_mass(whole.dataset)
        for name, tensor in whole.moving.items():
            if name != "x":
                yield tensor, self.group.sum(gradients[name])
            elif through and whole.dataset.law is None:  # laws that are estimated from all of x
                gradients["x"][kept[self.group.rows(len(kept))]] += gradients["rows"]
                yield tensor, self.group.sum(gradients["x"])
            else:  # nothing but each rank's own rows: half the traffic of a sum
                rows = self.group.gather(gradients["rows"], len(kept))
                yield (
                    tensor,
                    rows
                    if len(kept) == len(tensor)
                    else torch.zeros_like(tensor).index_copy(0, kept, rows),
                )


class _Leaves:
    """A dataset on tensors of its own, in which a rank differentiates its share of the energy."""

    def __init__(self, rho: LabeledDataset) -> None:
        self.moving = moving(rho)
        self.leaves = {name: value.detach().requires_grad_() for name, value in self.moving.items()}
        self.dataset = on_leaves(rho, self.leaves)

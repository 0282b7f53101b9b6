"""The problems of a step with the rows of every matrix on several ranks.

Features, labels and laws are on every rank; costs, kernels and plans, which are n × m, are cut by
rows. Each rank computes its rows of the costs, solves together with the others
(``advect.ot.sharded``), and contracts its rows of the plans. The gradients of the ranks' parts are
summed (``_Shared``), so that every rank has the whole gradient. What follows (dynamics, integrator,
other functionals) runs everywhere on the same numbers and moves the same dataset.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from advect._util import as_bytes, refuse_if
from advect.cost import PairCost
from advect.data.dataset import LabeledDataset
from advect.ot import Cost, Divergence, Solution, Solver
from advect.ot.ranks import Group
from advect.ot.sharded import ShardedCost
from advect.transport.state import State
from advect.transport.transport import Transport, Triple


class ShardedTriple(Triple):
    """The three problems, of which this rank computes its rows.

    Samples without mass have no part in a plan and do not move, so they are left out.
    """

    def __init__(self, whole: Triple, group: Group) -> None:
        self.group, self.whole = group, whole.between
        self.masses = tuple(weights > 0 for weights in whole.weights)
        a, b = (weights[weights > 0] for weights in whole.weights)
        fewest = min(len(a), len(b))
        refuse_if(
            fewest < group.size,
            f"{group.size} ranks need at least as many samples with mass",
            fewest,
            "Use fewer ranks.",
        )
        super().__init__(self._rows, (a, b), whole.dtype, whole.limit, whole.copies)

    def _rows(self, side: str) -> PairCost:
        """The cost between this rank's rows and all samples with mass of the other dataset."""
        rows, columns = (mass.nonzero()[:, 0] for mass in self.masses)
        rows = columns if side == "target" else rows
        columns = rows if side == "source" else columns
        return self.whole(side).select(rows[self.group.rows(len(rows))], columns)

    def make(self, side: str) -> Cost:
        if side == "cross" and self._cross is not None:
            return super().make(side)
        rows = self.group.each(lambda: super(ShardedTriple, self).make(side))
        return ShardedCost(rows, len(self.weights[side == "target"]), self.group)

    def step(self, solver: Solver, warm: dict[str, Tensor], target: Solution | None) -> Divergence:
        """The step of one rank. It takes and returns potentials of all samples, 0 for those without mass."""
        # Solvers get samples with mass only; states hold potentials of all samples.
        rows, columns = self.masses
        at = {"f": rows, "g": columns, "self": rows}
        warm = {name: values[at[name]] for name, values in warm.items()}
        found = super().step(solver, warm, target)

        def spread(values: Tensor, mask: Tensor) -> Tensor:
            return values.new_zeros(len(mask)).masked_scatter_(mask, values)

        (f, g), within = found.cross.potentials, spread(found.source.potentials[0], rows)
        cross = replace(found.cross, potentials=(spread(f, rows), spread(g, columns)))
        return replace(
            found, cross=cross, source=replace(found.source, potentials=(within, within))
        )


@dataclass(frozen=True, eq=False)
class ShardedTransport(Transport):
    """The debiased problem of a flow on several ranks."""

    group: Group = field(default_factory=Group)

    def begin(self, rho: LabeledDataset, target: LabeledDataset) -> dict[str, Tensor]:
        fitted = super().begin(rho, target)
        return {name: self.group.of_first(value) for name, value in fitted.items()}

    def _flow_problem(
        self, rho: LabeledDataset, target: LabeledDataset, state: State
    ) -> ShardedTriple:
        # Every rank must compute the same step, so the data must agree to the bit.
        for data in (rho, target) if state.f is None else (rho,):
            soft = [] if data.probabilities is None else [data.probabilities]
            tensors = [*_moving_tensors(data).values(), data.y, data.weights, *soft]
            self.group.require_same("the data of a flow", *tensors)
        shared = _shared(rho, self.group)
        return ShardedTriple(super()._flow_problem(shared, target, state), self.group)

    def _limit(self, needed: int, data: LabeledDataset) -> int | None:
        """The least limit of all ranks, each of which has its rows. Ranks of one machine share its free
        memory.
        """
        alone = self.memory_limit is not None or data.x.device.type != "cpu"
        sharing = 1 if alone else int(os.environ.get("LOCAL_WORLD_SIZE", self.group.size))
        own = as_bytes(self.memory_limit, data.x.device) / sharing
        needed, limit = -(-needed // self.group.size), -int(self.group.largest(-own))
        return limit if needed > limit else None


class _Shared(torch.autograd.Function):
    """The same tensors, with the sum of the ranks' gradients as gradient.

    All tensors go through one call, so that every rank sends the same messages in the same order.
    """

    @staticmethod
    def forward(ctx: Any, group: Group, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(ctx.group.sum(gradient) for gradient in gradients)


def _moving_tensors(data: LabeledDataset) -> dict[str, Tensor]:
    """The tensors that can move: features, targets, and given laws."""
    laws = {} if data.law is None else data.law.tensors()
    targets = {} if data.targets is None else {"targets": data.targets}
    return {"x": data.x, **targets} | {f"law.{name}": tensor for name, tensor in laws.items()}


def _shared(data: LabeledDataset, group: Group) -> LabeledDataset:
    """The dataset, with gradients summed over ranks."""
    tensors, law = _moving_tensors(data), data.law
    names = [name for name, tensor in tensors.items() if tensor.requires_grad]
    if not names:
        return data
    shared: Any = _Shared.apply(group, *(tensors[name] for name in names))
    tensors |= dict(zip(names, shared, strict=True))
    if law is not None:
        law = law.with_tensors({name: tensors[f"law.{name}"] for name in law.tensors()})
    return data._replace(x=tensors["x"], law=law, targets=tensors.get("targets"))

"""The problems of a step with the rows of every matrix on several ranks.

Features, labels and laws are on every rank; costs, kernels and plans, which are n × m, are cut by
rows. Each rank makes its rows of the costs, solves together with the others
(``advect.ot.ShardedCost``), and contracts its rows of the plans. What it differentiates is its share
of the energy: its rows of the features, its pairs of classes of the label distances. Two functions
make the gradient whole, on every rank: ``_Shared``, through which all that moves is seen, and
``_Total``, the sum of the ranks' label distances. So what follows (dynamics, integrator, other
functionals) runs everywhere on the same numbers and moves the same dataset.

Messages within a gradient must come in the same order on every rank: a graph of the same shape is
made on each, whatever its pairs of classes are."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect._util.memory import as_bytes
from advect.cost import GroundCost, PairCost
from advect.cost.label_costs import KnownDistances, NoLabels
from advect.cost.labels import LabelCost, n_laws
from advect.data.dataset import LabeledDataset
from advect.data.labels import law_features
from advect.errors import InputError
from advect.ot.cost import Cost
from advect.ot.ranks import Group
from advect.ot.sharded import ShardedCost
from advect.ot.solver import Divergence, Solution, Solver
from advect.transport.state import State
from advect.transport.transport import COPIES, Transport, Triple


class ShardedTriple(Triple):
    """The three problems, of which this rank makes its rows.

    Samples without mass have no part in a plan, and do not move: rows are of those that have."""

    def __init__(
        self,
        cost: GroundCost,
        rho: LabeledDataset,
        target: LabeledDataset,
        dtype: torch.dtype,
        limit: int | None,
        copies: int,
        group: Group,
    ) -> None:
        self.cost, self.group, self.masses = cost, group, (rho.weights > 0, target.weights > 0)
        self.rho, self.target = _shared(rho, group), target
        self.link = sum((_nothing(tensor) for tensor in _moving(self.rho)), torch.zeros(()))
        weights = (rho.weights[self.masses[0]], target.weights[self.masses[1]])
        super().__init__(self._rows, weights, dtype, limit, copies)

    def check(self, *, first: bool) -> None:
        """An error on every rank if the data differ between ranks, or are too few for them."""
        least, size = min(map(len, self.weights)), self.group.size
        if least < size:
            raise InputError(
                f"{size} ranks need at least as many samples with mass", least, "Use fewer ranks."
            )
        seen = [self.rho, self.target] if first else [self.rho]
        tensors = [part for data in seen for part in _tensors(data).values()]
        tensors += [part for data in seen for part in (data.y, data.weights)]
        tensors += [data.probabilities for data in seen if data.probabilities is not None]
        self.group.require_same("the data of a flow", *tensors)

    def _rows(self, side: str) -> PairCost:
        """The cost between this rank's rows and all samples of the other dataset.

        Both arguments of the problem within ρ move. Plan and cost are symmetric: that is twice the
        gradient in the first (``pull``), and nothing in the second."""
        target = self.target._replace() if side == "target" else self.target
        source = target if side == "target" else self.rho
        target = source if side == "source" else target
        cost = self.cost
        if not cost.feature_cost.by_rows:  # points that depend on all samples are made before a cut
            (source, target), cost = as_points(cost, source, target), GroundCost(label=NoLabels())
        kept = (source.weights > 0).nonzero()[:, 0]
        mine = _cut(source, kept[self.group.rows(len(kept))])
        other = _cut(_fixed(target), (target.weights > 0).nonzero()[:, 0])
        if cost.has_labels and source.law_index is None:  # laws of particles are cut like rows
            cost = replace(cost, label=self._known(source, target))
        return cost.between(mine, other)

    def _known(self, source: LabeledDataset, target: LabeledDataset) -> KnownDistances:
        between = self._label_distances(source, target)
        if target is source or not (source.has_soft_labels or target.has_soft_labels):
            return KnownDistances(between)
        own = tuple(self._label_distances(side, side, 1.0) for side in (source, target))
        return KnownDistances(between, (own[0], own[1]))

    def _label_distances(
        self, source: LabeledDataset, target: LabeledDataset, share: float | None = None
    ) -> Tensor:
        """W₂² between all classes, with a graph to the pairs of this rank."""
        places = _embedded(self.cost, source)
        others = places if target is source else _embedded(self.cost, target)
        own = own_distances(self.cost.label_cost, places, others, self.group)
        law = source.law
        moves = law_features(source).requires_grad if law is None else law.requires_grad
        own = own + self.link if moves else own.detach()
        if share is None:
            share = 0.5 if target is source else 1.0  # contracted twice
        whole: Any = _Total.apply(own, self.group, share)
        check_finite("the label distances", whole, "Check the label laws.")
        return whole

    def make(self, side: str) -> Cost:
        if side == "cross" and self._cross is not None:
            return super().make(side)
        own, n = self.group.each(lambda: super(ShardedTriple, self).make(side)), self.weights
        return ShardedCost(own, len(n[side == "target"]), self.group)

    def largest(self, solver: Solver) -> tuple[float, bool]:
        largest, is_precise = super().largest(solver)
        return self.group.largest(largest), self.group.largest(float(not is_precise)) == 0

    def rounding(self, side: str) -> float:
        return self.group.largest(super().rounding(side))

    def pull(self, side: str, solution: Solution) -> Tensor:
        pulled = super().pull(side, solution)
        return self.link + (2 * pulled if side == "source" else pulled)

    def step(self, solver: Solver, warm: dict[str, Tensor], target: Solution | None) -> Divergence:
        """As on one rank, from and to potentials of all samples; those without mass have 0."""
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
        plain = super()._flow_problem(rho, target, state)
        cost = self.cost.with_state(state.fitted)
        place = (cost, rho, target, plain.dtype, plain.limit, COPIES, self.group)
        problem = ShardedTriple(*place)
        problem.check(first=state.f is None)
        return problem

    def _limit(self, needed: int, data: LabeledDataset) -> int | None:
        """The least limit of all ranks, of which each has its rows; ranks of one machine share what is
        free there.
        """
        alone = self.memory_limit is not None or data.x.device.type != "cpu"
        sharing = 1 if alone else int(os.environ.get("LOCAL_WORLD_SIZE", self.group.size))
        own = as_bytes(self.memory_limit, data.x.device) / sharing
        needed, limit = -(-needed // self.group.size), -int(self.group.largest(-own))
        return limit if needed > limit else None


class _Shared(torch.autograd.Function):
    """Tensors as they are; their gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, group: Group, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(ctx.group.sum(gradient) for gradient in gradients)


class _Total(torch.autograd.Function):
    """The sum of the ranks' tensors; each rank gets ``share`` of the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, group: Group, share: float) -> Tensor:
        ctx.group, ctx.share = group, share
        return group.sum(own.detach()).view_as(own)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.share * ctx.group.sum(gradients[0]), None, None


def _tensors(data: LabeledDataset) -> dict[str, Tensor]:
    """What can move: features, targets, and laws that the dataset carries."""
    laws = {} if data.law is None else data.law.tensors()
    own = {"x": data.x} if data.targets is None else {"x": data.x, "targets": data.targets}
    return own | {f"law.{name}": tensor for name, tensor in laws.items()}


def _moving(data: LabeledDataset) -> list[Tensor]:
    return [tensor for tensor in _tensors(data).values() if tensor.requires_grad]


def _with(data: LabeledDataset, tensors: dict[str, Tensor]) -> LabeledDataset:
    law = data.law
    if law is not None:
        law = law.with_tensors({name: tensors[f"law.{name}"] for name in law.tensors()})
    return data._replace(x=tensors["x"], law=law, targets=tensors.get("targets"))


def _shared(data: LabeledDataset, group: Group) -> LabeledDataset:
    """The dataset, with gradients summed over ranks."""
    tensors = _tensors(data)
    names = [name for name, tensor in tensors.items() if tensor.requires_grad]
    if not names:
        return data
    seen: Any = _Shared.apply(group, *(tensors[name] for name in names))
    return _with(data, tensors | dict(zip(names, seen, strict=True)))


def _fixed(data: LabeledDataset) -> LabeledDataset:
    """The dataset without a graph."""
    if not _moving(data):
        return data
    return _with(data, {name: tensor.detach() for name, tensor in _tensors(data).items()})


def _nothing(tensor: Tensor) -> Tensor:
    """0, with a graph to a tensor."""
    return tensor.flatten()[:0].sum()


def _cut(data: LabeledDataset, rows: Tensor) -> LabeledDataset:
    """Some rows of a dataset, with their weights in the whole; laws of classes stay, laws of
    particles are cut as well.
    """
    changes: dict[str, Any] = {"x": data.x[rows], "y": data.y[rows], "weights": data.weights[rows]}
    if data.probabilities is not None:
        changes["probabilities"] = data.probabilities[rows]
    if data.law is not None and data.law_index is not None:
        index = data.law_index[rows]
        places = torch.arange(len(index), device=index.device)
        changes |= {"law": data.law.take(index), "law_index": places}
    if data.targets is not None:
        changes["targets"] = data.targets[rows]
    return data._replace(**changes)


def as_points(cost: GroundCost, *datasets: LabeledDataset) -> list[LabeledDataset]:
    """Datasets, or one twice, with their points under a cost in place of features."""
    made: dict[int, LabeledDataset] = {}
    for data in datasets:
        if id(data) not in made:
            points = cost.feature_cost.points(data)
            made[id(data)] = data._replace(x=points, sample_shape=tuple(points.shape[1:]))
    return [made[id(data)] for data in datasets]


def _embedded(cost: GroundCost, data: LabeledDataset) -> LabeledDataset:
    """The dataset in the space where features are compared: label laws live there too."""
    return cost.feature_cost.carry(data, cost.feature_cost.points(data))


def own_distances(
    label: LabelCost, source: LabeledDataset, target: LabeledDataset, group: Group
) -> Tensor:
    """W₂² between classes for this rank's pairs, zero for the others; (k, k'), differentiable.

    Decompositions are expensive, k × k' numbers are not."""
    shape, device = (n_laws(source), n_laws(target)), source.x.device
    own = own_pairs(shape, source is target, group, device)
    if source is target:  # both (i, j) and (j, i); a law and itself, which is no work, on the first
        own = own | own.T
        own = own | torch.eye(len(own), dtype=torch.bool, device=device) if group.rank == 0 else own
    return label.of_pairs(source, target, own)


def own_pairs(
    shape: tuple[int, int], symmetric: bool, group: Group, device: torch.device
) -> Tensor:
    """Which pairs are this rank's, (k, k') bool: in turn; of a symmetric matrix above the diagonal
    only.
    """
    wanted = torch.ones(shape, dtype=torch.bool, device=device)
    wanted = wanted.triu(diagonal=1) if symmetric else wanted
    turn = wanted.flatten().cumsum(dim=0).reshape(shape) - 1
    return wanted & (turn % group.size == group.rank)

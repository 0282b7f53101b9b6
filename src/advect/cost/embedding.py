"""Feature costs of one's own: a map to points of a Euclidean space, or a function of pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from advect._util.checks import check_finite, check_methods
from advect.cost.features import (
    FeatureCost,
    FeaturePair,
    as_points,
    checked_points,
    in_float64,
    with_gradients,
)
from advect.cost.labels import LabelTable
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot.cost import Rows
from advect.ot.plan import Index, Plan


@dataclass(frozen=True)
class Embedding(FeatureCost):
    """‖φ(x) − φ(x')‖² for a map φ from samples ``(n, *sample_shape)`` to vectors, such as the body of a
    trained network.

    Args:
        map: any callable or torch module on a batch; differentiable if gradients are wanted.

    Example:
        >>> import advect as ad
        >>> first = ad.Embedding(lambda samples: samples[:, :1])
        >>> data = ad.LabeledDataset([[1.0, 5.0], [2.0, 7.0]], ["a", "b"])
        >>> first.embed(data).tolist()
        [[1.0], [2.0]]
    """

    map: Callable[[Tensor], Any]
    one_space = False  # samples of any shapes, as long as their images are of one

    def __post_init__(self) -> None:
        if not callable(self.map):
            raise InputError(
                "an embedding must be callable",
                type(self.map).__name__,
                "Pass a function or a torch module.",
            )

    def embed(self, data: LabeledDataset) -> Tensor:
        """φ of the samples in their own shape, flattened to (n, e)."""
        return checked_points(self.map(data.samples), data)


class Embeds(Protocol):
    """What is enough for a feature cost of one's own."""

    def embed(self, data: LabeledDataset) -> Tensor: ...


@dataclass(frozen=True)
class _OwnEmbedding(FeatureCost):
    """A class with ``embed`` that is no subclass of ``FeatureCost``."""

    own: Embeds

    def embed(self, data: LabeledDataset) -> Tensor:
        return as_points(self.own.embed(data), data)


@dataclass(frozen=True)
class _OwnFunction(FeatureCost):
    """A function (x, x') ↦ a matrix (n, m) of one's own: no points, and no linear images."""

    function: Callable[[Tensor, Tensor], Any]
    has_points = False

    def embed(self, data: LabeledDataset) -> Tensor:
        return data.x

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        return data

    def between(self, source: LabeledDataset, target: LabeledDataset) -> FeaturePair:
        return FunctionPair(self.function, source.x, target.x)

    def widened(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[FeatureCost, LabeledDataset, LabeledDataset]:
        return (self, *in_float64(source, target, moved=False))


def as_feature_cost(feature: object) -> FeatureCost:
    """A feature cost, what has ``embed``, or a function of (x, x'), as a feature cost."""
    if isinstance(feature, FeatureCost):
        return feature
    method = "embed" if hasattr(feature, "embed") else "__call__"
    remedy = "Pass ad.Sketch(dim) or a function of (x, x')."
    check_methods("feature must be a feature cost", feature, (method,), remedy)
    if method == "embed":
        return _OwnEmbedding(cast(Embeds, feature))
    return _OwnFunction(cast(Callable[[Tensor, Tensor], Any], feature))


@dataclass(frozen=True, eq=False)
class FunctionPair(FeaturePair):
    """A function of one's own on features."""

    function: Callable[[Tensor, Tensor], Any]
    x: Tensor
    y: Tensor

    def within(self) -> tuple[FunctionPair, FunctionPair]:
        own = self.function
        return FunctionPair(own, self.x, self.x), FunctionPair(own, self.y, self.y)

    def entries(self, x: Tensor, y: Tensor) -> Tensor:
        """The function on some samples of either dataset, checked."""
        made = torch.as_tensor(self.function(x, y))
        if made.shape != (len(x), len(y)):
            raise InputError(
                f"a feature cost must return a matrix ({len(x)}, {len(y)})",
                f"shape {tuple(made.shape)}",
                "One entry for each pair, also for some of the rows.",
            )
        check_finite("the feature cost", made, "Check it on these samples.")
        return made

    def rows(self, dtype: torch.dtype, labels: LabelTable | None) -> FunctionRows:
        return FunctionRows(self, labels, dtype)

    def contract(self, plan: Plan, beside: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Piece by piece, each with its gradient in the features, so that no graph of the size of
        the plan stays. A plan of one piece keeps its graph: it reaches parameters of the function
        too. A function without a graph has gradient 0, in pieces as in one.
        """
        rest = None if beside is None else plan @ beside
        pieces = plan.pieces()
        rows, columns, part = first = next(pieces)
        if part.shape == plan.shape:  # parts of parts may share their memory: these do not
            second = next(pieces, None)
            if second is None:  # in the order of a batch, where the plan is of one
                return (part * self.entries(self.x[rows], self.y[columns])).sum().double(), rest
            pieces = itertools.chain([second], pieces)
        total = torch.zeros((), dtype=torch.float64, device=self.x.device)
        ends = (self.x, self.y)
        leaves = [end.detach().requires_grad_(end.requires_grad) for end in ends]
        gradients = [(end, torch.zeros_like(end)) for end in ends if end.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        for rows, columns, part in itertools.chain([first], pieces):
            with torch.enable_grad():
                value = (part * self.entries(leaves[0][rows], leaves[1][columns])).sum()
            total += value.detach()
            if wanted and value.requires_grad:
                found = torch.autograd.grad(
                    value, wanted, allow_unused=True, materialize_grads=True
                )
                for (_, gradient), pull in zip(gradients, found, strict=True):
                    gradient += pull
        return with_gradients(total, gradients), rest


@dataclass(frozen=True, eq=False)
class FunctionRows(Rows):
    """½ d(x_i, y_j)² by a function of one's own, and the label part."""

    pair: FunctionPair
    labels: LabelTable | None
    dtype: torch.dtype

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        x, y = self.pair.x.detach(), self.pair.y.detach()
        made = self.pair.entries(x[rows], y if columns is None else y[columns])
        made = made.detach().to(self.dtype, copy=True).mul_(0.5)
        if self.labels is not None:
            made = self.labels.add(made, rows, slice(None) if columns is None else columns)
        return made if out is None else out.copy_(made)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        blocks = torch.arange(len(a), device=a.device).split(1024)
        return torch.stack([a[block] @ (self(block, None).double() @ b) for block in blocks]).sum()

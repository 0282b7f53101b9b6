"""The feature cost between the samples of two datasets: rows for solvers, and a contraction with a
plan.

Points whose squared distance is the cost need products alone,

    −x_i·y_j + (½‖x_i‖², 1, ½ w D[y_i]) · (1, ½‖y_j‖², e_{y_j})

in which the thin second one also adds what few labels cost; many labels (a law for each sample) are
looked up instead.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect.cost.table import LabelTable
from advect.data.laws.linalg import centred
from advect.errors import InputError
from advect.ot.blocks import Rows
from advect.ot.plan import Index, Plan

_ROWS = 512  # of which products are formed at a time
_WIDTH = 16  # columns of which products take a multiple: others take half as long again


class FeaturePair(ABC):
    """d(x_i, y_j)² of two datasets (or of one with itself, ``y is x``).

    Attributes:
        x, y: what it is computed from: points, or features.
    """

    x: Tensor
    y: Tensor

    @property
    def points(self) -> tuple[Tensor, Tensor] | None:
        """The samples as points whose squared distance is the cost, if it is of that kind."""
        return None

    @abstractmethod
    def within(self) -> tuple[FeaturePair, FeaturePair]:
        """The costs of both datasets with themselves."""

    @abstractmethod
    def rows(self, dtype: torch.dtype, labels: LabelTable | None) -> Rows:
        """What makes rows of ½ d², with what labels cost; without a graph."""

    @abstractmethod
    def contract(self, plan: Plan, beside: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """⟨P, d²⟩ with a graph, and P @ beside, for (m, k) numbers, in the same pass."""


@dataclass(frozen=True, eq=False)
class PointPair(FeaturePair):
    """‖x_i − y_j‖² of points with masses."""

    x: Tensor
    y: Tensor
    masses: tuple[Tensor, Tensor]

    @property
    def points(self) -> tuple[Tensor, Tensor]:
        return self.x, self.y

    def within(self) -> tuple[PointPair, PointPair]:
        a, b = self.masses
        return PointPair(self.x, self.x, (a, a)), PointPair(self.y, self.y, (b, b))

    def centred(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """The points around their common centre, without a graph."""
        dtype = dtype or torch.promote_types(self.x.dtype, self.y.dtype)
        x = self.x.detach().to(dtype)
        return centred(x, x if self.y is self.x else self.y.detach().to(dtype), self.masses)

    def rows(self, dtype: torch.dtype, labels: LabelTable | None) -> PointRows:
        return self._rows(*self.centred(dtype), labels)

    def _rows(self, x: Tensor, y: Tensor, labels: LabelTable | None) -> PointRows:
        norms = [part.square() / 2 for part in _lengths(x, y)]
        left, right = [norms[0], torch.ones_like(norms[0])], [torch.ones_like(norms[1]), norms[1]]
        if labels is not None and labels.is_thin:
            for side, factor in zip((left, right), labels.factors(x.dtype), strict=True):
                side.append(factor)
        return PointRows(x, y, torch.cat(left, dim=1), torch.cat(right, dim=1), labels)

    @torch.no_grad()
    def _products(self, plan: Plan, beside: Tensor | None) -> tuple[Tensor, list, Tensor | None]:
        """⟨P, d²⟩, its gradients 2 (diag(P1) x − P y) and 2 (diag(Pᵀ1) y − Pᵀ x) where wanted, and
        P @ beside: by P [v, ‖v‖², 1, beside] in one pass over the plan, and Pᵀ [u, 1].
        """
        u, v = self.centred()
        squares = [part.square() for part in _lengths(u, v)]
        parts = [v, squares[1], torch.ones_like(squares[1])]
        parts += [] if beside is None else [beside.to(v.dtype)]
        widths = [part.shape[1] for part in parts]
        parts.append(v.new_zeros(len(v), -sum(widths) % _WIDTH))
        joined = torch.cat(parts, dim=1)
        del parts
        v = joined[:, : widths[0]]  # the same, without a second copy
        u = v if self.y is self.x else u
        product = plan @ joined
        image, far, rows, *rest = product[:, : sum(widths)].split(widths, dim=1)
        value = (rows * squares[0]).double().sum() + far.double().sum()
        for ends in zip(u.split(_ROWS), image.split(_ROWS), strict=True):
            value -= 2 * torch.linalg.vecdot(*ends).double().sum()
        pulls = []
        if self.x.requires_grad:
            twice = 4 if self.y is self.x else 2  # the plan of a self-problem is symmetric
            pulls.append((self.x, image.mul_(-twice).addcmul_(rows, u, value=twice)))
        if self.y.requires_grad and self.y is not self.x:
            back = plan.T @ torch.cat([u, torch.ones_like(squares[0])], dim=1)
            pulls.append((self.y, back[:, :-1].mul_(-2).addcmul_(back[:, -1:], v, value=2)))
        return value, pulls, rest[0] if rest else None

    def contract(self, plan: Plan, beside: Tensor | None) -> tuple[Tensor, Tensor | None]:
        value, pulls, rest = self._products(plan, beside)
        return _with_gradients(value, pulls), rest


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
        return _with_gradients(total, gradients), rest


def _lengths(*points: Tensor) -> list[Tensor]:
    return [torch.linalg.vector_norm(part, dim=1, keepdim=True) for part in points]


def _with_gradients(value: Tensor, pulls: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The number, with a graph that gives each tensor its gradient."""
    for point, pull in pulls:
        moving = (point * pull.to(point.dtype)).sum()
        value = value + moving - moving.detach()
    return value


@dataclass(frozen=True, eq=False)
class PointRows(Rows):
    """−x_i·y_j + left_i·right_j, never below what labels may cost: the thin factors hold norms and few labels."""

    x: Tensor
    y: Tensor
    left: Tensor
    right: Tensor
    labels: LabelTable | None

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        y = self.y if columns is None else self.y[columns]
        return self.onto(torch.mm(self.x[rows], y.T, out=out), rows, columns)

    def onto(self, out: Tensor, rows: Index, columns: Tensor | None) -> Tensor:
        """The same, in place of the products x_i·y_j."""
        right = self.right if columns is None else self.right[columns]
        out = torch.addmm(out, self.left[rows], right.T, beta=-1, out=out)
        if self.labels is not None and not self.labels.is_thin:
            out = self.labels.add(out, rows, slice(None) if columns is None else columns)
        return out.clamp_min_(0 if self.labels is None else self.labels.floor)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j C_ij from the means of the factors."""
        mean = _mean(self.left, a) @ _mean(self.right, b) - _mean(self.x, a) @ _mean(self.y, b)
        return mean if self.labels is None or self.labels.is_thin else mean + self.labels.mean(a, b)


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


def _mean(points: Tensor, weights: Tensor) -> Tensor:
    """Σ w_i p_i in float64, a few rows at a time."""
    parts = zip(points.split(1024), weights.split(1024), strict=True)
    return torch.stack([weight @ part.double() for part, weight in parts]).sum(dim=0)

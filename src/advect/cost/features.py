"""Feature costs: d(x, x')², without the ½ and without labels.

A feature cost maps samples to points of a Euclidean space (``embed``), where the cost is the squared
distance. Points need products alone, for the rows of a cost matrix

    −x_i·y_j + (½‖x_i‖², 1, ½ w D[y_i]) · (1, ½‖y_j‖², e_{y_j})

and for the contraction with a plan. With few labels, the thin second product also adds their cost. Many
labels (a law for each sample) are looked up instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor

from advect._util import InputError, check_finite, check_methods, refuse_if
from advect.cost.labels import LabelTable
from advect.data.dataset import LabeledDataset
from advect.data.laws import mass_centre
from advect.ot import Index, Plan, Rows

_ROWS = 512  # entries of a block of products
_WIDTH = 16  # columns of which products take a multiple: others take half as long again


class FeatureCost(ABC):
    """d(x, x')² = ‖φ(x) − φ(x')‖² by the points φ(x) of samples.

    A user-defined cost defines ``embed``; the other methods have defaults. Define ``fitted`` for a map that
    is fitted to the datasets once (and ``state`` and ``with_state``, so that checkpoints store it), and
    ``carry`` for a map under which the images of Gaussian laws are known. A class with ``embed`` that is
    not a subclass works too.

    Example:
        >>> import torch, advect as ad
        >>> class Weighted(ad.FeatureCost):
        ...     def embed(self, data):
        ...         return data.x * torch.tensor([1.0, 10.0])
        >>> a = ad.LabeledDataset([[0.0, 0.0]], ["a"])
        >>> b = ad.LabeledDataset([[3.0, 1.0]], ["a"])
        >>> cost = ad.GroundCost(feature=Weighted(), label=ad.NoLabels())
        >>> cost.between(a, b).matrix().tolist()              # ½ (9 + 100)
        [[54.5]]
    """

    # whether both datasets must have the same columns
    one_space: ClassVar[bool] = True
    # whether columns count by the squares of their differences
    by_columns: ClassVar[bool] = False
    # whether points are linear in features, so that a step of a flow changes distances as expected
    linear: ClassVar[bool] = False

    @abstractmethod
    def embed(self, data: LabeledDataset) -> Tensor:
        """The samples as points, (n, e); differentiable if gradients are wanted."""

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        """The dataset in the space of its embedded samples ``points``, where label laws are
        compared: by default laws are estimated from these.

        Raises:
            InputError: the dataset carries laws, and the image of a Gaussian under a nonlinear map is not a
                Gaussian.
        """
        if data.law is not None:
            raise InputError(
                f"an {type(self).__name__} maps samples, not Gaussian laws: their images under "
                "a nonlinear map are not Gaussian",
                f"a dataset with {len(data.law)} laws",
                "Let laws be estimated from embedded samples: FeatureDriven in a flow, "
                ".replace(law=None, law_index=None) for "
                "a distance. Or embed the samples first.",
            )
        return data._replace(x=points, sample_shape=tuple(points.shape[1:]))

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> FeatureCost:
        """The cost with its data-dependent parts fitted to these datasets; a flow does this once."""
        return self

    def state(self) -> dict[str, Tensor]:
        """The fitted values, for a checkpoint; their names begin with the name of the cost."""
        return {}

    def with_state(self, state: dict[str, Tensor]) -> FeatureCost:
        """The fitted cost from a state, which may have further entries."""
        return self

    def between(self, source: LabeledDataset, target: LabeledDataset) -> PointPair:
        """The cost between the samples of two datasets, or of one with itself."""
        x = self.points(source)
        y = x if source is target else self.points(target)
        refuse_if(
            x.shape[1] != y.shape[1],
            "an embedding must map both datasets to one space",
            f"dimensions {x.shape[1]} and {y.shape[1]}",
            "Check the shape that it returns.",
        )
        return PointPair(x, y, (source.weights, target.weights))

    def points(self, data: LabeledDataset) -> Tensor:
        """The result of ``embed``, checked; features have been checked before."""
        points = self.embed(data)
        if points is data.x:
            return points
        points = as_points(points, data)
        check_finite("the embedded features", points, "Check the embedding on these samples.")
        return points

    def widened(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[FeatureCost, LabeledDataset, LabeledDataset]:
        """The cost and the datasets for distances in float64. Points are converted after the map, which may
        not support other dtypes.
        """
        first = self.carry(source, self.points(source))
        second = first if target is source else self.carry(target, self.points(target))
        return (SquaredEuclidean(), *in_float64(first, second))


@dataclass(frozen=True)
class SquaredEuclidean(FeatureCost):
    """‖x − x'‖² on the flattened features.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0, 0.0], [3.0, 4.0]], ["a", "b"])
        >>> SquaredEuclidean().embed(data).shape
        torch.Size([2, 2])
    """

    by_columns = linear = True

    def embed(self, data: LabeledDataset) -> Tensor:
        """The features themselves, (n, d)."""
        return data.x

    points = embed

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        return data

    def widened(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[FeatureCost, LabeledDataset, LabeledDataset]:
        return (self, *in_float64(source, target))


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
    one_space = False  # samples may have any shapes if their images have one shape

    def __post_init__(self) -> None:
        check_methods(
            "an embedding must be callable",
            self.map,
            ("__call__",),
            "Pass a function or a torch module.",
        )

    def embed(self, data: LabeledDataset) -> Tensor:
        """φ of the samples in their own shape, flattened to (n, e)."""
        return as_points(self.map(data.samples), data)


class Embeds(Protocol):
    """The method that a user-defined feature cost needs."""

    def embed(self, data: LabeledDataset) -> Tensor: ...


@dataclass(frozen=True)
class _OwnEmbedding(FeatureCost):
    """A class with ``embed`` that is no subclass of ``FeatureCost``."""

    own: Embeds

    def embed(self, data: LabeledDataset) -> Tensor:
        return as_points(self.own.embed(data), data)


def as_feature_cost(feature: object) -> FeatureCost:
    """A feature cost, or an object with ``embed`` as a feature cost."""
    if isinstance(feature, FeatureCost):
        return feature
    check_methods(
        "feature must be a feature cost",
        feature,
        ("embed",),
        "Pass ad.Embedding(map), or an object with embed(data).",
    )
    return _OwnEmbedding(cast(Embeds, feature))


@dataclass(frozen=True, eq=False)
class PointPair:
    """‖x_i − y_j‖² of points with masses, computed about their common centre."""

    x: Tensor
    y: Tensor
    masses: tuple[Tensor, Tensor]

    @cached_property
    def centre(self) -> Tensor:
        """The common centre of the points: the mean of both means."""
        centre = mass_centre(self.x, self.masses[0])
        return centre if self.y is self.x else (centre + mass_centre(self.y, self.masses[1])) / 2

    def _about_centre(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The points about their common centre, without a graph: products then lose fewer digits."""
        x = self.x.detach().to(dtype) - self.centre
        return x, x if self.y is self.x else self.y.detach().to(dtype) - self.centre

    def rows(self, dtype: torch.dtype, labels: LabelTable | None) -> PointRows:
        """Computes rows of ½ d² plus the cost of labels; without a graph."""
        # ½‖x − y‖² = −x·y + (½‖x‖², 1) · (1, ½‖y‖²): one large product and one thin one, to which few
        # labels add their columns
        x, y = self._about_centre(dtype)
        norms = [
            torch.linalg.vector_norm(part, dim=1, keepdim=True).square() / 2 for part in (x, y)
        ]
        left, right = [norms[0], torch.ones_like(norms[0])], [torch.ones_like(norms[1]), norms[1]]
        if labels is not None and labels.is_thin:
            factors = labels.factors(dtype)
            left.append(factors[0])
            right.append(factors[1])
        return PointRows(x, y, torch.cat(left, dim=1), torch.cat(right, dim=1), labels)

    def contract(self, plan: Plan, extra: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """⟨P, d²⟩, its gradients 2 (diag(P1) x − P y) and 2 (diag(Pᵀ1) y − Pᵀ x) where wanted, and
        P @ extra: by P [v, ‖v‖², 1, extra] in one pass over the plan, and Pᵀ [u, 1].
        """
        # ⟨P, d²⟩ = Σ_i (P1)_i ‖u_i‖² + Σ_j (Pᵀ1)_j ‖v_j‖² − 2 Σ_i u_i · (P v)_i
        with torch.no_grad():
            u, v = self._about_centre(torch.promote_types(self.x.dtype, self.y.dtype))
            squares = [torch.linalg.vector_norm(p, dim=1, keepdim=True).square() for p in (u, v)]
            parts = [v, squares[1], torch.ones_like(squares[1])]
            parts += [] if extra is None else [extra.to(v.dtype)]
            widths = [part.shape[1] for part in parts]
            parts.append(v.new_zeros(len(v), -sum(widths) % _WIDTH))
            joined = torch.cat(parts, dim=1)
            del parts
            v = joined[:, : widths[0]]  # the same, without a second copy
            u = v if self.y is self.x else u
            image, far, rows, *rest = plan.times(joined)[:, : sum(widths)].split(widths, dim=1)
            value = (rows * squares[0]).double().sum() + far.double().sum()
            for ends in zip(u.split(_ROWS), image.split(_ROWS), strict=True):
                value -= 2 * torch.linalg.vecdot(*ends).double().sum()
            # The gradient in x_i is 2 ((P1)_i x_i − (P y)_i): mass times the way to the image.
            pulls = []
            if self.x.requires_grad:
                twice = 4 if self.y is self.x else 2  # the plan of a self-problem is symmetric
                pulls.append((self.x, image.mul_(-twice).addcmul_(rows, u, value=twice)))
            if self.y.requires_grad and self.y is not self.x:
                back = plan.transposed(torch.cat([u, torch.ones_like(squares[0])], dim=1))
                pulls.append((self.y, back[:, :-1].mul_(-2).addcmul_(back[:, -1:], v, value=2)))
        return with_gradients(value, pulls), rest[0] if rest else None


def largest_length(points: Tensor, mass: Tensor, centre: Tensor | float = 0.0) -> Tensor:
    """The largest distance from the centre of points that have mass, some rows at a time."""
    if len(points) <= _ROWS:
        return (torch.linalg.vector_norm(points - centre, dim=1) * (mass > 0)).max().double()
    parts = zip(points.split(_ROWS), mass.split(_ROWS), strict=True)
    lengths = [(torch.linalg.vector_norm(p - centre, dim=1) * (m > 0)).max() for p, m in parts]
    return torch.stack(lengths).max().double()


def with_gradients(value: Tensor, pulls: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The number, with a graph that gives each tensor its gradient."""
    for point, pull in pulls:
        moving = (point * pull.to(point.dtype)).sum()
        value = value + moving - moving.detach()
    return value


@dataclass(frozen=True, eq=False)
class PointRows(Rows):
    """−x_i·y_j + left_i·right_j, bounded below by the least label cost. The thin factors hold the norms
    and, if there are few, the labels.
    """

    x: Tensor
    y: Tensor
    left: Tensor
    right: Tensor
    labels: LabelTable | None

    def __call__(self, rows: Index, out: Tensor | None, columns: Tensor | None = None) -> Tensor:
        y, right = self.y, self.right
        if columns is not None:
            y, right = y[columns], right[columns]
        out = torch.mm(self.x[rows], y.T, out=out)
        out = torch.addmm(out, self.left[rows], right.T, beta=-1, out=out)
        if self.labels is not None and not self.labels.is_thin:
            out = self.labels.add(out, rows, slice(None) if columns is None else columns)
        return out.clamp_min_(0 if self.labels is None else self.labels.floor)

    def mean(self, a: Tensor, b: Tensor) -> Tensor:
        """Σ a_i b_j C_ij from the means of the factors."""
        mean = _mean(self.left, a) @ _mean(self.right, b) - _mean(self.x, a) @ _mean(self.y, b)
        return mean if self.labels is None or self.labels.is_thin else mean + self.labels.mean(a, b)


def _mean(points: Tensor, weights: Tensor) -> Tensor:
    """Σ w_i p_i in float64, a few rows at a time."""
    parts = zip(points.split(1024), weights.split(1024), strict=True)
    return torch.stack([weight @ part.double() for part, weight in parts]).sum(dim=0)


def in_float64(
    source: LabeledDataset, target: LabeledDataset
) -> tuple[LabeledDataset, LabeledDataset]:
    """Both in float64 without a graph. Where they carry no laws, they are moved together so that one
    sample is at the origin: rounding is then that of differences.
    """
    first = source._replace(x=source.x.detach()).to(dtype=torch.float64)
    second = first
    if target is not source:
        second = target._replace(x=target.x.detach()).to(dtype=torch.float64)
    if source.law is not None or target.law is not None:
        return first, second
    middle = first.x[int(source.weights.argmax())]
    about = first._replace(x=first.x - middle)
    return about, about if target is source else second._replace(x=second.x - middle)


def as_points(points: Any, data: LabeledDataset) -> Tensor:
    """The rows of an embedding as points (n, e)."""
    points = torch.as_tensor(points)
    refuse_if(
        points.ndim == 0 or len(points) != len(data),
        f"an embedding must return a row for each of the {len(data)} samples",
        f"shape {tuple(points.shape)}",
        "Keep the batch axis.",
    )
    return points.reshape(len(data), -1).to(data.x)

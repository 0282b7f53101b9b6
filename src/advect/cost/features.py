"""What it costs to move features: d(x, x')², without the ½ and without labels.

A feature cost maps samples to points of a Euclidean space (``embed``), where the cost is the
squared distance: then a plan is contracted with it by matrix products alone. A cost that is no such
distance is a plain function on pairs, which is asked for a matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor

from advect._util.checks import check_finite, check_methods
from advect.cost.feature_pair import FeaturePair, FunctionPair, PointPair
from advect.data.dataset import LabeledDataset
from advect.errors import InputError


class FeatureCost(ABC):
    """d(x, x')² = ‖φ(x) − φ(x')‖² by the points φ(x) of samples.

    A cost of one's own writes ``embed``. What else a cost may know has defaults: write ``fitted``
    for a map that is fitted to the datasets once (and ``state``, ``with_state`` so that a
    checkpoint keeps it), and ``carry`` for one that knows the images of Gaussian laws. A class that
    has ``embed`` and is no subclass works too, with these defaults.

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
    # whether the point of a sample is its own, whatever other samples there are
    by_rows: ClassVar[bool] = True
    # whether samples are points at all, and not arguments of a function of pairs
    has_points: ClassVar[bool] = True
    # whether points are linear in features, so that features in float64 make points in float64
    linear: ClassVar[bool] = False
    # roundings of the largest feature that the points have, however near to each other they are
    roundings: ClassVar[float] = 0.0

    @abstractmethod
    def embed(self, data: LabeledDataset) -> Tensor:
        """The samples as points, (n, e); differentiable if gradients are wanted."""

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        """The dataset in the space of its embedded samples ``points``, where label laws are
        compared: by default laws are estimated from these.

        Raises:
            InputError: laws that the dataset carries: the image of a Gaussian under a map that is
                not linear is none.
        """
        if data.law is not None:
            raise InputError(
                f"an {type(self).__name__} carries samples, not Gaussian laws, whose images under "
                "a map that is not linear are no Gaussians",
                f"a dataset that carries {len(data.law)} laws",
                "Let laws be estimated from embedded samples: FeatureDriven in a flow, "
                ".replace(law=None, law_index=None) for "
                "a distance. Or embed the samples first, or use Sketch, which is linear.",
            )
        return data._replace(x=points, sample_shape=tuple(points.shape[1:]))

    def fitted(self, source: LabeledDataset, target: LabeledDataset) -> FeatureCost:
        """The cost with what depends on the datasets made fixed; a flow does this once."""
        return self

    def state(self) -> dict[str, Tensor]:
        """What ``fitted`` found, for a checkpoint; names begin with that of the cost."""
        return {}

    def with_state(self, state: dict[str, Tensor]) -> FeatureCost:
        """The fitted cost again, from a state that may hold more."""
        return self

    def between(self, source: LabeledDataset, target: LabeledDataset) -> FeaturePair:
        """The cost between the samples of two datasets, or of one with itself."""
        x = self.points(source)
        y = x if source is target else self.points(target)
        if x.shape[1] != y.shape[1]:
            raise InputError(
                "an embedding must map both datasets to one space",
                f"dimensions {x.shape[1]} and {y.shape[1]}",
                "Check it.",
            )
        return PointPair(x, y, (source.weights, target.weights))

    def points(self, data: LabeledDataset) -> Tensor:
        """What ``embed`` returns, checked; features themselves are known to be features."""
        points = self.embed(data)
        return points if points is data.x else _checked_points(points, data)

    def widened(
        self, source: LabeledDataset, target: LabeledDataset
    ) -> tuple[FeatureCost, LabeledDataset, LabeledDataset]:
        """The cost and the datasets for distances in float64. Points of a map that is not linear
        count as given: it may know no other dtype.
        """
        if self.linear:
            return (self, *in_float64(source, target))
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

    def carry(self, data: LabeledDataset, points: Tensor) -> LabeledDataset:
        return data


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
        return _checked_points(self.map(data.samples), data)


class Embeds(Protocol):
    """What is enough for a feature cost of one's own."""

    def embed(self, data: LabeledDataset) -> Tensor: ...


@dataclass(frozen=True)
class _OwnEmbedding(FeatureCost):
    """A class with ``embed`` that is no subclass of ``FeatureCost``."""

    own: Embeds

    def embed(self, data: LabeledDataset) -> Tensor:
        return _as_points(self.own.embed(data), data)


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


def in_float64(
    source: LabeledDataset, target: LabeledDataset, *, moved: bool = True
) -> tuple[LabeledDataset, LabeledDataset]:
    """Both in float64 without a graph. Where they may be moved and carry no laws, to where they are
    by one sample: rounding is then that of differences.
    """
    first = source._replace(x=source.x.detach()).to(dtype=torch.float64)
    second = first
    if target is not source:
        second = target._replace(x=target.x.detach()).to(dtype=torch.float64)
    if not moved or source.law is not None or target.law is not None:
        return first, second
    middle = first.x[int(source.weights.argmax())]
    about = first._replace(x=first.x - middle)
    return about, about if target is source else second._replace(x=second.x - middle)


def _as_points(points: Any, data: LabeledDataset) -> Tensor:
    points = torch.as_tensor(points)
    if points.ndim == 0 or len(points) != len(data):
        raise InputError(
            f"an embedding must return a row for each of the {len(data)} samples",
            f"shape {tuple(points.shape)}",
            "Keep the batch axis.",
        )
    return points.reshape(len(data), -1).to(data.x)


def _checked_points(points: Any, data: LabeledDataset) -> Tensor:
    points = _as_points(points, data)
    check_finite("the embedded features", points, "Check the embedding on these samples.")
    return points

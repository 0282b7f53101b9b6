"""What it costs to move features: d(x, x')², without the ½ and without labels.

A feature cost maps samples to points of a Euclidean space (``embed``), where the cost is the squared distance: then a
plan is contracted with it by matrix products alone. A cost that is no such distance is a plain function on pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._checks import check_finite
from advect.data import LabeledDataset
from advect.errors import InputError


@dataclass(frozen=True)
class SquaredEuclidean:
    """‖x − x'‖² on the flattened features.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0, 0.0], [3.0, 4.0]], ["a", "b"])
        >>> ad.SquaredEuclidean().embed(data).shape
        torch.Size([2, 2])
    """

    def embed(self, data: LabeledDataset) -> Tensor:
        """The features themselves, (n, d)."""
        return data.x


@dataclass(frozen=True)
class Embedding:
    """‖φ(x) − φ(x')‖² for a map φ from samples (n, *sample_shape) to vectors, such as the body of a trained network.

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

    def __post_init__(self) -> None:
        if not callable(self.map):
            raise InputError("an embedding must be callable", type(self.map).__name__, "Pass a function or a torch module.")

    def embed(self, data: LabeledDataset) -> Tensor:
        """φ of the samples in their own shape, flattened to (n, e)."""
        points = torch.as_tensor(self.map(data.samples))
        if points.ndim == 0 or len(points) != len(data):
            raise InputError(
                f"an embedding must return a row for each of the {len(data)} samples",
                f"shape {tuple(points.shape)}",
                "Keep the batch axis.",
            )
        points = points.reshape(len(data), -1).to(data.x)
        check_finite("the embedded features", points, "Check the embedding on these samples.")
        return points


FeatureCost = SquaredEuclidean | Embedding | Callable[[Tensor, Tensor], Tensor]

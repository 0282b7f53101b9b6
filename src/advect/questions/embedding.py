"""A labeled dataset as a vector whose Euclidean distances are sliced distances.

Along a direction θ, a sample is the point (θ·x, √w θ·μ_y, √w σ_y) with w the label weight and
σ_y² = θ·S_y θ, and a second direction ψ projects it to a number. With fixed directions,

    SW²(A, B) = (3d / P) Σ_(θ, ψ) ∫₀¹ (F⁻¹_A − F⁻¹_B)²        over P pairs (θ, ψ)

A dataset is stored as the means of its quantile functions over ``n_levels`` equal parts of (0, 1).
These means are a projection, so ‖φ(A) − φ(B)‖ ≤ SW(A, B).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import (
    InputError,
    Result,
    check_count,
    check_finite,
    check_non_negative,
    refuse_if,
)
from advect.data.dataset import LabeledDataset
from advect.data.digest import digest
from advect.functionals.sliced import check_label_laws, on_lines
from advect.spaces import FeatureSpace, harmonize
from advect.spaces.images import layout
from advect.transport.transport import check_dataset

_MOST_LEVELS = 1 << 16
_BLOCK_SIZE = 2_000_000  # entries of a block of projections


@dataclass(frozen=True, eq=False, repr=False)
class DatasetEmbedding(Result):
    """A dataset as a vector; returned by ``ad.embed``."""

    title = "Dataset embedding"
    vector: np.ndarray  # float64
    n: int
    classes: int  # with samples
    key: str  # digest of the directions, levels and label weight

    def distance(self, other: DatasetEmbedding) -> float:
        """‖φ(A) − φ(B)‖, a lower bound of the sliced distance along the directions."""
        refuse_if(
            self.key != other.key,
            "embeddings must have the same directions, levels and label weight",
            "different ones",
            "Embed both with the same settings.",
        )
        return float(np.linalg.norm(self.vector - other.vector))

    def _summary(self) -> dict[str, Any]:
        return {"samples": self.n, "classes": self.classes, "numbers": len(self.vector)}


def embed(
    data: LabeledDataset,
    *,
    n_directions: int = 64,
    n_levels: int = 32,
    label_weight: float = 1.0,
    seed: int = 0,
) -> DatasetEmbedding:
    """Represent a dataset as a vector: ‖φ(A) − φ(B)‖ approximates a sliced distance.

    Use it to compare many datasets; ``DatasetIndex`` keeps such vectors on disk. For two datasets,
    ``ad.otdd`` is more accurate. Classes may differ. The cost is O(n log n) for each direction.

    Args:
        data: a dataset. Every sample needs a label unless ``label_weight`` is 0.
        n_directions: number of feature directions, each combined with three label directions.
        n_levels: number of quantile means for each projection.
        label_weight: weight of labels as in ``ad.GroundCost``; 0 uses features only.
        seed: seed of the directions.

    Returns:
        A ``DatasetEmbedding`` with 3 · n_directions · n_levels numbers, or a third without labels.

    Example:
        >>> import advect as ad
        >>> data = ad.datasets.gaussians(100)
        >>> shifted = data.replace(x=data.x + 3)
        >>> abs(ad.embed(data).distance(ad.embed(shifted)) - 6) < 1e-5
        True
    """
    check_dataset("data", data)
    return Slices.random(data.dim, n_directions, n_levels, label_weight, seed).embedding(data)


@dataclass(frozen=True, eq=False)
class Slices:
    """Directions and levels of an embedding."""

    theta: Tensor  # unit directions of the features, (d, p), orthonormal in blocks of d columns
    psi: Tensor  # orthonormal directions of the described samples, (p, 3, 3) or (p, 1, 1)
    n_levels: int
    label_weight: float

    def __post_init__(self) -> None:
        check_count("n_levels", self.n_levels)
        check_non_negative("label_weight", self.label_weight)
        (_, p), parts = self.theta.shape, 3 if self.label_weight else 1
        fits = self.psi.shape == (p, parts, parts) and self.n_levels <= _MOST_LEVELS
        fits = fits and self.theta.dtype == self.psi.dtype == torch.float64
        refuse_if(
            not fits,
            "directions and levels must fit",
            f"shapes {self.theta.shape} and {self.psi.shape}, {self.n_levels} levels",
            "Use fewer levels.",
        )
        check_finite("directions", self.theta)
        check_finite("directions", self.psi)

    @classmethod
    def random(
        cls, dim: int, n_directions: int, n_levels: int, label_weight: float, seed: int
    ) -> Slices:
        """Uniformly distributed directions."""
        check_count("n_directions", n_directions)
        generator = torch.Generator().manual_seed(check_count("seed", seed, least=0))
        widths = [min(dim, n_directions - first) for first in range(0, n_directions, dim)]
        theta = torch.cat([_orthonormal(1, dim, width, generator)[0] for width in widths], dim=1)
        parts = 3 if label_weight else 1
        psi = _orthonormal(n_directions, parts, parts, generator)
        return cls(theta, psi, n_levels, float(label_weight))

    @property
    def size(self) -> int:
        """Number of entries of an embedding."""
        return self.psi.shape[0] * self.psi.shape[1] * self.n_levels

    @cached_property
    def key(self) -> str:
        return digest(self.theta, self.psi, self.n_levels, self.label_weight)

    def embedding(self, data: LabeledDataset) -> DatasetEmbedding:
        """The embedding of a dataset in the space of the directions."""
        if self.label_weight:
            check_label_laws(data, "an embedding with labels")
        data = data.replace(x=data.x.detach()).to("cpu", torch.float64)
        psi = self.psi.flatten(0, 1).T  # (3, lines), or (1, lines)
        theta, origin = self.theta.repeat_interleave(len(psi), dim=1), torch.zeros(data.dim)
        blocks = torch.arange(psi.shape[1]).split(max(1, _BLOCK_SIZE // len(data)))
        values = (on_lines(data, origin, theta[:, k], psi[:, k], self.label_weight) for k in blocks)
        parts = [quantile_means(part, data.weights, self.n_levels).flatten() for part in values]
        vector = torch.cat(parts) * math.sqrt(data.dim / (self.theta.shape[1] * self.n_levels))
        n_classes = int(data.y[data.labeled].unique().numel())
        return DatasetEmbedding(vector.numpy(), len(data), n_classes, self.key)


def quantile_means(values: Tensor, masses: Tensor, n_levels: int) -> Tensor:
    """Means (…, n_levels) of the quantile functions of values (…, n) with masses (n,) over equal
    parts of (0, 1).
    """
    values, order = values.sort(dim=-1)
    masses = masses.expand(values.shape).gather(-1, order)
    below = masses.cumsum(dim=-1)
    below = torch.cat([torch.zeros_like(below[..., :1]), below / below[..., -1:]], dim=-1)
    masses = below.diff(dim=-1)
    centre = (masses * values).sum(dim=-1, keepdim=True)  # sums of distant values lose digits
    values = values - centre
    sums = torch.cat([torch.zeros_like(below[..., :1]), (masses * values).cumsum(dim=-1)], dim=-1)
    levels = torch.arange(1, n_levels, dtype=values.dtype) / n_levels
    levels = levels.expand(*values.shape[:-1], n_levels - 1).contiguous()
    at = torch.searchsorted(below[..., 1:].contiguous(), levels).clamp_max(values.shape[-1] - 1)
    inside = sums.gather(-1, at) + (levels - below.gather(-1, at)) * values.gather(-1, at)
    edges = torch.cat([torch.zeros_like(centre), inside, sums[..., -1:]], dim=-1)
    return n_levels * edges.diff(dim=-1) + centre


def in_space(space: FeatureSpace, data: LabeledDataset) -> LabeledDataset:
    """Map a dataset to a fitted feature space; images of another size are resized first."""
    shapes = {side: space.shape_of(side) for side in ("source", "target")}
    for side, shape in shapes.items():
        if shape == data.sample_shape:
            return space.apply(data, side=side)
    wanted = layout(shapes["source"])
    if wanted is None or layout(data.sample_shape) is None:
        raise InputError(
            f"samples must have shape {' or '.join(sorted({*map(str, shapes.values())}))}",
            data.sample_shape,
            "Reshape them, or fit a space for both with ad.FeatureSpace.fit.",
        )
    blank = LabeledDataset(torch.zeros(1, *shapes["source"], device=data.x.device))
    channels = "gray" if wanted[0] == 1 else "rgb"
    return space.apply(harmonize(data, blank, size=wanted[1:], channels=channels)[0])


def _orthonormal(n: int, dim: int, width: int, generator: torch.Generator) -> Tensor:
    """Uniformly distributed matrices with orthonormal columns, (n, dim, width)."""
    normal = torch.randn(n, dim, width, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(normal)
    return basis * triangle.diagonal(dim1=1, dim2=2).sign()[:, None, :]

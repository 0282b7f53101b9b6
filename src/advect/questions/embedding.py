"""A labeled dataset as a point of a Euclidean space, in which distances are sliced distances.

With fixed directions the sliced distance of two datasets is that of their projected quantile
functions in L²,

    SW²(A, B) = (3d / P) Σ_(θ, ψ) ∫₀¹ (F⁻¹_A − F⁻¹_B)² ,        P pairs (θ, ψ) of ``slices``

and a dataset is these functions, each as its means over ``n_levels`` equal parts of (0, 1). Means
are a projection: what they leave, the ``residual`` r of an embedding φ, is known, and

    ‖φ(A) − φ(B)‖² ≤ SW²(A, B) ≤ ‖φ(A) − φ(B)‖² + (r_A + r_B)² .

So N embeddings stand for N² / 2 distances, and none has to know the others."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from advect._util.checks import check_kind
from advect._util.html import facts_table
from advect.data.dataset import LabeledDataset
from advect.data.spaces import FeatureSpace
from advect.errors import InputError
from advect.questions.into_space import in_space
from advect.questions.slices import Slices


@dataclass(frozen=True, eq=False)
class DatasetEmbedding:
    """A dataset as a vector; made by ``embed``, ``EmbeddingSketch`` and ``DatasetIndex``.

    Attributes:
        vector: float64; equal directions are needed to compare two of them.
        residual: what the steps leave of the quantile functions, in the norm of the vector.
        grid_error: how far the vector may be from that of the exact dataset; 0 unless it was made
            in parts.
        n: samples.  classes: how many classes have some.
        key: what the directions, levels and label weight are known by.

    Example:
        >>> import advect as ad
        >>> a, b = (ad.datasets.gaussians(200, shift=(shift, 0.0)) for shift in (0.0, 3.0))
        >>> first, second = ad.embed(a), ad.embed(b)
        >>> low, high = first.bounds(second)
        >>> low <= first.distance(second) <= high
        True
    """

    vector: np.ndarray
    residual: float
    grid_error: float
    n: int
    classes: int
    key: str

    def distance(self, other: DatasetEmbedding) -> float:
        """‖φ(A) − φ(B)‖, the sliced distance but for what ``bounds`` says.

        Raises:
            InputError: the other one has other directions, levels or another label weight.
        """
        if self.key != other.key:
            raise InputError(
                "embeddings are compared where directions, levels and label weight are the same",
                "others",
                "Embed both with the same seed and settings, and in the same space.",
            )
        return float(np.linalg.norm(self.vector - other.vector))

    def bounds(self, other: DatasetEmbedding) -> tuple[float, float]:
        """Between which numbers the sliced distance along these directions is, for certain (but for
        rounding).
        """
        apart, grid = self.distance(other), self.grid_error + other.grid_error
        high = math.hypot(apart, self.residual + other.residual) + grid
        return max(0.0, apart - grid), high

    def __repr__(self) -> str:
        error = f", grid_error={self.grid_error:.2g}" if self.grid_error else ""
        return (
            f"DatasetEmbedding(n={self.n}, classes={self.classes}, numbers={len(self.vector)}, "
            f"residual={self.residual:.2g}{error})"
        )

    def _repr_html_(self) -> str:
        facts = {"samples": f"{self.n:,}", "classes": f"{self.classes:,}"}
        facts |= {"numbers": f"{len(self.vector):,}", "residual": f"{self.residual:.3g}"}
        return facts_table("DatasetEmbedding", facts)


def embed(
    data: LabeledDataset,
    space: FeatureSpace | None = None,
    *,
    n_directions: int = 64,
    n_levels: int = 32,
    label_weight: float = 1.0,
    seed: int = 0,
) -> DatasetEmbedding:
    """A dataset as a vector: ‖φ(A) − φ(B)‖ is the sliced distance of two datasets, along directions
    that the seed fixes.

    For many datasets that are compared with one another, and for vector stores; ``DatasetIndex``
    keeps such vectors on disk. Two datasets alone are better compared by ``ad.otdd``. Classes are
    not matched by name: datasets may have other classes, and other numbers of them. In time
    O(n log n) for each direction, once for each dataset.

    Args:
        data: a dataset; each sample with a label, unless ``label_weight`` is 0.
        space: where it is taken to first, as ``DatasetIndex`` does; without one, all datasets must
            have the same features.
        n_directions: of features; each is looked at through three directions of (features, mean and
            deviation of the label). The noise of distances falls with their square root, and what
            moves all samples alike is exact from d directions on.
        n_levels: numbers that a projected dataset is kept as.
        label_weight: as in ``ad.GroundCost``; 0 compares features alone.
        seed: of the directions.

    Returns:
        An ``DatasetEmbedding`` with 3 · n_directions · n_levels numbers (a third of it without labels).

    Raises:
        InputError: missing labels, or samples that do not fit the space.

    Example:
        >>> import advect as ad
        >>> data = ad.datasets.gaussians(100)
        >>> moved = data.replace(x=data.x + 3)             # by 3√2, and so are the laws of labels
        >>> abs(ad.embed(data).distance(ad.embed(moved)) - 6) < 1e-5
        True
    """
    remedy = "Wrap arrays as ad.LabeledDataset(x, y); use ad.EmbeddingSketch for data in parts."
    check_kind("embed takes a dataset", data, LabeledDataset, remedy)
    inside = data if space is None else in_space(space, data)
    slices = Slices.drawn(inside.dim, n_directions, n_levels, label_weight, seed)
    return embedded(inside, slices)


def embedded(inside: LabeledDataset, slices: Slices) -> DatasetEmbedding:
    """The embedding of a dataset that is in the space of the directions."""
    vector, residual = slices.measured(inside)
    present = int(inside.y[inside.labeled].unique().numel())
    return DatasetEmbedding(vector.numpy(), residual, 0.0, len(inside), present, slices.key)

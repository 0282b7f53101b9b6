"""Fixed one-dimensional looks at labeled datasets: the directions of a sliced distance, kept, and
quantile functions as a few numbers.

Along a direction θ a sample has the features θ·x, and its label the Gaussian law N(θ·μ_y, θ·S_y θ).
So a labeled sample is the point (θ·x, √w θ·μ_y, √w (θ·S_y θ)^½), w = label_weight, as in
``functionals.sliced``, and a second direction ψ makes it a number. Here the θ are orthonormal, as
many as there is room for, and each has three ψ, orthonormal as well. Every pair (θ, ψ) is uniformly
distributed, so that means over pairs have the expectation that they have over independent ones, and
less noise: what moves all features by one vector is measured exactly by d of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from advect._util.checks import check_count, check_non_negative
from advect._util.linalg import root
from advect.data.dataset import LabeledDataset
from advect.data.digest import digest
from advect.data.laws.moments import Moments

ENTRIES = 2_000_000  # numbers in an array of a group of projections


@dataclass(frozen=True, eq=False)
class Slices:
    """Directions and levels: what two embeddings must share to be compared.

    Attributes:
        theta: directions of features, (d, p), of length 1.
        psi: for each, what the described samples are projected on, (p, q, 3), or (p, 1, 1) without
            labels; orthonormal for each direction.
        n_levels: into how many parts of equal mass a projected dataset is cut.
        label_weight: 0 looks at features alone.

    Example:
        >>> slices = Slices.drawn(5, 3)
        >>> slices.theta.shape, slices.psi.shape, slices.size
        (torch.Size([5, 3]), torch.Size([3, 3, 3]), 288)
    """

    theta: Tensor
    psi: Tensor
    n_levels: int
    label_weight: float

    @classmethod
    def drawn(
        cls,
        dim: int,
        n_directions: int = 64,
        n_levels: int = 32,
        label_weight: float = 1.0,
        seed: int = 0,
    ) -> Slices:
        """Those of a seed."""
        check_count("n_directions", n_directions)
        check_non_negative("label_weight", label_weight)
        generator = torch.Generator().manual_seed(check_count("seed", seed, least=0))
        widths = [min(dim, n_directions - first) for first in range(0, n_directions, dim)]
        blocks = [_orthonormal(1, dim, width, generator)[0] for width in widths]
        parts = 3 if label_weight else 1
        return cls(
            torch.cat(blocks, dim=1),
            _orthonormal(n_directions, parts, parts, generator),
            check_count("n_levels", n_levels),
            float(label_weight),
        )

    @property
    def dim(self) -> int:
        """d, the number of features."""
        return self.theta.shape[0]

    @property
    def n_directions(self) -> int:
        """p, the number of directions of features."""
        return self.theta.shape[1]

    @property
    def size(self) -> int:
        """How many numbers an embedding has."""
        return self.psi.shape[0] * self.psi.shape[1] * self.n_levels

    @property
    def scale(self) -> float:
        """What a mean over projections is multiplied with: 3d, or d without labels."""
        return float(self.psi.shape[2] * self.dim)

    @cached_property
    def key(self) -> str:
        """What they are known by."""
        return digest(self.theta, self.psi, self.n_levels, self.label_weight)

    def measured(self, data: LabeledDataset) -> tuple[Tensor, float]:
        """The embedding of a dataset, (size,) float64, and how far its steps are from the quantile
        functions, in the same norm.
        """
        if self.label_weight and data.law is None:
            data.require_classes("an embedding with labels")
            data.require_labels("an embedding with labels")
        if self.label_weight:
            data.require_hard("an embedding with labels")
        features = data.x.detach().cpu().double() @ self.theta  # (n, p)
        masses = data.weights.cpu()
        offsets = rows = None
        if self.label_weight:
            rows = data.law_rows.cpu()
            offsets = self.offsets(*self._laws(data, features))
        group = max(1, ENTRIES // (len(data) * self.psi.shape[1]))

        def images(start: int) -> tuple[Tensor, Tensor]:
            chosen = slice(start, start + group)
            values = self.psi[chosen, :, :1] * features.T[chosen, None]  # (g, q, n)
            if offsets is not None:
                values = values + offsets[chosen][:, :, rows]
            return values, masses

        return self.steps(images, group)

    def offsets(self, means: Tensor, deviations: Tensor) -> Tensor:
        """What the laws of labels add to projected features, (p, q, k), from their means and
        deviations along the directions, (k, p).
        """
        laws = torch.stack([means.T, deviations.T], dim=1)  # (p, 2, k)
        return math.sqrt(self.label_weight) * self.psi[:, :, 1:] @ laws

    def steps(
        self, images: Callable[[int], tuple[Tensor, Tensor]], group: int
    ) -> tuple[Tensor, float]:
        """The scaled steps of all projections, and what they leave, from ``images(start)``: values
        (g, q, n) of the directions from there, and masses (n,) or (g, 1, n).
        """
        found, left = [], 0.0
        for start in range(0, self.n_directions, group):
            values, masses = images(start)
            steps, rest = quantile_steps(values, masses, self.n_levels)
            found.append(steps.flatten())
            left += float(rest.sum())
        factor = self.scale / (self.psi.shape[0] * self.psi.shape[1])
        return torch.cat(found) * math.sqrt(factor / self.n_levels), math.sqrt(factor * left)

    def _laws(self, data: LabeledDataset, features: Tensor) -> tuple[Tensor, Tensor]:
        """Means and deviations of the label laws along the directions, (k, p)."""
        if data.law is not None:
            law = data.law.to("cpu", torch.float64)
            return law.means @ self.theta, root(law.covariance.along(self.theta)).T
        parts = Moments.of_classes(
            features, data.y.cpu(), data.weights.cpu(), len(data.classes), diagonal=True
        )
        means = torch.stack([part.mean for part in parts])
        return means, root(torch.stack([part.covariance() for part in parts]))


def quantile_steps(values: Tensor, masses: Tensor, n_levels: int) -> tuple[Tensor, Tensor]:
    """Means of quantile functions over ``n_levels`` equal parts of (0, 1), and the mean square of
    what is left of the functions.

    Means, not values at levels: they are the projection of the quantile function on step functions,
    so that distances between them are never more than those between the functions, W₂.

    Args:
        values: (…, n).
        masses: (n,), or of a shape that broadcasts to that of the values; with a positive sum.
        n_levels: how many parts.

    Returns:
        (…, n_levels), and (…).

    Example:
        >>> values = torch.tensor([3.0, 0.0, 1.0, 2.0], dtype=torch.float64)
        >>> steps, left = quantile_steps(values, torch.full((4,), 0.25, dtype=torch.float64), 2)
        >>> steps.tolist(), left.item()
        ([0.5, 2.5], 0.25)
    """
    values, order = values.sort(dim=-1)
    masses = masses.expand(values.shape).gather(-1, order)
    below = masses.cumsum(dim=-1)
    below = torch.cat([torch.zeros_like(below[..., :1]), below / below[..., -1:]], dim=-1)
    masses = below.diff(dim=-1)
    centre = (masses * values).sum(dim=-1, keepdim=True)  # sums of what is far away lose digits
    values = values - centre
    sums = torch.cat([torch.zeros_like(below[..., :1]), (masses * values).cumsum(dim=-1)], dim=-1)
    levels = torch.arange(1, n_levels, dtype=values.dtype) / n_levels
    levels = levels.expand(*values.shape[:-1], n_levels - 1).contiguous()
    at = torch.searchsorted(below[..., 1:].contiguous(), levels).clamp_max(values.shape[-1] - 1)
    inside = sums.gather(-1, at) + (levels - below.gather(-1, at)) * values.gather(-1, at)
    edges = torch.cat([torch.zeros_like(centre), inside, sums[..., -1:]], dim=-1)
    steps = n_levels * edges.diff(dim=-1)
    left = (masses * values.square()).sum(dim=-1) - steps.square().mean(dim=-1)
    return steps + centre, left.clamp_min(0)


def _orthonormal(n: int, dim: int, width: int, generator: torch.Generator) -> Tensor:
    """Orthonormal columns that are uniformly distributed, (n, dim, width)."""
    drawn = torch.randn(n, dim, width, generator=generator, dtype=torch.float64)
    basis, triangle = torch.linalg.qr(drawn)
    return basis * triangle.diagonal(dim1=1, dim2=2).sign()[:, None, :]

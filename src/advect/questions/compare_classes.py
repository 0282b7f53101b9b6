"""What is asked of each class on its own: the Fréchet distance of its laws, coverage and density.

    Fréchet     W₂²(N(μ, S), N(μ', S')), the squared Bures-Wasserstein distance of Gaussians with the
                moments of the samples (Dowson and Landau 1982; Heusel et al. 2017 for images)
    coverage    the share of real samples with a synthetic one no farther than their k-th nearest real
                neighbour (Naeem et al. 2020)
    density     how many such balls a synthetic sample lies in, by k; 1 on average for equal laws

Draws take equally many samples of both sides: all three depend on how many there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from advect.data.laws import bures, estimate_gaussians

NAMES = ("frechet", "coverage", "density")


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points of one class, (n, d) float64 about a common centre, their weights and rows."""

    points: np.ndarray
    weights: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.points)

    def take(self, index: np.ndarray) -> Cloud:
        return Cloud(self.points[index], self.weights[index], self.rows[index])

    def some(self, most: int, rng: np.random.Generator) -> Cloud:
        """At most so many of them, drawn uniformly."""
        return self if len(self) <= most else self.take(np.sort(rng.permutation(len(self))[:most]))


def half_size(n_synthetic: int, n_real: int, most: int) -> int:
    """How many samples of each side a draw takes: half of the smaller one, so that two halves of the
    real side are as large.

    Example:
        >>> half_size(100, 60, 1000), half_size(0, 60, 20), half_size(1, 3, 20)
        (30, 20, 1)
    """
    smaller = min(n_synthetic, n_real) if n_synthetic else n_real
    return max(1, min(smaller // 2, most))


def class_draws(
    synthetic: Cloud, real: Cloud, size: int, k: int, repeats: int, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Values (B,) and floors (B,) of each of ``NAMES``; NaN for what so few samples cannot say.

    Without synthetic samples the coverage is 0. Without two real samples there is no floor.
    """
    values = {name: np.full(repeats, np.nan) for name in NAMES}
    floors = {name: np.full(repeats, np.nan) for name in NAMES}
    if not len(synthetic):
        values["coverage"][:] = 0.0
    within = distances(real.points, real.points)
    across = distances(real.points, synthetic.points)
    for b in range(repeats):
        if len(synthetic):
            s, r = rng.permutation(len(synthetic))[:size], rng.permutation(len(real))[:size]
            values["frechet"][b] = frechet(synthetic.take(s), real.take(r))
            found = covered(
                within[np.ix_(r, r)], across[np.ix_(r, s)], real.weights[r], synthetic.weights[s], k
            )
            values["coverage"][b], values["density"][b] = found
        if len(real) >= 2 * size:
            order = rng.permutation(len(real))
            one, two = order[:size], order[size : 2 * size]
            floors["frechet"][b] = frechet(real.take(one), real.take(two))
            found = covered(
                within[np.ix_(one, one)],
                within[np.ix_(one, two)],
                real.weights[one],
                real.weights[two],
                k,
            )
            floors["coverage"][b], floors["density"][b] = found
    return values, floors


def frechet(one: Cloud, other: Cloud) -> float:
    """W₂² of the Gaussians with the moments of two clouds, not squared again, without the ½.

    Example:
        >>> still, moved = (Cloud(np.array([[0.0], [2.0]]) + at, np.ones(2), np.arange(2)) for at in (0, 3))
        >>> frechet(still, moved)
        9.0
    """
    laws = [
        estimate_gaussians(
            torch.from_numpy(cloud.points),
            torch.zeros(len(cloud), dtype=torch.long),
            torch.from_numpy(cloud.weights),
            1,
        )
        for cloud in (one, other)
    ]
    return float(bures(*laws))


def distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Euclidean ones, by differences: a copy is at exactly 0."""
    from scipy.spatial.distance import cdist

    return cdist(one, other) if len(one) and len(other) else np.zeros((len(one), len(other)))


def covered(
    within: np.ndarray, across: np.ndarray, real: np.ndarray, synthetic: np.ndarray, k: int
) -> tuple[float, float]:
    """Coverage and density, from distances among n real samples and to m synthetic ones, (n, n) and
    (n, m), with their weights; NaN for fewer than two real ones.

    Example:
        >>> x, y = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([[0.5], [0.6]])
        >>> covered(distances(x, x), distances(x, y), np.ones(4), np.ones(2), k=1)
        (0.5, 2.0)
    """
    if len(within) < 2:
        return np.nan, np.nan
    inside = across <= radii(within, k)[:, None]
    real, synthetic = real / real.sum(), synthetic / synthetic.sum()
    near = min(k, len(within) - 1)
    return (
        float(real @ inside.any(axis=1)),
        float(len(within) * (real @ inside @ synthetic) / near),
    )


def radii(within: np.ndarray, k: int) -> np.ndarray:
    """The distance of each sample to its k-th nearest other one, or to the farthest of fewer."""
    others = within + np.diag(np.full(len(within), np.inf))
    near = min(k, len(within) - 1)
    return np.partition(others, near - 1, axis=1)[:, near - 1]

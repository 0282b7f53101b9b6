"""Synthetic samples that are too near to a training sample to be new.

Held-out real samples say how near a sample may come to the training data without having seen it:
those within the 1 % quantile of their distances to the nearest training sample count as memorised,
and held-out samples themselves are the floor. Without held-out samples, each training sample is held
out in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advect.questions.compare_floor import Drawn
from advect.questions.compare_sides import Sides


@dataclass(frozen=True, eq=False)
class Copies:
    """Distances of synthetic samples to their nearest training sample.

    Attributes:
        distance: (n,).  nearest: which training sample, a row of the real data, (n,).
        within: the distance from which on a sample counts as new.
        draws: shares of memorised samples, all of them and class by class.
    """

    distance: np.ndarray
    nearest: np.ndarray
    within: float
    draws: Drawn

    @property
    def memorised(self) -> np.ndarray:
        """Which synthetic samples are memorised, (n,) bool."""
        return self.distance <= self.within

    def pairs(self, rows: np.ndarray) -> np.ndarray:
        """Rows of memorised samples and of what they are near to, (c, 2), the nearest first."""
        order = np.argsort(self.distance, kind="stable")
        order = order[self.memorised[order]]
        return np.stack([rows[order], self.nearest[order]], axis=1)


def nearest(points: np.ndarray, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Distance and position of the nearest point among others; of the same points, other than
    itself.

    Example:
        >>> nearest(np.array([[0.0], [1.0], [5.0]]))
        (array([1., 1., 4.]), array([1, 0, 1]))
    """
    from sklearn.neighbors import NearestNeighbors

    others = points if among is None else among
    search = NearestNeighbors(n_neighbors=1 if among is not None else 2, algorithm="brute")
    found = search.fit(others).kneighbors(points, return_distance=False)
    which = found[:, 0]
    if among is None:
        which = np.where(which == np.arange(len(points)), found[:, 1], which)
    # by differences: what the search computes from products is not 0 for a copy
    return np.linalg.norm(points - others[which], axis=1), which


def copies(sides: Sides, quantile: float, repeats: int, rng: np.random.Generator) -> Copies:
    """Distances of all synthetic samples, the share within the quantile over draws of half of them,
    and that of held-out ones over splits, where one half says which quantile and the other is asked.
    """
    synthetic, codes, k = sides.synthetic.cloud, sides.synthetic.codes, len(sides.names)
    real, aside = sides.real.cloud, sides.held_out or sides.real
    held, held_codes = aside.cloud, aside.codes
    distance, which = nearest(synthetic.points, real.points)
    away, _ = nearest(held.points, None if sides.held_out is None else real.points)
    limit = _quantile(away, held.weights, quantile)
    mass = np.bincount(codes, synthetic.weights, minlength=k)
    values, floors = np.full((repeats, k + 1), np.nan), np.full((repeats, k + 1), np.nan)
    for b in range(repeats):
        rows = _half(codes, rng)
        values[b] = _shares(distance[rows] <= limit, synthetic.weights[rows], codes[rows], k, mass)
        if len(held_codes) < 2:
            continue
        one = _half(held_codes, rng)
        two = ~one
        within = _quantile(away[one], held.weights[one], quantile)
        floors[b] = _shares(away[two] <= within, held.weights[two], held_codes[two], k, mass)
    # halves have the spread of the whole, but classes of one sample are in one half only
    whole = _shares(distance <= limit, synthetic.weights, codes, k, mass)
    values = np.where(np.isnan(values), whole, values)
    values += whole - values.mean(axis=0)
    counts, sizes = np.bincount(codes, minlength=k), np.bincount(held_codes, minlength=k) / 2
    drawn = Drawn(
        values,
        floors,
        np.array([sizes.sum(), *sizes]),
        np.array([counts.sum(), *counts]),
    )
    return Copies(distance, real.rows[which], limit, drawn)


def _half(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Half of the samples of each class, as a mask; which half has the odd one is drawn."""
    first = np.zeros(len(codes), dtype=bool)
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        first[rows[: (len(rows) + rng.integers(2)) // 2]] = True
    if len(codes) > 1 and (first.all() or not first.any()):  # classes of one sample: by rows
        first[rng.permutation(len(codes))[: len(codes) // 2]] ^= True
    return first


def _quantile(distances: np.ndarray, weights: np.ndarray, level: float) -> float:
    """The least distance that a share of at least ``level`` is within."""
    order = np.argsort(distances, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(distances[order][min(np.searchsorted(reached, level), len(order) - 1)])


def _shares(
    inside: np.ndarray, weights: np.ndarray, codes: np.ndarray, k: int, mass: np.ndarray
) -> np.ndarray:
    """Of all and of each class, (k + 1,): classes count in the whole by their synthetic mass."""
    weight = np.bincount(codes, weights, minlength=k)
    there = weight > 0
    shares = np.full(k, np.nan)
    shares[there] = np.bincount(codes, weights * inside, minlength=k)[there] / weight[there]
    counted = np.where(there, mass, 0)
    whole = np.nansum(counted * shares) / counted.sum() if counted.sum() > 0 else np.nan
    return np.array([whole, *shares])

"""Which rotation brings one cloud of points onto another: couplings and rotations in turn.

Both clouds are (n, k) points about 0 in k dimensions of their own. For a coupling P of their samples
the rotation that leaves least,

    min_Q Σ P_ij ‖x_i Q − y_j‖² ,        Q orthogonal,

is the polar factor of XᵀPY (Procrustes); for a rotation the coupling that leaves least is optimal
transport. Taken in turn the sum only falls (Grave, Joulin and Berthet 2019), to a minimum near where
it began: so beginnings matter, and several are tried. Where classes of the two sides are known to
correspond, couplings stay within them; else the first coupling is that of fused Gromov–Wasserstein
transport (Vayer et al. 2019), which compares distances within each cloud."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_ROUNDS = 60  # of coupling and rotation
_STILL = 1e-10  # of the spread: a sum that falls by less has ended
_LEVELS = 16  # of a profile of distances
_FLIPPED = 24  # axes whose signs are tried
_ALPHA = 0.5  # Gromov–Wasserstein's share beside that of profiles


@dataclass(frozen=True, eq=False)
class Cloud:
    """Samples about 0, (n, k), their masses, and the group of each; groups of two clouds that have
    the same number correspond, unless they are only labels."""

    x: np.ndarray
    mass: np.ndarray
    group: np.ndarray

    def take(self, rows: np.ndarray) -> Cloud:
        return Cloud(self.x[rows], self.mass[rows], self.group[rows])

    @property
    def spread(self) -> float:
        return float((self.mass[:, None] * self.x**2).sum())

    @property
    def groups(self) -> np.ndarray:
        return np.unique(self.group)

    def means(self) -> np.ndarray:
        """The mean of each group, in the order of ``groups``."""
        return np.stack([self._mean(self.group == g) for g in self.groups])

    def _mean(self, rows: np.ndarray) -> np.ndarray:
        return self.mass[rows] @ self.x[rows] / self.mass[rows].sum()

    def axes(self, *, within: bool) -> tuple[np.ndarray, np.ndarray]:
        """Axes (k, k) and deviations along them, largest first, of all samples or of samples about
        their group's mean. The sign of an axis is that of the third moment along it.
        """
        x = self.x.copy()
        if within:
            for g in self.groups:
                x[self.group == g] -= self._mean(self.group == g)
        values, vectors = np.linalg.eigh((self.mass[:, None] * x).T @ x)
        vectors = vectors[:, ::-1]
        third = self.mass @ (x @ vectors) ** 3
        return (vectors * np.where(third < 0, -1, 1)).T, np.sqrt(values[::-1].clip(0))


@dataclass(frozen=True, eq=False)
class Found:
    """A rotation (k, k), the coupling it goes with, and what is left between matched samples as a
    share of both spreads."""

    rotation: np.ndarray
    left: float


def within_groups(a: Cloud, b: Cloud) -> Found:
    """The rotation of clouds whose groups correspond."""
    means = _weighted(a, a.means()).T @ _weighted(b, b.means())
    axes = _matched_axes(a, b, within=True)
    size = np.linalg.norm(means) / max(np.linalg.norm(axes), np.finfo(float).tiny)
    starts = [means + axes, means + 1e-3 * size * axes, _matched_axes(a, b, within=False)]
    return _best(a, b, [polar(start) for start in starts], _couple_groups)


def by_geometry(a: Cloud, b: Cloud) -> Found:
    """The rotation of clouds of which nothing is known but the distances within each, and which
    samples of each are of one group."""
    starts = [polar(a.x.T @ plan @ b.x) for plan in _gromov_plans(a, b)]
    starts.append(polar(_matched_axes(a, b, within=False)))
    return _best(a, b, starts, _couple_all)


def polar(matrix: np.ndarray) -> np.ndarray:
    """The orthogonal matrix nearest to one.

    Example:
        >>> polar(np.array([[0.0, 3.0], [-1.0, 0.0]])).round(6).tolist()
        [[0.0, 1.0], [-1.0, 0.0]]
    """
    u, _, v = np.linalg.svd(matrix)
    return u @ v


def _weighted(cloud: Cloud, means: np.ndarray) -> np.ndarray:
    masses = np.array([cloud.mass[cloud.group == g].sum() for g in cloud.groups])
    return np.sqrt(masses)[:, None] * means


def _matched_axes(a: Cloud, b: Cloud, *, within: bool) -> np.ndarray:
    """Axis onto axis, by rank."""
    (first, wide), (second, width) = a.axes(within=within), b.axes(within=within)
    return (first * (wide * width)[:, None]).T @ second


def _best(a: Cloud, b: Cloud, starts: Sequence[np.ndarray], couple) -> Found:
    found = min((_settled(a, b, start, couple) for start in starts), key=lambda one: one.left)
    if found.left <= _STILL:
        return found
    # signs of axes are what a beginning most often has wrong
    for axis in a.axes(within=False)[0][:_FLIPPED]:
        turned = found.rotation - 2 * np.outer(axis, axis @ found.rotation)
        if _left(a, b, turned, couple(a, b, turned)) < found.left * (1 - 1e-6):
            other = _settled(a, b, turned, couple)
            found = min(found, other, key=lambda one: one.left)
    return found


def _settled(a: Cloud, b: Cloud, rotation: np.ndarray, couple) -> Found:
    """Couplings and rotations in turn, from a rotation."""
    left = np.inf
    for _ in range(_ROUNDS):
        pull = couple(a, b, rotation)
        rotation = polar(pull)
        now = _left(a, b, rotation, pull)
        if left - now <= _STILL:
            return Found(rotation, min(left, now))
        left = now
    return Found(rotation, left)


def _left(a: Cloud, b: Cloud, rotation: np.ndarray, pull: np.ndarray) -> float:
    """Σ P ‖xQ − y‖² over both spreads, for the coupling with XᵀPY = ``pull``; never below 0."""
    both = a.spread + b.spread
    return max(0.0, 1 - 2 * float((rotation * pull).sum()) / both)


def _couple_groups(a: Cloud, b: Cloud, rotation: np.ndarray) -> np.ndarray:
    """XᵀPY of the best coupling within groups."""
    pull = np.zeros((a.x.shape[1], b.x.shape[1]))
    for g in a.groups:
        mine, yours = a.take(a.group == g), b.take(b.group == g)
        pull += mine.mass.sum() * _pull(mine, yours, _cost(mine.x @ rotation, yours.x))
    return pull


def _couple_all(a: Cloud, b: Cloud, rotation: np.ndarray) -> np.ndarray:
    """XᵀPY of the best coupling, where the means of groups count like samples."""
    cost = _cost(a.x @ rotation, b.x)
    if len(a.groups) > 1 and len(b.groups) > 1:
        rows, columns = (np.searchsorted(c.groups, c.group) for c in (a, b))
        cost = cost + _cost(a.means() @ rotation, b.means())[np.ix_(rows, columns)]
    return _pull(a, b, cost)


def _pull(a: Cloud, b: Cloud, cost: np.ndarray) -> np.ndarray:
    return a.x.T @ _plan(a.mass, b.mass, cost) @ b.x


def _plan(p: np.ndarray, q: np.ndarray, cost: np.ndarray) -> np.ndarray:
    import ot  # POT takes seconds to import

    return ot.emd(p / p.sum(), q / q.sum(), np.ascontiguousarray(cost), numItermax=1_000_000)


def _cost(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return ((x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * x @ y.T).clip(0)


def _gromov_plans(a: Cloud, b: Cloud) -> list[np.ndarray]:
    """Couplings under which distances within both clouds agree, from two beginnings."""
    import ot

    first, second = (np.sqrt(_cost(c.x, c.x)) for c in (a, b))
    labeled = len(a.groups) > 1 and len(b.groups) > 1
    profiles = [_profiles(c, d, labeled) for c, d in ((a, first), (b, second))]
    near = _cost(*profiles) / _LEVELS
    p, q = a.mass / a.mass.sum(), b.mass / b.mass.sum()
    alike = _plan(p, q, near)
    plans: list[Any] = [alike]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it comes to is only a beginning
        for start in (alike, np.outer(p, q)):
            plans.append(
                ot.gromov.fused_gromov_wasserstein(
                    near, first, second, p, q, alpha=_ALPHA, symmetric=True, G0=start, max_iter=200
                )
            )
    return [np.asarray(plan) for plan in plans]


def _profiles(cloud: Cloud, distances: np.ndarray, labeled: bool) -> np.ndarray:
    """How far others are from each sample: quantiles of distances to all, and to its own group where
    there are labels."""
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    every = np.quantile(distances, levels, axis=1).T
    if not labeled:
        return every
    own = np.empty_like(every)
    for g in cloud.groups:
        rows = cloud.group == g
        own[rows] = np.quantile(distances[np.ix_(rows, rows)], levels, axis=1).T
    return np.concatenate([every, own], axis=1)

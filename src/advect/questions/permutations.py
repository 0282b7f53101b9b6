"""Permutation tests of two samples, computed for many permutations at once.

With u = 1/m on the m samples of the window and −1/n on the n of the reference, uᵀ K u is the squared
MMD of a kernel K, or with K = −distance the energy distance. Permutations of u are the columns of a
matrix U, so one product K U serves all of them. Under the null hypothesis samples are exchangeable,
and p = (1 + number of permuted statistics that reach the observed one) / (1 + B) is exact for any
statistic (Phipson and Smyth 2010).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from advect.classes.clustering import of_order_one

_BLOCK = 500  # permutations at a time
_NOISE = 1e-13  # relative rounding error of sums
_ROUNDING = 1e-9  # relative tolerance of comparisons
_N_NEIGHBORS = 10  # that give the expected label of a sample
_BANDWIDTHS = (0.5, 0.25)  # of Gaussian kernels, relative to the median distance
_GROUP_SIZE = 10  # of similar samples within which labels are compared
_SECOND_LOOK = 0.1  # p-value below which a class is tested again
_MAX_PERMUTATIONS = 50_000
_MAX_PAIR_CLASSES = 60  # number of classes up to which all pairs are tested


def distances(points: np.ndarray) -> np.ndarray:
    """Euclidean distances (n, n), divided by the median of the positive ones."""
    from scipy.spatial.distance import pdist, squareform

    values = pdist(of_order_one(points))
    return squareform(values / (np.median(values[values > 0]) if (values > 0).any() else 1.0))


def gaussian(distance: np.ndarray, bandwidth: float) -> np.ndarray:
    """exp(−d² / (2 bandwidth²))."""
    return np.exp(-np.square(distance) / (2 * bandwidth**2))


def strata(points: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Groups of similar samples, about ``size`` each, (n,), by k-means on the distinct points, so
    that groups do not depend on the order of the samples.
    """
    from sklearn.cluster import KMeans

    distinct, which = np.unique(points, axis=0, return_inverse=True)
    k = min(max(1, round(len(points) / size)), len(distinct))
    if k == 1:
        return np.zeros(len(points), int)
    weights = np.bincount(which.reshape(-1)).astype(float)
    options: dict[str, Any] = {"n_init": 1, "max_iter": 20, "random_state": seed}
    labels = KMeans(k, **options).fit(distinct, sample_weight=weights).labels_
    return np.asarray(labels)[which.reshape(-1)]


def centres(points: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Mean of each group."""
    count = np.bincount(groups)
    sums = np.zeros((len(count), points.shape[1]))
    np.add.at(sums, groups, points)
    return sums / count.clip(1)[:, None]


def contrasts(
    window: np.ndarray,
    n_permutations: int,
    rng: np.random.Generator,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """The contrast u, and permutations of it (within groups), (n, 1 + n_permutations)."""
    m = int(window.sum())
    u = np.where(window, 1 / m, -1 / (len(window) - m))
    groups = np.zeros(len(window), int) if groups is None else groups
    columns = np.empty((len(u), 1 + n_permutations))
    columns[:, 0] = u
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        tiled = np.broadcast_to(u[rows], (n_permutations, len(rows)))
        columns[rows, 1:] = rng.permuted(tiled, axis=1).T
    return columns


def permuted(
    measure: Callable[[np.ndarray], np.ndarray],
    window: np.ndarray,
    n_permutations: int,
    rng: np.random.Generator,
    groups: np.ndarray | None = None,
    advance: Callable[[int], object] = lambda k: None,
) -> np.ndarray:
    """Statistics of the observed sides and of permuted ones, (…, 1 + n_permutations)."""
    parts = []
    for done in range(0, n_permutations, _BLOCK):
        count = min(_BLOCK, n_permutations - done)
        u = contrasts(window, count, rng, groups)
        parts.append(measure(u[:, 1:] if done else u))
        advance(count)
    return np.concatenate(parts, axis=-1)


def n_assignments(n: int, m: int) -> int:
    """Number of ways to choose m of n samples, or a lower bound."""
    return math.comb(n, min(m, n - m, 20))


def quadratic(kernel: np.ndarray, u: np.ndarray) -> np.ndarray:
    """uᵀ K u for each column u."""
    return without_noise(np.einsum("ib,ib->b", u, kernel @ u), 4 * float(np.abs(kernel).max()))


def without_noise(values: np.ndarray, scale: float) -> np.ndarray:
    """Values with rounding errors replaced by zero, so that they are not ranked."""
    return np.where(np.abs(values) > _NOISE * scale, values, 0.0)


def label_sums(
    u: np.ndarray, codes: np.ndarray, groups: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Σ u_i over the samples of each label in each group, (k, groups, 1 + B), and their counts."""
    from scipy.sparse import csr_array

    n, n_groups = len(codes), int(groups.max()) + 1
    place = codes * n_groups + groups
    member = csr_array((np.ones(n), (place, np.arange(n))), shape=(k * n_groups, n))
    counts = np.asarray(member.sum(axis=1)).reshape(k, n_groups)
    return (member @ u).reshape(k, n_groups, -1), counts


def label_distance(sums: np.ndarray, counts: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Difference of the labels of two sides within groups, (1 + B,): Σ_a ⟨h_a, K h_a⟩ with h_a the
    excess of label a in the window beyond its share of the group.
    """
    share = counts / counts.sum(axis=0).clip(1)
    excess = without_noise(sums - share[:, :, None] * sums.sum(axis=0), float(np.abs(sums).max()))
    return np.einsum("agc,agc->c", excess, np.einsum("gh,ahc->agc", kernel, excess, optimize=True))


def label_disagreement(
    distance: np.ndarray, codes: np.ndarray, groups: np.ndarray, k: int, pairs: np.ndarray
) -> np.ndarray:
    """Share of the nearest neighbours with another label, and for each pair of labels the share with
    the other one of the two, (n, 1 + pairs), minus the mean of the group.
    """
    n = len(codes)
    to = distance.copy()
    np.fill_diagonal(to, np.inf)
    neighbors = np.argsort(to, axis=1, kind="stable")[:, : min(_N_NEIGHBORS, n - 1)]
    votes = np.eye(k)[codes[neighbors]].mean(axis=1)  # share of each label among the neighbours
    shares = np.zeros((n, 1 + len(pairs)))
    shares[:, 0] = 1 - votes[np.arange(n), codes]
    for place, (a, b) in enumerate(pairs, start=1):
        shares[codes == a, place] = votes[codes == a, b]
        shares[codes == b, place] = votes[codes == b, a]
    return shares - centres(shares, groups)[groups]


def p_value(statistics: np.ndarray) -> float:
    """Share of all statistics that reach the first, observed one."""
    return float((statistics >= statistics[0] - _ROUNDING * np.abs(statistics).max()).mean())


def standardized(statistics: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values minus the mean of ``statistics``, divided by their deviation; 0 if that is 0."""
    mean = statistics.mean(axis=-1, keepdims=True)
    spread = statistics.std(axis=-1, keepdims=True)
    least = _ROUNDING * np.abs(statistics).max(axis=-1, keepdims=True, initial=0)
    return (values - mean) / np.where(spread > least, spread, np.inf)


def largest(several: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Largest of several statistics, each standardized over all columns; its p-value is exact."""
    return np.max([standardized(one, one) for one in several], axis=0)


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """p-values adjusted by Holm's rule (1979); NaN stays NaN."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return adjusted


@dataclass(frozen=True)
class DriftTest:
    """A permutation test.

    ``adjusted`` is the p-value adjusted by Holm's rule over the tests. NaN: not tested.
    """

    name: str
    statistic: float  # 0 if the sides agree
    p_value: float
    adjusted: float
    n_reference: int
    n_window: int


@dataclass(frozen=True)
class Pool:
    """The samples of both sides that are used in a test, and its permutations."""

    points: np.ndarray
    codes: np.ndarray
    window: np.ndarray
    k: int  # number of classes
    seed: int
    n_permutations: int
    rng: np.random.Generator
    advance: Callable[[int], Any]

    @cached_property
    def distances(self) -> np.ndarray:
        return distances(self.points)

    def test_features(self) -> DriftTest:
        kernels = [-self.distances, *(gaussian(self.distances, width) for width in _BANDWIDTHS)]
        statistics = self._permuted(
            lambda u: np.stack([quadratic(kernel, u) for kernel in kernels])
        )
        return self._test("features", largest(statistics), statistics[0, 0])

    def test_shares(self) -> DriftTest:
        """The class proportions."""
        counts = np.bincount(self.codes, minlength=self.k)
        indicator = np.eye(self.k)[self.codes].T / np.sqrt(counts.clip(1))[:, None]

        def measure(u: np.ndarray) -> np.ndarray:  # χ² / nm
            return np.square(without_noise(indicator @ u, 2 * float(indicator.max()))).sum(axis=0)

        n, m = (~self.window).sum(), self.window.sum()
        chi_square = self._permuted(measure) * n * m
        return self._test("shares", chi_square, chi_square[0] / (n + m))

    def test_labels(self) -> DriftTest:
        """The labels given the features: a squared distance, large if labels are exchanged, and
        differences of the disagreement, overall and for each pair.
        """
        codes, k, groups = self.codes, self.k, strata(self.points, _GROUP_SIZE, self.seed)
        kernel = gaussian(distances(centres(self.points, groups)), _BANDWIDTHS[0])
        pairs = np.stack(np.triu_indices(k if k <= _MAX_PAIR_CLASSES else 0, 1), axis=1)
        disagreement = label_disagreement(self.distances, codes, groups, k, pairs)

        def measure(u: np.ndarray) -> np.ndarray:  # (2 + pairs, b)
            squares = label_distance(*label_sums(u, codes, groups, k), kernel)
            return np.concatenate([squares[None], np.abs(disagreement.T @ u)])

        changes = self._permuted(measure, groups)
        several = [*changes[:2], *([largest(changes[2:])] if len(changes) > 2 else [])]
        return self._test("labels", largest(several), changes[0, 0])

    def test_classes(self, level: float, enough: int) -> tuple[DriftTest, dict[int, np.ndarray]]:
        """Each class separately, and the statistics by class. A class with a small p-value is tested
        again with enough permutations for Holm's rule; the second test replaces the first, so either
        p-value is exact.
        """
        more = max(self.n_permutations, min(enough, _MAX_PERMUTATIONS))
        statistics: dict[int, np.ndarray] = {}
        for code in range(self.k):
            rows = np.flatnonzero(self.codes == code)
            side = self.window[rows]
            if n_assignments(len(rows), int(side.sum())) < 1 / level:
                continue  # too few samples for any p-value below the level
            measure = partial(quadratic, -self.distances[np.ix_(rows, rows)])
            for count in (self.n_permutations, more):
                statistics[code] = permuted(measure, side, count, self.rng)
                if p_value(statistics[code]) > _SECOND_LOOK:
                    break
        if not statistics:
            return self._test("classes", np.zeros(1), math.nan, math.nan), {}
        p_values = {code: p_value(values) for code, values in statistics.items()}
        worst = max(statistics, key=lambda code: (-p_values[code], statistics[code][0]))
        adjusted = float(holm([*p_values.values()]).min())
        return self._test("classes", statistics[worst], statistics[worst][0], adjusted), statistics

    def _permuted(
        self, measure: Callable[[np.ndarray], np.ndarray], groups: np.ndarray | None = None
    ) -> np.ndarray:
        return permuted(measure, self.window, self.n_permutations, self.rng, groups, self.advance)

    def _test(
        self, name: str, statistics: np.ndarray, size: float, p: float | None = None
    ) -> DriftTest:
        """A test from statistics whose first value is the observed one."""
        m, p = int(self.window.sum()), p_value(statistics) if p is None else p
        return DriftTest(name, float(size), p, math.nan, len(self.window) - m, m)

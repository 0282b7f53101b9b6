"""Two-sample statistics of many permutations at once.

A sample belongs to the reference or to the window. With u = 1/m on the m samples of the window and
−1/n on the n of the reference, u sums to zero, and uᵀ K u is the squared distance in the space of a
kernel K between the two empirical laws (the maximum mean discrepancy, biased form; with K = −distance
the energy distance). Which sample belongs to which side does not change K: permutations of u are the
columns of a matrix U, and one product K U serves them all.

Under the null hypothesis samples are exchangeable, so that the observed statistic is one of B + 1
equally likely ones, and p = (1 + how many permuted ones reach it) / (1 + B) exceeds a level with at
most that probability, for any n, m, K and B (Phipson and Smyth, 2010)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

BLOCK = 500  # permutations at a time
_NOISE = 1e-13  # of what is summed: what sums in float64 cannot tell from zero
_ROUNDING = 1e-9  # of the largest statistic: sums in another order are not smaller ones


def contrasts(
    window: np.ndarray,
    n_permutations: int,
    generator: np.random.Generator,
    strata: np.ndarray | None = None,
) -> np.ndarray:
    """The contrast u of the two sides, and permutations of it, (n, 1 + n_permutations); the first
    column is as observed.

    Args:
        window: which samples are of the window, (n,) bool; both sides have some.
        n_permutations: how many to draw.
        generator: of the permutations.
        strata: groups within which samples change sides, (n,); all at once by default.

    Example:
        >>> u = contrasts(np.array([True, False, False]), 2, np.random.default_rng(0))
        >>> u[:, 0].tolist(), u.shape, float(np.abs(u.sum(axis=0)).max())
        ([1.0, -0.5, -0.5], (3, 3), 0.0)
    """
    m = int(window.sum())
    u = np.where(window, 1 / m, -1 / (len(window) - m))
    groups = np.zeros(len(window), int) if strata is None else strata
    found = np.empty((len(u), 1 + n_permutations))
    found[:, 0] = u
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        tiled = np.broadcast_to(u[rows], (n_permutations, len(rows)))
        found[rows, 1:] = generator.permuted(tiled, axis=1).T
    return found


def ways(n: int, m: int) -> int:
    """In how many ways m of n samples can be the window, or a lower bound of many.

    Example:
        >>> ways(4, 2), ways(10**6, 5 * 10**5) > 10**9
        (6, True)
    """
    return math.comb(n, min(m, n - m, 20))


def permuted(
    measure: Callable[[np.ndarray], np.ndarray],
    window: np.ndarray,
    n_permutations: int,
    generator: np.random.Generator,
    strata: np.ndarray | None = None,
    advance: Callable[[int], object] = lambda k: None,
) -> np.ndarray:
    """Statistics of the observed sides and of permuted ones, (…, 1 + n_permutations), some
    permutations at a time.

    Args:
        measure: from contrasts (n, b) to statistics (…, b).
        window: which samples are of the window.
        n_permutations: how many.
        generator: of the permutations.
        strata: groups within which sides change.
        advance: called with how many more are done.

    Example:
        >>> side = np.array([True, False, False])
        >>> permuted(lambda u: u[:1], side, 3, np.random.default_rng(0)).shape
        (1, 4)
    """
    found, done = [], 0
    while done < n_permutations or not found:
        count = min(BLOCK, n_permutations - done)
        u = contrasts(window, count, generator, strata)
        found.append(measure(u if not found else u[:, 1:]))
        done += count
        advance(count)
    return np.concatenate(found, axis=-1)


def quadratic(kernel: np.ndarray, u: np.ndarray) -> np.ndarray:
    """uᵀ K u for each column u, (1 + B,).

    Example:
        >>> quadratic(np.eye(2), np.array([[1.0, 2.0], [-1.0, -2.0]])).tolist()
        [2.0, 8.0]
    """
    return settled(np.einsum("ib,ib->b", u, kernel @ u), 4 * float(np.abs(kernel).max()))


def settled(values: np.ndarray, scale: float) -> np.ndarray:
    """Zero where only rounding of numbers of this size is left: noise must not be ranked.

    Example:
        >>> settled(np.array([1e-17, 0.5]), 1.0).tolist()
        [0.0, 0.5]
    """
    return np.where(np.abs(values) > _NOISE * scale, values, 0.0)


def label_counts(
    u: np.ndarray, codes: np.ndarray, groups: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Σ u_i over the samples of each label in each group, (k, groups, 1 + B), and how many these
    are, (k, groups).

    Example:
        >>> u = np.array([[0.5], [0.5], [-1.0]])
        >>> sums, counts = label_counts(u, np.array([0, 0, 1]), np.zeros(3, int), 2)
        >>> sums[:, 0, 0].tolist(), counts[:, 0].tolist()
        ([1.0, -1.0], [2.0, 1.0])
    """
    from scipy.sparse import csr_array

    n, n_groups = len(codes), int(groups.max()) + 1
    place = codes * n_groups + groups
    member = csr_array((np.ones(n), (place, np.arange(n))), shape=(k * n_groups, n))
    counts = np.asarray(member.sum(axis=1)).reshape(k, n_groups)
    return (member @ u).reshape(k, n_groups, -1), counts


def labels_apart(sums: np.ndarray, counts: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """How far labels of the two sides differ within groups of like samples, (1 + B,).

    With r_ia = [y_i = a] − (share of a in the group of i), h_a = Σ u_i r_ia over each group is what
    the window has more of label a there, beyond what is due to its number of samples in the group. A
    kernel between groups smooths it, and Σ_a ⟨h_a, h_a⟩ is the statistic.

    Example:
        >>> u = np.array([[0.5], [0.5], [-0.5], [-0.5]])
        >>> codes, one, two = np.array([0, 0, 1, 1]), np.zeros(4, int), np.array([0, 0, 1, 1])
        >>> labels_apart(*label_counts(u, codes, one, 2), np.eye(1)).tolist()
        [2.0]
        >>> labels_apart(*label_counts(u, codes, two, 2), np.eye(2)).tolist()
        [0.0]
    """
    share = counts / counts.sum(axis=0).clip(1)
    excess = settled(sums - share[:, :, None] * sums.sum(axis=0), float(np.abs(sums).max()))
    smooth = np.einsum("gh,ahc->agc", kernel, excess, optimize=True)
    return np.einsum("agc,agc->c", excess, smooth)


def pairs_apart(
    sums: np.ndarray, counts: np.ndarray, kernel: np.ndarray, pairs: np.ndarray
) -> np.ndarray:
    """``labels_apart`` of each pair of labels by itself, as if there were no samples of others,
    (pairs, 1 + B): large where the two trade places. What happens to a third label has no part in
    it.

    Example:
        >>> u = np.array([[0.5], [-0.5], [0.5], [-0.5]])
        >>> sums, counts = label_counts(u, np.array([0, 1, 2, 2]), np.zeros(4, int), 3)
        >>> pairs_apart(sums, counts, np.eye(1), np.array([[0, 1], [0, 2]]))[:, 0].round(2).tolist()
        [0.5, 0.22]
    """
    found = np.zeros((len(pairs), sums.shape[2]))
    for place, (a, b) in enumerate(pairs):
        mixed = np.flatnonzero((counts[a] > 0) & (counts[b] > 0))
        if len(mixed):
            one, other = counts[a, mixed, None], counts[b, mixed, None]
            excess = (other * sums[a, mixed] - one * sums[b, mixed]) / (one + other)
            smooth = kernel[np.ix_(mixed, mixed)] @ excess
            found[place] = 2 * np.einsum("gc,gc->c", excess, smooth)
    return found


def p_value(statistics: np.ndarray) -> float:
    """The share of all statistics, the first of which is the observed one, that reach it.

    Example:
        >>> p_value(np.array([3.0, 1.0, 3.0, 2.0]))
        0.5
    """
    scale = np.abs(statistics).max()
    return float((statistics >= statistics[0] - _ROUNDING * scale).mean())


def above_mean(statistics: np.ndarray) -> float:
    """How many standard deviations the observed statistic is above the mean of the permuted ones; 0
    where they do not vary.

    Example:
        >>> round(above_mean(np.array([5.0, 1.0, 3.0])), 2)
        3.0
    """
    return float(standardized(statistics[1:], statistics[:1])[0])


def largest(several: Sequence[np.ndarray]) -> np.ndarray:
    """The largest of several statistics, each in units of its own deviation over all columns: one
    statistic whose p-value is exact again, since the observed column counts as the others do.

    Example:
        >>> largest([np.array([9.0, 1.0, 2.0]), np.array([0.0, 10.0, 5.0])]).argmax()
        np.int64(0)
    """
    return np.max([standardized(one, one) for one in several], axis=0)


def standardized(statistics: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values in units of the deviation of ``statistics`` (last axis) from their mean; 0 where they
    do not vary.

    Example:
        >>> standardized(np.array([1.0, 1.0]), np.array([4.0])).tolist()
        [0.0]
    """
    mean = statistics.mean(axis=-1, keepdims=True)
    spread = statistics.std(axis=-1, keepdims=True)
    least = _ROUNDING * np.abs(statistics).max(axis=-1, keepdims=True, initial=0)
    return (values - mean) / np.where(spread > least, spread, np.inf)


def p_values_of_largest(statistics: np.ndarray) -> np.ndarray:
    """For each row of statistics (k, 1 + B) the share of columns whose largest standardized
    statistic reaches that of the row's first: p-values adjusted for looking at all rows (Westfall
    and Young, 1993).

    Example:
        >>> p_values_of_largest(np.array([[9.0, 1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 2.0]])).tolist()
        [0.25, 1.0]
    """
    if not len(statistics):
        return np.zeros(0)
    scaled = standardized(statistics, statistics)
    most = scaled.max(axis=0)
    return (most[None, :] >= scaled[:, :1] - _ROUNDING * np.abs(most).max()).mean(axis=1)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """p-values adjusted by Holm's rule (1979): each below a level with at most that probability for
    any of the true hypotheses, however the tests depend on one another. NaN (not tested) stays.

    Example:
        >>> holm([0.01, 0.04, 0.03, float("nan")]).round(3).tolist()
        [0.03, 0.06, 0.06, nan]
    """
    p = np.asarray(p_values, dtype=float)
    found = np.full(len(p), np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    found[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return found

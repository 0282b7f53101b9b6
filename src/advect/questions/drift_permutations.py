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

from collections.abc import Callable, Sequence

import numpy as np

BLOCK = 500  # permutations at a time
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
    return np.einsum("ib,ib->b", u, kernel @ u)


def label_excess(u: np.ndarray, codes: np.ndarray, groups: np.ndarray, k: int) -> np.ndarray:
    """What the window has more of each label in each group of like samples, (k, groups, 1 + B),
    beyond what the group's own share of the label explains.

    With r_ia = [y_i = a] − (share of a in the group of i), over both sides, this is Σ u_i r_ia over
    the group: 0 on average where labels depend on the group and not on the side, however many of its
    samples are of the window.

    Example:
        >>> u = np.array([[0.5], [0.5], [-0.5], [-0.5]])
        >>> label_excess(u, np.array([0, 0, 1, 1]), np.zeros(4, int), 2)[:, 0, 0].tolist()
        [1.0, -1.0]
        >>> label_excess(u, np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), 2).any()
        np.False_
    """
    from scipy.sparse import csr_array

    n, n_groups = len(codes), int(groups.max()) + 1
    place = codes * n_groups + groups
    member = csr_array((np.ones(n), (place, np.arange(n))), shape=(k * n_groups, n))
    counts = np.asarray(member.sum(axis=1)).reshape(k, n_groups)
    share = counts / counts.sum(axis=0).clip(1)
    found = (member @ u).reshape(k, n_groups, -1)
    return found - share[:, :, None] * found.sum(axis=0)


def between_classes(excess: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """⟨h_a, h_b⟩ for each pair of labels and each column, (k, k, 1 + B), where h_a is the excess of
    label a over groups (``label_excess``) smoothed by a kernel between groups.

    Where samples change their label from a to b, a loses what b gains in the same places, and
    −⟨h_a, h_b⟩ is large. The diagonal sums to how far labels changed in all.

    Example:
        >>> between_classes(np.array([[[1.0]], [[-1.0]]]), np.eye(1))[:, :, 0].tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    return np.einsum("agc,bgc->abc", excess, smoothed(excess, kernel), optimize=True)


def within_classes(excess: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Σ_a ⟨h_a, h_a⟩ for each column, (1 + B,): the sum of the diagonal of ``between_classes``.

    Example:
        >>> within_classes(np.array([[[1.0]], [[-1.0]]]), np.eye(1)).tolist()
        [2.0]
    """
    return np.einsum("agc,agc->c", excess, smoothed(excess, kernel))


def smoothed(excess: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """A kernel between groups applied to each label and column."""
    return np.einsum("gh,ahc->agc", kernel, excess, optimize=True)


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

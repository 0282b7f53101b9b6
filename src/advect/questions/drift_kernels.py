"""What drift is measured with: distances between all samples of both sides, kernels of them, and
groups of like samples. All of it is a function of the pooled samples, whatever side they are of."""

from __future__ import annotations

from typing import Any

import numpy as np

BANDWIDTHS = (0.5, 0.25)  # of Gaussian kernels, in units of the median distance
NEIGHBOURS = 10  # that say what label to expect of a sample


def distances(points: np.ndarray) -> np.ndarray:
    """Euclidean distances between all rows, (n, n), the median of which is 1 where points differ.

    Example:
        >>> distances(np.array([[1e9], [1e9 + 2], [1e9 + 4]])).tolist()
        [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """
    from scipy.spatial.distance import pdist, squareform

    points = points - points.mean(axis=0)
    points = points / (np.abs(points).max() or 1.0)  # squares neither overflow nor vanish
    apart = pdist(points)
    scale = np.median(apart[apart > 0]) if (apart > 0).any() else 1.0
    return squareform(apart / scale)


def gaussian(apart: np.ndarray, bandwidth: float) -> np.ndarray:
    """exp(−d² / (2 bandwidth²)).

    Example:
        >>> gaussian(np.array([[0.0, 1.0]]), 1.0).round(3).tolist()
        [[1.0, 0.607]]
    """
    return np.exp(-np.square(apart) / (2 * bandwidth**2))


def same_class(codes: np.ndarray) -> np.ndarray:
    """Whether two samples have the same label, (n, n), as numbers."""
    return (codes[:, None] == codes[None, :]).astype(float)


def strata(points: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Groups of like samples, about ``size`` each, (n,), by k-means.

    Samples are put in an order of their own first, so that a group depends on which samples there
    are and not on their order: sides may then change within groups.

    Example:
        >>> strata(np.array([[0.0], [9.0], [0.1], [9.1]]), 2, 0).tolist() in ([0, 1, 0, 1], [1, 0, 1, 0])
        True
    """
    from sklearn.cluster import KMeans

    distinct, which = np.unique(points, axis=0, return_inverse=True)
    k = min(max(1, round(len(points) / size)), len(distinct))
    if k == 1:
        return np.zeros(len(points), int)
    weights = np.bincount(which.reshape(-1)).astype(float)
    options: dict[str, Any] = {"n_init": 1, "max_iter": 20, "random_state": seed}
    made = KMeans(k, **options).fit(distinct, sample_weight=weights)
    return np.asarray(made.labels_)[which.reshape(-1)]


def centres(points: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The mean of each group.

    Example:
        >>> centres(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1])).tolist()
        [[1.0], [5.0]]
    """
    count = np.bincount(groups)
    sums = np.zeros((len(count), points.shape[1]))
    np.add.at(sums, groups, points)
    return sums / count.clip(1)[:, None]


def disagreement(
    apart: np.ndarray, codes: np.ndarray, groups: np.ndarray, k: int, pairs: np.ndarray
) -> np.ndarray:
    """How far the label of each sample is from those of its nearest neighbours of both sides: in
    the first column the share of these with another label, then for each pair of labels the share
    with the other one of the two, (n, 1 + pairs). Less the mean of the group, so that places where
    labels are mixed anyway do not count.

    Example:
        >>> x = np.arange(12.0)[:, None]
        >>> codes = np.array([0] * 11 + [1])
        >>> found = disagreement(distances(x), codes, np.zeros(12, int), 2, np.array([[0, 1]]))
        >>> found.argmax(axis=0).tolist()
        [11, 11]
    """
    n = len(codes)
    to = apart.copy()
    np.fill_diagonal(to, np.inf)
    count = min(NEIGHBOURS, n - 1)
    near = np.argsort(to, axis=1, kind="stable")[:, :count]
    votes = np.zeros((n, k))
    for column in near.T:
        votes[np.arange(n), codes[column]] += 1 / max(count, 1)
    found = np.zeros((n, 1 + len(pairs)))
    found[:, 0] = 1 - votes[np.arange(n), codes]
    for place, (a, b) in enumerate(pairs, start=1):
        found[codes == a, place] = votes[codes == a, b]
        found[codes == b, place] = votes[codes == b, a]
    return found - centres(found, groups)[groups]

"""Discrete labels from label laws that move one by one: clustering for jd-vl (paper, section 5.1
and appendix C).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count, check_positive
from advect.data.gaussians import Diagonal, Gaussians


class Clustering(Protocol):
    """Cluster points (n, p) into labels (n,) given the labels before; −1 means no cluster."""

    def __call__(self, points: np.ndarray, previous: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class KMeans:
    """k-means with a fixed number of clusters, started from the clusters before so that it is quick
    and steady.

    Args:
        n_clusters: how many; by default as many as there were before.

    Example:
        >>> import numpy as np, advect as ad
        >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> ad.KMeans(2)(points, np.zeros(4, dtype=int)).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
        True
    """

    n_clusters: int | None = None

    def __post_init__(self) -> None:
        if self.n_clusters is not None:
            check_count("n_clusters", self.n_clusters)

    def __call__(self, points: np.ndarray, previous: np.ndarray) -> np.ndarray:
        from sklearn.cluster import KMeans as SklearnKMeans

        codes = np.unique(previous)
        wanted = min(self.n_clusters or len(codes), len(np.unique(points, axis=0)))
        options: dict[str, Any] = {"n_init": 10, "random_state": 0}
        if wanted == len(codes):
            options = {
                "n_init": 1,
                "init": np.stack([points[previous == code].mean(axis=0) for code in codes]),
            }
        return np.asarray(SklearnKMeans(wanted, **options).fit_predict(points))


@dataclass(frozen=True)
class DBSCAN:
    """Density-based clustering, which finds the number of clusters itself; the paper's radius 5 and
    4 points by default.

    Example:
        >>> import numpy as np, advect as ad
        >>> points = np.array([[0.0], [1.0], [2.0], [3.0], [50.0], [51.0], [52.0], [53.0]])
        >>> ad.DBSCAN()(points, np.zeros(8, dtype=int)).tolist()
        [0, 0, 0, 0, 1, 1, 1, 1]
    """

    radius: float = 5.0
    min_points: int = 4

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_count("min_points", self.min_points)

    def __call__(self, points: np.ndarray, previous: np.ndarray) -> np.ndarray:
        from sklearn.cluster import DBSCAN as SklearnDBSCAN

        return np.asarray(
            SklearnDBSCAN(eps=self.radius, min_samples=self.min_points).fit_predict(points)
        )


@dataclass(frozen=True)
class AnyClusterer:
    """Any scikit-learn clusterer with ``fit_predict``; it is cloned for each use.

    Example:
        >>> import numpy as np, advect as ad
        >>> from sklearn.cluster import AgglomerativeClustering
        >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> sorted(set(ad.AnyClusterer(AgglomerativeClustering(2))(points, np.zeros(4, dtype=int)).tolist()))
        [0, 1]
    """

    estimator: Any

    def __call__(self, points: np.ndarray, previous: np.ndarray) -> np.ndarray:
        from sklearn.base import clone

        estimator: Any = clone(self.estimator)
        return np.asarray(estimator.fit_predict(points))


def law_points(laws: Gaussians) -> np.ndarray:
    """Laws as points: the mean, then the deviations or the entries of S^½, so that distances
    resemble W₂.
    """
    covariance = laws.covariance
    diagonal = isinstance(covariance, Diagonal)
    spread = (
        covariance.deviations if diagonal else covariance.compressed.rows.reshape(len(laws), -1)
    )
    return torch.cat([laws.means.double(), spread.double()], dim=1).detach().cpu().numpy()


def relabel(laws: Gaussians, previous: Tensor, clustering: Clustering) -> Tensor:
    """New class positions for each sample: clusters of its laws, each named after the class most of
    it had before.

    Samples outside every cluster join the nearest one (or stay as they are if there is none). A
    cluster that no old class claims gets the next free position, so classes are born and die while
    survivors keep their places."""
    if not all(bool(torch.isfinite(part).all()) for part in (laws.means, *laws.covariance.parts())):
        return previous  # the flow has diverged, and says so at its next value
    points, before = law_points(laws), previous.cpu().numpy()
    found = np.asarray(clustering(points, before))
    codes = np.unique(found[found >= 0])
    if len(codes) == 0:
        return previous
    centres = np.stack([points[found == code].mean(axis=0) for code in codes])
    lost = np.flatnonzero(found < 0)
    if len(lost):
        distances = ((points[lost, None, :] - centres) ** 2).sum(axis=2)
        found = found.copy()
        found[lost] = codes[distances.argmin(axis=1)]
    return torch.as_tensor(_inherit_names(found, codes, before), device=previous.device)


def _inherit_names(found: np.ndarray, codes: np.ndarray, before: np.ndarray) -> np.ndarray:
    overlaps = sorted(
        (
            (int(((found == code) & (before == old)).sum()), int(code), int(old))
            for code in codes
            for old in np.unique(before)
        ),
        reverse=True,
    )
    names: dict[int, int] = {}
    for count, code, old in overlaps:
        if count and code not in names and old not in names.values():
            names[code] = old
    fresh = (
        position
        for position in range(int(before.max()) + len(codes) + 1)
        if position not in names.values()
    )
    taken = set(before.tolist())
    for code in codes.tolist():
        if code not in names:
            names[code] = next(position for position in fresh if position not in taken)
    return np.array([names[code] for code in found.tolist()], dtype=np.int64)

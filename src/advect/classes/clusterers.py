"""Clusterers as small frozen objects, which wrap scikit-learn's, and their names.

Each is a ``Clustering`` as in ``labels.py``, so it can serve a flow with variable labels too;
``running.py`` runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from advect._util.checks import check_count, check_known, check_non_negative
from advect.classes.clustering import DBSCAN, AnyClusterer, Clustering, KMeans
from advect.classes.graph import neighbor_graph
from advect.classes.running import Wrapped
from advect.errors import InputError


@dataclass(frozen=True)
class Ward(Wrapped):
    """Agglomerative clustering that adds least to the variance within clusters at each merger.

    Time and memory grow like n² (10 000 samples take 0.8 GB): above ``max_samples`` a random part
    is clustered and the rest joins its nearest neighbours.

    Args:
        n_clusters: how many; by default as many as ``pseudo_labels`` says.
        max_samples: the largest number of samples to cluster at once.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [0.1], [5.0], [5.1], [9.0]])
        >>> ad.pseudo_labels(data, ad.Ward(3)).codes.tolist()
        [0, 0, 1, 1, 2]
    """

    n_clusters: int | None = None
    max_samples: int = 10_000

    def fit(self, points: np.ndarray, k: int, seed: int) -> np.ndarray:
        from sklearn.cluster import AgglomerativeClustering

        return AgglomerativeClustering(k).fit_predict(points)


@dataclass(frozen=True)
class Spectral(Wrapped):
    """Spectral clustering of the graph that joins each sample to its nearest neighbours: clusters
    of any form.

    The first k eigenvectors of the graph give each sample a direction (Ng, Jordan and Weiss 2001);
    directions are joined by Ward's criterion, which found more of the true classes of four sets of
    images than k-means or a pivoted QR (docs/paper.md).

    Above ``max_samples`` a random part is clustered and the rest joins its nearest neighbours.

    Args:
        n_clusters: how many; by default as many as ``pseudo_labels`` says.
        neighbors: how many neighbours each sample is joined to; at most half as many as a cluster
            has in the mean.
        max_samples: the largest number of samples to cluster at once.

    Example:
        >>> import advect as ad
        >>> rings = ad.datasets.load("rings", n=300)
        >>> found = ad.pseudo_labels(rings, ad.Spectral(), target=rings)
        >>> ad.classes.clustering_accuracy(found, rings)
        1.0
    """

    n_clusters: int | None = None
    neighbors: int = 10
    max_samples: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("neighbors", self.neighbors)

    def fit(self, points: np.ndarray, k: int, seed: int) -> np.ndarray:
        from sklearn.cluster import AgglomerativeClustering
        from sklearn.manifold import spectral_embedding

        graph = neighbor_graph(points, max(1, min(self.neighbors, len(points) // (2 * k))))
        axes = spectral_embedding(graph, n_components=k, random_state=seed, drop_first=False)
        axes = axes / np.maximum(
            np.linalg.norm(axes, axis=1, keepdims=True), np.finfo(axes.dtype).tiny
        )
        return AgglomerativeClustering(k).fit_predict(axes)


@dataclass(frozen=True)
class GaussianMixture(Wrapped):
    """A mixture of Gaussians fitted by expectation maximisation from k-means; each sample goes to
    its likeliest component.

    Components that no sample prefers are left out. For images use it with an embedding: covariances
    of d² numbers need many more samples than d.

    Args:
        n_clusters: how many; by default as many as ``pseudo_labels`` says.
        covariance: ``"full"``, ``"tied"`` (one for all), ``"diag"`` or ``"spherical"``.
        ridge: what is added to variances, where the features' largest deviation from their mean is
            1.
        max_samples: the largest number of samples to fit at once; the rest joins its nearest
            neighbours.

    Example:
        >>> import advect as ad
        >>> data = ad.datasets.gaussians(60, classes=3)
        >>> ad.pseudo_labels(data, ad.GaussianMixture(3)).n_clusters
        3
    """

    n_clusters: int | None = None
    covariance: str = "full"
    ridge: float = 1e-6
    max_samples: int = 50_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("covariance", self.covariance, ("full", "tied", "diag", "spherical"))
        check_non_negative("ridge", self.ridge)

    def fit(self, points: np.ndarray, k: int, seed: int) -> np.ndarray:
        from sklearn.mixture import GaussianMixture as Mixture

        method = Mixture(
            k, covariance_type=self.covariance, reg_covar=self.ridge, random_state=seed
        )
        return method.fit_predict(points)


@dataclass(frozen=True)
class HDBSCAN(Wrapped):
    """Density-based clustering over all radii, which finds the number of clusters itself.

    Samples that it calls noise join the cluster of the nearest sample that has one. It suits few
    dimensions; images have too little density to speak of without an embedding.

    Args:
        min_cluster_size: smaller groups are no clusters.
        min_samples: neighbours that make a sample's surroundings dense; by default
            ``min_cluster_size``.
        max_samples: the largest number of samples to cluster at once; the rest joins its nearest
            neighbours.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [9.0]])
        >>> ad.pseudo_labels(data, ad.HDBSCAN(3)).codes.tolist()
        [1, 1, 1, 0, 0, 0, 0]
    """

    min_cluster_size: int = 25
    min_samples: int | None = None
    max_samples: int = 5_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("min_cluster_size", self.min_cluster_size, least=2)
        if self.min_samples is not None:
            check_count("min_samples", self.min_samples)

    def fit(self, points: np.ndarray, k: int, seed: int) -> np.ndarray:
        from sklearn.cluster import HDBSCAN as SklearnHDBSCAN

        n, d = points.shape
        for name in ("min_cluster_size", "min_samples"):
            if (getattr(self, name) or 0) > n:
                raise InputError(
                    f"{name} must be at most the number of samples, {n}",
                    getattr(self, name),
                    "Lower it.",
                )
        trees = "auto" if d <= 20 else "brute"  # trees of neighbours do not help in many dimensions
        method = SklearnHDBSCAN(
            min_cluster_size=self.min_cluster_size, min_samples=self.min_samples, algorithm=trees
        )
        return method.fit_predict(points)


CLUSTERERS: dict[str, Callable[[], Clustering]] = {
    "kmeans": KMeans,
    "ward": Ward,
    "mixture": GaussianMixture,
    "spectral": Spectral,
    "hdbscan": HDBSCAN,
    "dbscan": DBSCAN,
}


def as_clusterer(clusterer: Any) -> Clustering:
    """A clusterer by name, as it is, or a scikit-learn one wrapped; None is the default."""
    if clusterer is None:
        return Spectral()
    if isinstance(clusterer, str):
        check_known("clusterer", clusterer, CLUSTERERS)
        return CLUSTERERS[clusterer]()
    if (
        hasattr(clusterer, "fit_predict")
        and hasattr(clusterer, "get_params")
        and not isinstance(clusterer, type)
    ):
        return AnyClusterer(clusterer)
    if not callable(clusterer) or isinstance(clusterer, type):
        raise InputError(
            "a clusterer must be a name, an object such as ad.Ward() or a scikit-learn clusterer",
            repr(clusterer),
            f"Names: {', '.join(sorted(CLUSTERERS))}.",
        )
    return cast(Clustering, clusterer)

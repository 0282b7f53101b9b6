"""The clusterers, as small frozen objects over scikit-learn's, and the names that they go by.

Which to take: ``Spectral`` finds clusters of any form and most of the true classes of images;
``Ward`` and ``KMeans`` are quick and want round clusters; ``GaussianMixture`` long ones, in few
dimensions; ``HDBSCAN`` and ``DBSCAN`` find the number themselves, where density tells clusters
apart."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advect._util.checks import (
    check_count,
    check_known,
    check_methods,
    check_non_negative,
    check_positive,
)
from advect._util.query import made
from advect._util.registry import known
from advect.classes.clustering import Clusterer
from advect.classes.neighbor_graph import neighbor_graph
from advect.errors import InputError


@dataclass(frozen=True)
class KMeans(Clusterer):
    """k-means; in a flow it is started from the clusters before, so that it is quick and steady.

    Args:
        n_clusters: how many; by default as many as ``pseudo_labels`` says, or as there were before.

    Example:
        >>> import numpy as np, advect as ad
        >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> ad.KMeans(2)(points, np.zeros(4, dtype=int)).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
        True
    """

    n_clusters: int | None = None
    scale_free = True

    def __post_init__(self) -> None:
        self._check_options()

    def fit(self, points, k, seed, previous):
        from sklearn.cluster import KMeans as SklearnKMeans

        options: dict[str, Any] = {"n_init": 10, "random_state": seed}
        codes = [] if previous is None else np.unique(previous)
        if previous is not None and k == len(codes):
            centres = np.stack([points[previous == code].mean(axis=0) for code in codes])
            options = {"n_init": 1, "init": centres}
        return _quietly(SklearnKMeans(k, **options).fit_predict, points)


@dataclass(frozen=True)
class Ward(Clusterer):
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
    scale_free = True

    def __post_init__(self) -> None:
        self._check_options()

    def fit(self, points, k, seed, previous):
        from sklearn.cluster import AgglomerativeClustering

        return _quietly(AgglomerativeClustering(k).fit_predict, points)


@dataclass(frozen=True)
class Spectral(Clusterer):
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
    scale_free = True

    def __post_init__(self) -> None:
        self._check_options()
        check_count("neighbors", self.neighbors)

    def fit(self, points, k, seed, previous):
        from sklearn.cluster import AgglomerativeClustering
        from sklearn.manifold import spectral_embedding

        graph = neighbor_graph(points, max(1, min(self.neighbors, len(points) // (2 * k))))
        axes = _quietly(
            spectral_embedding, graph, n_components=k, random_state=seed, drop_first=False
        )
        axes = axes / np.maximum(
            np.linalg.norm(axes, axis=1, keepdims=True), np.finfo(axes.dtype).tiny
        )
        return _quietly(AgglomerativeClustering(k).fit_predict, axes)


@dataclass(frozen=True)
class GaussianMixture(Clusterer):
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
    scale_free = True

    def __post_init__(self) -> None:
        self._check_options()
        check_known("covariance", self.covariance, ("full", "tied", "diag", "spherical"))
        check_non_negative("ridge", self.ridge)

    def fit(self, points, k, seed, previous):
        from sklearn.mixture import GaussianMixture as Mixture

        method = Mixture(
            k, covariance_type=self.covariance, reg_covar=self.ridge, random_state=seed
        )
        return _quietly(method.fit_predict, points)


@dataclass(frozen=True)
class HDBSCAN(Clusterer):
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
    takes_number = False
    scale_free = True

    def __post_init__(self) -> None:
        self._check_options()
        check_count("min_cluster_size", self.min_cluster_size, least=2)
        if self.min_samples is not None:
            check_count("min_samples", self.min_samples)

    def fit(self, points, k, seed, previous):
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
        return _quietly(method.fit_predict, points)


@dataclass(frozen=True)
class DBSCAN(Clusterer):
    """Density-based clustering at one radius, which finds the number of clusters itself; the
    paper's radius 5 and 4 points by default.

    Args:
        radius: how far apart neighbours are at most, in units of the features.
        min_points: neighbours, itself included, that make a sample's surroundings dense.

    Example:
        >>> import numpy as np, advect as ad
        >>> points = np.array([[0.0], [1.0], [2.0], [3.0], [50.0], [51.0], [52.0], [53.0]])
        >>> ad.DBSCAN()(points, np.zeros(8, dtype=int)).tolist()
        [0, 0, 0, 0, 1, 1, 1, 1]
    """

    radius: float = 5.0
    min_points: int = 4
    takes_number = False

    def __post_init__(self) -> None:
        check_positive("radius", self.radius)
        check_count("min_points", self.min_points)

    def fit(self, points, k, seed, previous):
        from sklearn.cluster import DBSCAN as SklearnDBSCAN

        return SklearnDBSCAN(eps=self.radius, min_samples=self.min_points).fit_predict(points)


@dataclass(frozen=True)
class AnyClusterer(Clusterer):
    """Any scikit-learn clusterer with ``fit_predict``; it is cloned for each use.

    The number of clusters it has is kept unless another is asked for, which is set where it has an
    option ``n_clusters`` or ``n_components``.

    Example:
        >>> import numpy as np, advect as ad
        >>> from sklearn.cluster import AgglomerativeClustering
        >>> points = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> sorted(set(ad.AnyClusterer(AgglomerativeClustering(2))(points, np.zeros(4, dtype=int)).tolist()))
        [0, 1]
    """

    estimator: Any
    n_clusters: int | None = field(init=False, repr=False, compare=False)
    takes_number: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_methods(
            "a scikit-learn clusterer is an object with fit_predict",
            self.estimator,
            ["fit_predict"],
            "Pass for instance ad.AnyClusterer(sklearn.cluster.Birch()).",
        )
        number = self._options().get(self._number_option())
        object.__setattr__(self, "n_clusters", number if isinstance(number, int) else None)
        object.__setattr__(self, "takes_number", self._number_option() is not None)

    @property
    def needs_number(self) -> bool:
        return False

    @property
    def name(self) -> str:
        return type(self.estimator).__name__

    def fit(self, points, k, seed, previous):
        from sklearn.base import clone

        estimator: Any = clone(self.estimator, safe=False)
        options: dict[Any, Any] = {}
        if k and self.takes_number:
            options[self._number_option()] = k
        if self._options().get("random_state", 0) is None:
            options["random_state"] = seed
        return (estimator.set_params(**options) if options else estimator).fit_predict(points)

    def _options(self) -> dict[Any, Any]:
        return self.estimator.get_params() if hasattr(self.estimator, "get_params") else {}

    def _number_option(self) -> str | None:
        names = ("n_clusters", "n_components")
        return next((name for name in names if name in self._options()), None)


@dataclass(frozen=True)
class OwnFunction(Clusterer):
    """A function of the points and the clusters before (all 0 where there are none)."""

    function: Callable[[np.ndarray, np.ndarray], Any]
    takes_number = False

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def fit(self, points, k, seed, previous):
        before = np.zeros(len(points), dtype=np.int64) if previous is None else previous
        return self.function(points, before)


def _quietly(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Without warnings, of graphs in pieces and of few iterations: harmless here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


def as_clusterer(clusterer: Any) -> Clusterer:
    """A clusterer by name (``"ward?n_clusters=5"``) or as it is; a scikit-learn one or a function wrapped."""
    if isinstance(clusterer, Clusterer):
        return clusterer
    if isinstance(clusterer, str):
        return made("clustering", clusterer)
    if inspect.isclass(clusterer) or not (hasattr(clusterer, "fit_predict") or callable(clusterer)):
        raise InputError(
            "a clusterer must be a name, an object such as ad.Ward(), a scikit-learn clusterer or "
            "a function of points and the clusters before",
            repr(clusterer),
            f"Names: {', '.join(known('clustering'))}.",
        )
    return (AnyClusterer if hasattr(clusterer, "fit_predict") else OwnFunction)(clusterer)

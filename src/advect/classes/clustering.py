"""Clusters of points: scikit-learn clusterers, and "spectral", "kmeans" and "dbscan" by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from advect._util.checks import check_known
from advect._util.query import guess, split
from advect.classes.neighbor_graph import neighbor_graph
from advect.errors import InputError

NAMES = ("spectral", "kmeans", "dbscan")
_LARGEST = 10_000  # samples for spectral clustering; the others join their nearest neighbours
_NEIGHBORS = 10  # of each sample in the graph of spectral clustering
_VOTES = 5  # neighbours that decide for a sample that was not clustered


def as_clusterer(clusterer: Any) -> Any:
    """ "spectral" and "kmeans" as they are, otherwise an object with ``fit_predict``.

    A name may have options of the scikit-learn class: ``"dbscan?eps=3"``, ``"kmeans?n_clusters=5"``.

    Example:
        >>> as_clusterer("dbscan?eps=3")
        DBSCAN(eps=3, min_samples=4)
    """
    if clusterer is None:
        return "spectral"
    if isinstance(clusterer, str):
        name, _, query = clusterer.partition("?")
        check_known("clusterer", name, NAMES)
        options: dict[str, Any] = {
            key: guess(text) for key, text in split(query, clusterer).items()
        }
        if name != "dbscan" and not options:
            return name
        from sklearn.cluster import DBSCAN, KMeans, SpectralClustering

        paper: dict[str, Any] = {"eps": 5.0, "min_samples": 4} if name == "dbscan" else {}
        classes = {"dbscan": DBSCAN, "kmeans": KMeans, "spectral": SpectralClustering}
        try:
            return classes[name](**paper | options)
        except TypeError as error:
            remedy = f"See sklearn.cluster.{classes[name].__name__}."
            raise InputError("unknown option of a clusterer", error, remedy) from None
    if isinstance(clusterer, type) or not hasattr(clusterer, "fit_predict"):
        raise InputError(
            "a clusterer must be a name or an object with fit_predict",
            repr(clusterer),
            f"Pass {', '.join(map(repr, NAMES))} or a scikit-learn clusterer.",
        )
    return clusterer


def name_of(clusterer: Any) -> str:
    return clusterer if isinstance(clusterer, str) else type(clusterer).__name__


def number_option(clusterer: Any) -> str | None:
    """The parameter with the number of clusters; None if the clusterer finds it itself."""
    if isinstance(clusterer, str):
        return "n_clusters"
    return next(
        (name for name in ("n_clusters", "n_components") if name in _options(clusterer)), None
    )


def clusters(
    clusterer: Any,
    points: np.ndarray,
    previous: np.ndarray | None = None,
    n_clusters: int | None = None,
    seed: int = 0,
) -> np.ndarray:
    """The cluster of each point (n, p), (n,) int64, −1 for noise.

    Args:
        previous: clusters of these points before, in a flow. k-means starts from them, and there
            will be as many, or as many as there are different points.
        n_clusters: overrides the number of the clusterer.
        seed: seed of clusterers without a random state.
    """
    clusterer = as_clusterer(clusterer)
    by_name, option = isinstance(clusterer, str), number_option(clusterer)
    if by_name:
        points = of_order_one(points)
    k = n_clusters
    if k is None and by_name:
        k = None if previous is None else len(np.unique(previous))
    elif k is None and type(_options(clusterer).get(option)) is int:
        k = _options(clusterer)[option]
    if k is not None and option is not None:
        distinct = len(np.unique(points, axis=0))
        if k > distinct and previous is None:
            raise InputError(
                f"n_clusters must be at most the number of different samples, {distinct}",
                k,
                "Lower it.",
            )
        k = min(k, distinct)
        if k == 1:
            return np.zeros(len(points), dtype=np.int64)
        if k == distinct:
            return np.unique(points, axis=0, return_inverse=True)[1].reshape(-1)
    if not by_name:
        return _checked(lambda x: _fit_predict(clusterer, x, {option: k}, seed), points)
    if clusterer == "kmeans":
        return _checked(lambda x: _kmeans(x, k or 2, seed, previous), points)
    fit = lambda x: _checked(lambda x: _spectral(x, k or 2, seed), x)
    if len(points) <= _LARGEST:
        return fit(points)
    draws = np.random.default_rng(seed)
    part = np.sort(draws.choice(len(points), _LARGEST, replace=False))
    codes = np.full(len(points), -1)
    codes[part] = fit(points[part])
    return join_nearest(points, codes, _VOTES)


def _options(clusterer: Any) -> dict[Any, Any]:
    return clusterer.get_params() if hasattr(clusterer, "get_params") else {}


def _fit_predict(clusterer: Any, points: np.ndarray, number: dict[Any, Any], seed: int) -> Any:
    from sklearn.base import clone

    options = {name: value for name, value in number.items() if name and value}
    if _options(clusterer).get("random_state", 0) is None:
        options["random_state"] = seed % 2**32
    copy: Any = clone(clusterer, safe=False)
    return (copy.set_params(**options) if options else copy).fit_predict(points)


def _kmeans(points: np.ndarray, k: int, seed: int, previous: np.ndarray | None) -> Any:
    from sklearn.cluster import KMeans

    names = [] if previous is None else np.unique(previous)
    options: dict[str, Any] = {"n_init": 10, "random_state": seed % 2**32}
    if len(names) == k:
        centres = np.stack([points[previous == name].mean(axis=0) for name in names])
        options = {"n_init": 1, "init": centres}
    return KMeans(k, **options).fit_predict(points)


def _spectral(points: np.ndarray, k: int, seed: int) -> Any:
    """Spectral clustering of the graph of nearest neighbours (Ng, Jordan and Weiss 2001).

    The directions of the first k eigenvectors are joined by Ward's criterion instead of k-means, which
    recovers more of the true classes of images (docs/paper.md)."""
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.manifold import spectral_embedding

    graph = neighbor_graph(points, max(1, min(_NEIGHBORS, len(points) // (2 * k))))
    seed = seed % 2**32
    axes = spectral_embedding(graph, n_components=k, random_state=seed, drop_first=False)
    norms = np.linalg.norm(axes, axis=1, keepdims=True)
    return AgglomerativeClustering(k).fit_predict(axes / np.maximum(norms, np.finfo(float).tiny))


def _checked(fit: Callable[[np.ndarray], Any], points: np.ndarray) -> np.ndarray:
    """One whole number for each point, without warnings about graphs and iterations."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            codes = np.asarray(fit(points))
    except InputError:
        raise
    except ValueError as error:
        raise InputError("the clusterer failed", error, "Change its options.") from error
    if codes.shape != (len(points),) or codes.dtype.kind not in "biu":
        raise InputError(
            f"a clusterer must return a whole number for each of the {len(points)} samples",
            f"{codes.dtype} of shape {codes.shape}",
            "Check fit_predict.",
        )
    return codes.astype(np.int64)


def of_order_one(points: np.ndarray) -> np.ndarray:
    """Points shifted and scaled to [−1, 1] around 0, so that squares neither overflow nor vanish."""
    points = points / (np.abs(points).max() or 1.0)
    points = points - points.mean(axis=0)
    return points / (np.abs(points).max() or 1.0)


def join_nearest(points: np.ndarray, codes: np.ndarray, neighbors: int) -> np.ndarray:
    """Points without a cluster, −1, join that of most of their nearest neighbours with one."""
    from sklearn.neighbors import KNeighborsClassifier

    noise = codes < 0
    if not noise.any() or noise.all():
        return codes
    near = KNeighborsClassifier(min(neighbors, int((~noise).sum())))
    codes = codes.copy()
    codes[noise] = near.fit(points[~noise], codes[~noise]).predict(points[noise])
    return codes

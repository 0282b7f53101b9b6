"""Clusters of points, the graph of nearest neighbours, and discrete labels from label laws that move
one by one (paper, section 5.1 and appendix C).

A clusterer is one of scikit-learn, or "spectral", "kmeans" or "dbscan" by name."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import InputError, check_known, check_methods, refuse_if
from advect._util.query import guess, split
from advect.data.laws import Gaussians

NAMES = ("spectral", "kmeans", "dbscan")
_MAX_SPECTRAL = 10_000  # samples for spectral clustering; the others join their nearest neighbours
_NEIGHBORS = 10  # of each sample in the graph of spectral clustering
_SCALE_NEIGHBOR = 7  # the neighbour whose distance is the scale of a point
_LEAST = 1e-3  # smallest weight of an edge
_VOTES = 5  # neighbours that decide for a sample that was not clustered


def as_clusterer(clusterer: Any) -> Any:
    """An object with ``fit_predict``, from its name if it is given by name.

    "dbscan" may have options of the scikit-learn class.

    Example:
        >>> as_clusterer("dbscan?eps=3")
        DBSCAN(eps=3, min_samples=4)
    """
    if not isinstance(clusterer, str):
        check_methods(
            "a clusterer must be a name or an object with fit_predict",
            clusterer,
            ("fit_predict",),
            f"Pass {', '.join(map(repr, NAMES))} or a scikit-learn clusterer.",
        )
        return clusterer
    from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans

    name, _, query = clusterer.partition("?")
    check_known("clusterer", name if name == "dbscan" else clusterer, NAMES)
    if clusterer == "spectral":
        return AgglomerativeClustering()  # of spectral coordinates
    if clusterer == "kmeans":
        return KMeans().set_params(n_init=10)
    options: dict[str, Any] = {key: guess(text) for key, text in split(query, clusterer).items()}
    try:
        return DBSCAN(**{"eps": 5.0, "min_samples": 4} | options)
    except TypeError as error:
        raise InputError(
            "unknown option of a clusterer", error, "See the options of sklearn.cluster.DBSCAN."
        ) from None


def number_option(clusterer: Any) -> str | None:
    """The parameter with the number of clusters; None if the clusterer finds it itself."""
    options = _parameters(as_clusterer(clusterer))
    return next((name for name in ("n_clusters", "n_components") if name in options), None)


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
    estimator, option = as_clusterer(clusterer), number_option(clusterer)
    k: Any = n_clusters
    if clusterer in ("spectral", "kmeans"):
        points = of_order_one(points)
        k = len(np.unique(np.asarray(previous))) if k is None else k
    options: dict[str, Any] = {}
    rows, inputs = np.arange(len(points)), points
    if option is not None and k is None:
        k = _parameters(estimator)[option]
    if option is not None and k is not None:
        distinct, codes = np.unique(points, axis=0, return_inverse=True)
        refuse_if(
            k > len(distinct) and previous is None,
            f"n_clusters must be at most the number of different samples, {len(distinct)}",
            k,
            "Lower it.",
        )
        k = min(k, len(distinct))
        options = {option: k}
        if k in (1, len(distinct)):
            return codes.reshape(-1) if k > 1 else np.zeros(len(points), dtype=np.int64)
    if clusterer == "kmeans" and previous is not None and len(names := np.unique(previous)) == k:
        centres = np.stack([points[previous == name].mean(axis=0) for name in names])
        options |= {"n_init": 1, "init": centres}
    if clusterer == "spectral" and k is not None:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:_MAX_SPECTRAL])
        inputs = spectral_coordinates(points[rows], k, seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about iterations
            found = np.asarray(seeded(estimator, seed, **options).fit_predict(inputs))
    except ValueError as error:
        raise InputError("the clusterer failed", error, "Change its options.") from error
    refuse_if(
        found.dtype.kind not in "biu" or found.shape != rows.shape,
        f"a clusterer must return a whole number for each of the {len(rows)} samples",
        f"{found.dtype} of shape {found.shape}",
        "Check fit_predict.",
    )
    codes = np.full(len(points), -1)
    codes[rows] = found
    return codes if len(rows) == len(points) else join_nearest(points, codes, _VOTES)


def _parameters(estimator: Any) -> dict[Any, Any]:
    return estimator.get_params() if hasattr(estimator, "get_params") else {}


def seeded(estimator: Any, seed: int, **options: Any) -> Any:
    """A clone of a scikit-learn estimator with these options, and this seed if it has none."""
    from sklearn.base import clone

    if _parameters(estimator).get("random_state", 0) is None:
        options["random_state"] = seed % 2**32
    copy: Any = clone(estimator, safe=False)
    return copy.set_params(**options) if options else copy


def spectral_coordinates(points: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Directions of the first k eigenvectors of the graph of nearest neighbours (Ng, Jordan and Weiss
    2001). Ward's criterion recovers more of the true classes of images from them than k-means
    (docs/paper.md).
    """
    from sklearn.manifold import spectral_embedding

    graph = neighbor_graph(points, max(1, min(_NEIGHBORS, len(points) // (2 * k))))
    options: dict[str, Any] = {"random_state": seed % 2**32, "drop_first": False}
    axes = spectral_embedding(graph, n_components=k, **options)
    return axes / np.linalg.norm(axes, axis=1, keepdims=True).clip(np.finfo(float).tiny)


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


def neighbor_graph(points: np.ndarray, neighbors: int) -> Any:
    """A symmetric sparse (n, n) matrix with weights exp(−d² / (s_i s_j)) of neighbours, and half of
    it for neighbours of one side, with s the distance to the seventh neighbour (Zelnik-Manor and
    Perona, Self-tuning spectral clustering, 2004).

    Each component is joined to the nearest point outside, with the smallest weight, until there is
    one component.
    """
    from scipy.sparse.csgraph import connected_components
    from sklearn.neighbors import kneighbors_graph

    count = min(neighbors, len(points) - 1)
    graph: Any = kneighbors_graph(points, count, mode="distance")
    distances = graph.data.reshape(-1, count)  # nearest first
    scale = distances[:, min(_SCALE_NEIGHBOR, count) - 1]
    scale = np.maximum(scale, _LEAST * distances.mean() or 1.0)  # equal points have scale 0
    exponents = distances**2 / (scale[:, None] * scale[graph.indices].reshape(distances.shape))
    graph.data = np.maximum(np.exp(-exponents), _LEAST).reshape(-1)
    graph = ((graph + graph.T) / 2).tocsr()
    while (component := connected_components(graph, directed=False)[1]).any():
        ends = _bridges(points, component)
        bridges = type(graph)((np.full(len(ends[0]), _LEAST / 2), ends), shape=graph.shape)
        graph = graph.maximum(bridges.maximum(bridges.T)).tocsr()
    return graph


def _bridges(points: np.ndarray, component: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each component but the largest, the ends of the shortest edge out of it."""
    from sklearn.metrics import pairwise_distances_argmin_min

    names, counts = np.unique(component, return_counts=True)
    ends = []
    for name in np.delete(names, counts.argmax()):
        inside, outside = (np.flatnonzero((component == name) == side) for side in (True, False))
        nearest, distances = pairwise_distances_argmin_min(points[inside], points[outside])
        row = distances.argmin()
        ends.append((inside[row], outside[nearest[row]]))
    first, second = np.array(ends).T
    return first, second


def law_points(laws: Gaussians) -> np.ndarray:
    """Laws as points whose distances resemble W₂: the mean, then the deviations or S^½."""
    covariance = laws.covariance
    spread = covariance.scales() if covariance.is_diagonal else covariance.compressed.rows
    parts = laws.means.double(), spread.double().reshape(len(laws), -1)
    return torch.cat(parts, dim=1).detach().cpu().numpy()


def relabel(laws: Gaussians, previous: Tensor, clustering: Any) -> Tensor:
    """The class position of each sample: clusters of the laws, named after the previous classes.

    A cluster gets the class that most of its samples had. Noise joins the nearest cluster. A cluster
    that no previous class claims gets the next free position, so classes can appear and vanish."""
    if not all(bool(torch.isfinite(part).all()) for part in laws.tensors().values()):
        return previous  # the flow has diverged, which its next value shows
    points, before = law_points(laws), previous.cpu().numpy()
    members = join_nearest(points, clusters(clustering, points, before), 1)
    if (members < 0).all():
        return previous
    overlaps = Counter(zip(members.tolist(), before.tolist(), strict=True))
    names: dict[int, int] = {}
    for code, old in sorted(overlaps, key=lambda pair: (overlaps[pair], pair), reverse=True):
        if code not in names and old not in names.values():
            names[code] = old
    free = (position for position in itertools.count() if position not in before)
    for code in np.unique(members).tolist():
        if code not in names:
            names[code] = next(free)
    positions = [names[code] for code in members.tolist()]
    return torch.tensor(positions, dtype=torch.int64, device=previous.device)

"""Pseudo-labels for data without labels: its clusters (paper, section 5.3).

Clusters are 0 … k − 1, the largest first, and no sample is left out as noise. ``alignment`` names
them after the classes of another dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, check_kind
from advect.classes.clusterers import as_clusterer
from advect.classes.clustering import Clusterer, count_distinct, join_nearest, of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_SCORED = 2000  # samples on which numbers of clusters are compared
_MOST = 20  # clusters that are looked for


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Clusters as labels; made by ``pseudo_labels``.

    Attributes:
        dataset: the same samples and weights, labeled by their clusters 0 … k − 1, the largest
            first.
        codes: the cluster of each sample, (n,) int64.
        n_clusters: k.
        method: the clusterer, by name.
        scores: the mean silhouette of each number of clusters that was compared; empty when the
            number was known.

    Example:
        >>> import advect as ad
        >>> ad.pseudo_labels(ad.LabeledDataset([[0.0], [0.1], [5.0]]), n_clusters=2)
        PseudoLabels(n=3, n_clusters=2, method='Spectral')
    """

    dataset: LabeledDataset
    codes: np.ndarray
    n_clusters: int
    method: str
    scores: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"PseudoLabels(n={len(self)}, n_clusters={self.n_clusters}, method={self.method!r})"


def pseudo_labels(
    data: LabeledDataset,
    clusterer: Any = None,
    *,
    n_clusters: int | Iterable[int] | None = None,
    target: LabeledDataset | None = None,
    embedding: Embedded = "auto",
    seed: int = 0,
    doubt: bool = False,
) -> PseudoLabels:
    """Labels for data that has none: the clusters of its features. Labels and weights that it has
    are not looked at.

    Args:
        data: the samples.
        clusterer: ``"spectral"`` (the default), ``"ward"``, ``"kmeans"`` (the paper's choice),
            ``"mixture"``, ``"hdbscan"``, ``"dbscan"``; one of the objects ``Ward``, ``KMeans``,
            ``Spectral``, ``GaussianMixture``, ``HDBSCAN``, ``DBSCAN`` with options; or any
            scikit-learn clusterer.
        n_clusters: how many clusters; or numbers to compare, of which the one with the best mean
            silhouette is taken. None takes the number of ``target``'s classes, or the clusterer's
            own, or compares 2 … 20.
        target: a dataset with as many classes as there should be clusters; those without samples do
            not count.
        embedding: what to cluster instead of the features: their first so many principal components
            (a whole number), as many as make up a share of the variance (between 0 and 1), a
            function of the samples in their shape, a torch module (asked in evaluation mode), the
            path of an ONNX file, or an object with ``fit_transform``;
            ``"gradients"`` are the ``classes.OrientedGradients`` of images, ``"standardized"``
            columns of deviation 1. None clusters the features, ``"auto"`` 50 principal components
            where there are more features and samples than that. The dataset that comes out has its
            own features.
        seed: of everything random.
        doubt: give each sample probabilities of the clusters too (``dataset.probabilities``): the
            shares of clusters among its ten nearest neighbours and itself. Samples inside a cluster
            have no doubt, those between two are of both.

    Raises:
        InputError: unknown clusterer; fewer different samples than clusters; a number of clusters
            for a clusterer that finds it itself; no clusters at all.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=500)
        >>> found = ad.pseudo_labels(digits, target=digits, embedding=0.9)
        >>> found
        PseudoLabels(n=500, n_clusters=10, method='Spectral')
        >>> ad.classes.clustering_accuracy(found, digits) > 0.7       # by the true labels, which it did not see
        True
    """
    clusterer = as_clusterer("spectral" if clusterer is None else clusterer)
    seed = check_count("seed", seed, least=0)
    k, candidates = _asked(n_clusters, target)
    if (k is not None or candidates is not None) and not clusterer.takes_number:
        raise InputError(
            f"{clusterer.name} finds the number of clusters itself",
            f"n_clusters={k or candidates}",
            "Leave n_clusters and target out, or take one that is given the number, such as "
            "ad.Ward().",
        )
    points = points_of(data, embedding, seed)
    scores: dict[int, float] = {}
    if candidates is not None or (k is None and clusterer.needs_number):
        scores = _silhouettes(clusterer, points, candidates, seed)
        k = (
            max(scores, key=lambda number: scores[number])
            if scores
            else len(np.unique(points, axis=0))
        )
    codes = _clusters(clusterer, points, k, seed)
    number = int(codes.max()) + 1
    y = torch.as_tensor(codes, device=data.x.device)
    dataset = data.replace(y=y, classes=tuple(range(number)), law=None, law_index=None)
    if doubt:
        shares = torch.as_tensor(neighbor_shares(points, codes), device=data.x.device)
        dataset = dataset.replace(y=y, probabilities=shares)
    return PseudoLabels(dataset, codes, number, clusterer.name, scores)


def _asked(n_clusters: Any, target: LabeledDataset | None) -> tuple[int | None, list[int] | None]:
    """The number of clusters, or the numbers to compare, as far as the user says."""
    if target is not None:
        remedy = "Pass n_clusters for a number."
        check_kind("target must be a LabeledDataset", target, LabeledDataset, remedy)
        if n_clusters is not None:
            raise InputError(
                "the number of clusters is n_clusters or that of target's classes",
                "both",
                "Pass one of them.",
            )
        k = sum(count > 0 for count in target.counts.values())
        if k == 0:
            raise InputError(
                "target must have labels to say how many clusters there should be",
                "none",
                "Pass n_clusters.",
            )
        return k, None
    if n_clusters is None:
        return None, None
    if isinstance(n_clusters, str) or not isinstance(n_clusters, Iterable):
        return check_count("n_clusters", n_clusters), None
    candidates = [check_count("n_clusters", k, least=2) for k in n_clusters]
    if not candidates:
        raise InputError(
            "numbers of clusters to compare must not be empty",
            "none",
            "Pass for instance range(2, 13).",
        )
    return None, candidates


def _clusters(clusterer: Clusterer, points: np.ndarray, k: int | None, seed: int) -> np.ndarray:
    """The cluster of each point without gaps and without noise, which joins the nearest sample."""
    codes = clusterer(points, n_clusters=k, seed=seed)
    if (codes < 0).all():
        raise InputError(
            "the clusterer must find at least one cluster",
            f"noise alone, of {len(codes)} samples",
            "Ask for smaller or less dense clusters, or take one that is given their number, such "
            "as ad.Ward().",
        )
    return renumbered(join_nearest(of_order_one(points), codes, 1))


def _silhouettes(
    clusterer: Clusterer, points: np.ndarray, candidates: Sequence[int] | None, seed: int
) -> dict[int, float]:
    """The mean silhouette of each number of clusters, on at most 2000 points drawn at random; by
    default of 2 … 20.
    """
    from sklearn.metrics import pairwise_distances, silhouette_score

    if len(points) > _SCORED:
        points = points[
            np.sort(np.random.default_rng(seed).choice(len(points), _SCORED, replace=False))
        ]
    distinct = count_distinct(
        points, max(candidates, default=0) if candidates is not None else _MOST
    )
    limit = min(distinct, len(points) - 1)
    if candidates is None:
        candidates = range(2, min(limit, _MOST) + 1)
    for k in candidates:
        if not 2 <= k <= limit:
            raise InputError(
                f"numbers of clusters to compare must lie between 2 and {limit}, given "
                f"{len(points)} samples for it",
                k,
                "A single number is taken as it is.",
            )
    distances = pairwise_distances(of_order_one(points))
    np.fill_diagonal(distances, 0.0)
    scores = {}
    for k in candidates:
        codes = _clusters(clusterer, points, k, seed)
        scores[k] = (
            float(silhouette_score(distances, codes, metric="precomputed")) if codes.any() else -1.0
        )
    return scores


def neighbor_shares(points: np.ndarray, codes: np.ndarray, neighbors: int = 10) -> np.ndarray:
    """Shares of clusters among each point and its nearest neighbours, (n, k).

    Example:
        >>> neighbor_shares(np.array([[0.0], [1.0], [2.5], [3.0]]), np.array([0, 0, 1, 1]), 2).round(2).tolist()
        [[0.67, 0.33], [0.67, 0.33], [0.33, 0.67], [0.33, 0.67]]
    """
    from sklearn.neighbors import NearestNeighbors

    own = np.eye(int(codes.max()) + 1)[codes]
    count = min(neighbors, len(points) - 1)
    if count < 1:
        return own
    near = (
        NearestNeighbors(n_neighbors=count)
        .fit(of_order_one(points))
        .kneighbors(return_distance=False)
    )
    return (own + own[near].sum(axis=1)) / (count + 1)


def renumbered(codes: np.ndarray) -> np.ndarray:
    """The same clusters as 0 … k − 1: the largest first, of equal ones that with the first
    sample.
    """
    _, first, inverse, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.lexsort((first, -counts))] = np.arange(len(counts))
    return rank[inverse]

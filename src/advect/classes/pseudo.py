"""Pseudo-labels: the clusters of data without labels (paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, check_kind
from advect._util.result import Result, Table
from advect.classes.clustering import (
    as_clusterer,
    clusters,
    join_nearest,
    name_of,
    number_option,
    of_order_one,
)
from advect.classes.embedding import Embedded, points_of
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_SCORED = 2000  # samples on which numbers of clusters are compared
_LARGEST = 20  # number of clusters that is tried


@dataclass(frozen=True, eq=False, repr=False)
class PseudoLabels(Result):
    """Clusters as labels, the result of ``pseudo_labels``.

    Attributes:
        dataset: the samples and weights, labeled by clusters 0 … k − 1, the largest first.
        codes: the cluster of each sample, (n,) int64.
        n_clusters: k.
        method: name of the clusterer.
        scores: mean silhouette of each number of clusters that was compared.
    """

    dataset: LabeledDataset
    codes: np.ndarray
    n_clusters: int
    method: str
    scores: dict[int, float] = field(default_factory=dict)
    title = "Pseudo-labels"

    def __len__(self) -> int:
        return len(self.codes)

    def _summary(self) -> dict[str, Any]:
        return {"samples": len(self), "clusters": self.n_clusters, "method": self.method}

    def _tables(self) -> list[Table]:
        sizes = np.bincount(self.codes).tolist()
        tables = [Table("Clusters", ("cluster", "samples"), list(enumerate(sizes)))]
        if self.scores:
            rows = list(self.scores.items())
            tables.append(Table("Silhouettes", ("clusters", "mean silhouette"), rows))
        return tables

    def __repr__(self) -> str:
        return f"PseudoLabels(n={len(self)}, n_clusters={self.n_clusters}, method={self.method!r})"


def pseudo_labels(
    data: LabeledDataset,
    clusterer: Any = "spectral",
    *,
    n_clusters: int | Iterable[int] | None = None,
    target: LabeledDataset | None = None,
    embedding: Embedded = "auto",
    seed: int = 0,
    soft: bool = False,
) -> PseudoLabels:
    """Label data by the clusters of its features. Its own labels and weights are ignored.

    Use it before a flow or a distance if one dataset has no labels; ``name_clusters`` gives the
    clusters the names of another dataset's classes. Noise joins the nearest cluster.

    Args:
        data: the samples.
        clusterer: ``"spectral"``, ``"kmeans"`` (as in the paper), ``"dbscan"`` or any scikit-learn
            clusterer. Spectral clustering finds clusters of any shape; above 10,000 samples it is
            applied to a random subset, and the others join their nearest neighbours.
        n_clusters: number of clusters, or numbers to compare by their mean silhouette. By default
            the number of classes of ``target``, or that of the clusterer, or the best of 2 … 20.
        target: a dataset with as many classes as there should be clusters.
        embedding: points to cluster instead of the features: a number of principal components, a
            share of the variance (between 0 and 1), a function of the samples, a torch module, the
            path of an ONNX file, or an object with ``fit_transform``; ``"gradients"`` for
            histograms of oriented gradients of images, ``"standardized"`` for columns of deviation
            1; None for the features; ``"auto"`` for 50 principal components if there are more
            features and samples.
        seed: seed of clusterer and embedding.
        soft: also give each sample probabilities of the clusters: their proportions among its ten
            nearest neighbours and itself.

    Returns:
        ``PseudoLabels``: the labeled dataset, the clusters and the compared silhouettes.

    Raises:
        InputError: an unknown clusterer, more clusters than different samples, a number of clusters
            for a clusterer that finds it itself, or noise alone.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=500)
        >>> found = ad.pseudo_labels(digits, target=digits, embedding=0.9)
        >>> found
        PseudoLabels(n=500, n_clusters=10, method='spectral')
        >>> from advect.classes.naming import clustering_accuracy
        >>> clustering_accuracy(found, digits) > 0.7       # by the true labels
        True
    """
    clusterer = as_clusterer(clusterer)
    seed = check_count("seed", seed, least=0)
    k, candidates = _numbers(n_clusters, target)
    if (k is not None or candidates is not None) and number_option(clusterer) is None:
        raise InputError(
            f"{name_of(clusterer)} finds the number of clusters itself",
            f"n_clusters={k or candidates}",
            "Leave n_clusters and target out, or use another clusterer.",
        )
    points = points_of(data, embedding, seed)
    scores: dict[int, float] = {}
    if candidates is not None or (k is None and isinstance(clusterer, str)):
        scores = _silhouettes(clusterer, points, candidates, seed)
        k = max(scores, key=lambda number: scores[number], default=len(np.unique(points, axis=0)))
    codes = _clusters(clusterer, points, k, seed)
    number = int(codes.max()) + 1
    y = torch.as_tensor(codes, device=data.x.device)
    dataset = data.replace(y=y, classes=tuple(range(number)), law=None, law_index=None)
    if soft:
        shares = torch.as_tensor(neighbor_shares(points, codes), device=data.x.device)
        dataset = dataset.replace(y=y, probabilities=shares)
    return PseudoLabels(dataset, codes, number, name_of(clusterer), scores)


def _numbers(n_clusters: Any, target: LabeledDataset | None) -> tuple[int | None, list[int] | None]:
    """The number of clusters, or the numbers to compare, as far as they are given."""
    if target is not None:
        remedy = "Pass n_clusters for a number."
        check_kind("target must be a LabeledDataset", target, LabeledDataset, remedy)
        k = sum(count > 0 for count in target.counts.values())
        if n_clusters is not None or k == 0:
            raise InputError(
                "the number of clusters is n_clusters, or that of the classes of target",
                "both" if k else "a target without labels",
                "Pass one of them.",
            )
        return k, None
    if n_clusters is None:
        return None, None
    if isinstance(n_clusters, str) or not isinstance(n_clusters, Iterable):
        return check_count("n_clusters", n_clusters), None
    candidates = [check_count("n_clusters", k, least=2) for k in n_clusters]
    if not candidates:
        raise InputError("n_clusters must not be empty", "[]", "Pass for instance range(2, 13).")
    return None, candidates


def _clusters(clusterer: Any, points: np.ndarray, k: int | None, seed: int) -> np.ndarray:
    """Clusters 0 … k − 1 by size; noise joins the nearest sample."""
    codes = clusters(clusterer, points, n_clusters=k, seed=seed)
    if (codes < 0).all():
        raise InputError(
            "the clusterer must find at least one cluster",
            f"noise alone, of {len(codes)} samples",
            'Change its options, or use clusterer="spectral".',
        )
    return renumbered(join_nearest(of_order_one(points), codes, 1))


def _silhouettes(
    clusterer: Any, points: np.ndarray, candidates: Sequence[int] | None, seed: int
) -> dict[int, float]:
    """The mean silhouette of each number of clusters, on at most 2000 random points."""
    from sklearn.metrics import pairwise_distances, silhouette_score

    if len(points) > _SCORED:
        draws = np.random.default_rng(seed)
        points = points[np.sort(draws.choice(len(points), _SCORED, replace=False))]
    limit = min(len(np.unique(points, axis=0)), len(points) - 1)
    if candidates is None:
        candidates = range(2, min(limit, _LARGEST) + 1)
    elif max(candidates) > limit:
        raise InputError(
            f"n_clusters to compare must be between 2 and {limit}", max(candidates), "Lower it."
        )
    distances = pairwise_distances(of_order_one(points))
    np.fill_diagonal(distances, 0.0)
    scores = {}
    for k in candidates:
        codes = _clusters(clusterer, points, k, seed)
        several = len(np.unique(codes)) > 1
        scores[k] = silhouette_score(distances, codes, metric="precomputed") if several else -1.0
    return {k: float(score) for k, score in scores.items()}


def neighbor_shares(points: np.ndarray, codes: np.ndarray, neighbors: int = 10) -> np.ndarray:
    """Proportions of clusters among each point and its nearest neighbours, (n, k).

    Example:
        >>> neighbor_shares(np.array([[0.0], [1.0], [2.5], [3.0]]), np.array([0, 0, 1, 1]), 2).round(2).tolist()
        [[0.67, 0.33], [0.67, 0.33], [0.33, 0.67], [0.33, 0.67]]
    """
    from sklearn.neighbors import NearestNeighbors

    one_hot = np.eye(int(codes.max()) + 1)[codes]
    count = min(neighbors, len(points) - 1)
    if count < 1:
        return one_hot
    tree = NearestNeighbors(n_neighbors=count).fit(of_order_one(points))
    near = tree.kneighbors(return_distance=False)
    return (one_hot + one_hot[near].sum(axis=1)) / (count + 1)


def renumbered(codes: np.ndarray) -> np.ndarray:
    """The same clusters as 0 … k − 1, the largest first, ties in order of appearance."""
    _, first, inverse, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.lexsort((first, -counts))] = np.arange(len(counts))
    return rank[inverse]

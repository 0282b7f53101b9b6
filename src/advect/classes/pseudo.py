"""Labels for data without labels: clusters as pseudo-labels (paper, section 5.3), and label spreading.

Label spreading (Zhou et al., Learning with local and global consistency, 2004) works on the graph of
nearest neighbours. F solves (I − α S) F = Y with S = D^−½ W D^−½, for edge weights W and their row sums
D. The scores of each class are divided by their sum, so that classes with more labels do not dominate,
and rows are normalised to sum to one. scikit-learn's ``LabelSpreading`` has neither these class weights
nor local scales, and finds fewer labels of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from advect._util import check_count, check_positive, refuse_if
from advect.classes.clustering import (
    clusters,
    join_nearest,
    neighbor_graph,
    number_option,
    of_order_one,
)
from advect.classes.embedding import Embedded, points_of
from advect.data.dataset import LabeledDataset
from advect.transport.transport import check_dataset

_NEIGHBORS = 10  # samples whose clusters give the soft labels of a sample
_REACHED = 1e-6  # of the highest score; far above the error of conjugate gradients


def pseudo_labels(
    data: LabeledDataset,
    clusterer: Any = "spectral",
    *,
    n_clusters: int | None = None,
    target: LabeledDataset | None = None,
    embedding: Embedded = "auto",
    seed: int = 0,
    soft: bool = False,
) -> LabeledDataset:
    """Label data by the clusters of its features. Its own labels and weights are ignored.

    Use it before a flow or a distance if one dataset has no labels. ``ClassMatching`` finds the class
    of another dataset that each cluster corresponds to. Noise joins the nearest cluster.

    Args:
        data: the samples.
        clusterer: ``"spectral"``, ``"kmeans"`` (as in the paper), ``"dbscan"`` or any scikit-learn
            clusterer. Spectral clustering finds clusters of any shape; above 10,000 samples it is
            applied to a random subset, and the others join their nearest neighbours.
        n_clusters: number of clusters; by default the number of classes of ``target``, or that of a
            scikit-learn clusterer.
        target: a dataset with as many classes as there should be clusters.
        embedding: points to cluster instead of the features: a number of principal components, a
            share of the variance (between 0 and 1), a function of the samples, a torch module, or
            an object with ``fit_transform``; ``"gradients"`` for histograms of oriented gradients
            of images, ``"standardized"`` for columns of deviation 1; None for the features;
            ``"auto"`` for 50 principal components if there are more features and samples.
        seed: seed of clusterer and embedding.
        soft: also give each sample probabilities of the clusters: their proportions among its ten
            nearest neighbours and itself.

    Returns:
        The samples and weights, labeled by clusters 0 … k − 1, the largest first.

    Raises:
        InputError: an unknown clusterer, no number of clusters or more than different samples, a
            number for a clusterer that finds it itself, or noise alone.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=500)
        >>> found = ad.pseudo_labels(digits, target=digits, embedding=0.9)
        >>> found.classes
        (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
        >>> from sklearn.metrics import adjusted_rand_score
        >>> adjusted_rand_score(digits.labels, found.labels) > 0.5       # by the true labels
        True
    """
    number = number_option(clusterer)
    seed = check_count("seed", seed, least=0)
    k = None if n_clusters is None else check_count("n_clusters", n_clusters)
    if target is not None:
        k = sum(count > 0 for count in check_dataset("target", target).counts.values())
    refuse_if(
        k == 0
        or (k is None and clusterer in ("spectral", "kmeans"))
        or None not in (n_clusters, target),
        "the number of clusters must be n_clusters or that of the classes of target",
        f"n_clusters={n_clusters}, target={target}",
        "Pass one of them.",
    )
    refuse_if(
        k is not None and not number,
        "this clusterer finds the number of clusters itself",
        f"{k} clusters",
        "Leave n_clusters and target out, or use another clusterer.",
    )
    points = points_of(data, embedding, seed)
    codes = clusters(clusterer, points, n_clusters=k, seed=seed)
    refuse_if(
        not (codes >= 0).any(),
        "the clusterer must find at least one cluster",
        "noise alone",
        'Change its options, or use clusterer="spectral".',
    )
    points = of_order_one(points)
    codes = renumbered(join_nearest(points, codes, 1))
    y = torch.as_tensor(codes, device=data.x.device)
    dataset = data.replace(y=y, classes=tuple(range(codes.max() + 1)), law=None, law_index=None)
    if not soft:
        return dataset
    from sklearn.neighbors import KNeighborsClassifier

    near = KNeighborsClassifier(min(_NEIGHBORS + 1, len(points))).fit(points, codes)
    return dataset.replace(probabilities=near.predict_proba(points))


def renumbered(codes: np.ndarray) -> np.ndarray:
    """The same clusters as 0 … k − 1, the largest first, ties in order of appearance."""
    _, first, inverse, counts = np.unique(
        codes, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.lexsort((first, -counts))] = np.arange(len(counts))
    return rank[inverse]


def fill_labels(
    data: LabeledDataset,
    *,
    neighbors: int = 10,
    alpha: float = 0.99,
    embedding: Embedded = None,
    seed: int = 0,
    soft: bool = False,
) -> LabeledDataset:
    """Label the unlabeled samples of partly labeled data; known labels stay.

    Labels spread over the graph of nearest neighbours, so they follow the shape of the data.
    ``ad.apps.label`` does this too, chooses the settings and estimates how sure each label is.

    Args:
        data: samples, some of them with labels.
        neighbors: number of neighbours of each sample in the graph.
        alpha: between 0 and 1; labels spread farther if it is near 1.
        embedding: points to measure distances in; see ``pseudo_labels``. For small images
            ``"gradients"`` is far better than pixels.
        seed: seed of a random embedding.
        soft: also keep the class probabilities of each sample. They rank the samples, but are not
            calibrated.

    Raises:
        InputError: no sample has a label.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [1.0], [2.0], [3.0], [4.0]], ["a", None, None, None, "b"])
        >>> filled = ad.fill_labels(data, neighbors=2, alpha=0.9, soft=True)
        >>> filled.probabilities.double().numpy().round(2).tolist()
        [[1.0, 0.0], [0.67, 0.33], [0.5, 0.5], [0.33, 0.67], [0.0, 1.0]]
    """
    neighbors, seed = check_count("neighbors", neighbors), check_count("seed", seed, least=0)
    within = check_positive("alpha", alpha) < 1
    refuse_if(not within, "alpha must lie between 0 and 1", alpha, "The default is 0.99.")
    points = of_order_one(points_of(data, embedding, seed))
    refuse_if(
        not bool(data.labeled.any()),
        "labels can only be filled in from known ones",
        f"none of {len(data)}",
        "Use ad.pseudo_labels(data).",
    )
    if bool(data.labeled.all()):
        return data
    known = one_hot(data.y.cpu().numpy(), len(data.classes))
    proportions = spread(neighbor_graph(points, neighbors), alpha, known)
    proportions = np.where(known.any(axis=1, keepdims=True), known, proportions)
    if soft:
        return data.replace(probabilities=proportions)
    return data.replace(y=torch.as_tensor(proportions.argmax(axis=1), device=data.y.device))


def one_hot(codes: np.ndarray, k: int) -> np.ndarray:
    """(n, k) with a 1 for each code, and rows of zeros for −1."""
    return np.eye(k + 1, k)[codes]  # whose last row is zero


def spread(graph: Any, alpha: float, known: np.ndarray) -> np.ndarray:
    """Class proportions (n, k) from known labels, the nonzero rows of ``known`` (n, k).

    Scores fall by a factor with each step away from the labels, soon below the accuracy of the
    solution. The equation is solved again for rows of low scores alone: the other rows move to its
    right-hand side, which is rescaled."""
    roots = np.sqrt(np.asarray(graph.sum(axis=1)).reshape(-1, 1))  # D^½ as a column (n, 1)
    scores = solved(graph, roots, alpha, known)
    sums = scores.sum(axis=0)
    sums[sums <= 0] = 1.0
    scores, right = scores / sums, known / sums
    shares, rest = np.zeros_like(scores), np.arange(len(scores))
    while True:
        best = scores.max(axis=1)
        far = best < _REACHED * best.max()
        shares[rest[~far]] = scores[~far] / scores[~far].sum(axis=1, keepdims=True)
        if not far.any():
            return shares
        inflow = graph[far][:, ~far] @ (scores[~far] / roots[~far])
        right = right[far] + alpha * inflow / roots[far]
        graph, roots, rest, right = graph[far][:, far], roots[far], rest[far], right / right.max()
        scores = solved(graph, roots, alpha, right)


def solved(
    graph: Any, roots: np.ndarray, alpha: float, right: np.ndarray, tol: float = 1e-12
) -> np.ndarray:
    """(I − α S)^−1 applied to non-negative columns, by conjugate gradients."""
    from scipy.sparse import diags_array, eye_array
    from scipy.sparse.linalg import cg

    inverse = diags_array(1 / roots[:, 0])
    system = (eye_array(len(right)) - alpha * (inverse @ graph @ inverse)).tocsr()
    columns = [cg(system, column, rtol=tol, atol=0, maxiter=2000)[0] for column in right.T]
    return np.stack(columns, axis=1).clip(min=0)

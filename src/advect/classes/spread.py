"""Known labels as scores of all samples, over the graph of nearest neighbours (Zhou et al., Learning
with local and global consistency, 2004).

F solves (I − α S) F = Y, with S = D^−½ W D^−½ for the weights W of edges and their sums D. Each
class's scores are then divided by their sum: otherwise one that has more labels, or labels at
samples with more neighbours, spreads over the others. Rows divided by their sums are the shares of
classes in what reaches a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from advect._util.checks import check_count, check_positive
from advect.classes.clustering import of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.classes.neighbor_graph import neighbor_graph
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_REACHED = 1e-6  # of the highest score; far above what conjugate gradients leave as error


def spread_labels(
    data: LabeledDataset,
    *,
    neighbors: int = 10,
    alpha: float = 0.99,
    embedding: Embedded = None,
    seed: int = 0,
) -> np.ndarray:
    """For each sample, how much of each class reaches it from the known labels: (n, k) shares that
    sum to one.

    A sample with a label has all of its own class. The shares order samples by how sure they are;
    as probabilities they are not calibrated, for which see ``ad.apps.label``.

    Args:
        data: samples, some of them with labels.
        neighbors, alpha, embedding, seed: as in ``fill_labels``.

    Raises:
        InputError: no sample has a label.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [1.0], [2.0], [3.0], [4.0]], ["a", None, None, None, "b"])
        >>> ad.spread_labels(data, neighbors=2, alpha=0.9).round(2).tolist()
        [[1.0, 0.0], [0.67, 0.33], [0.5, 0.5], [0.33, 0.67], [0.0, 1.0]]
    """
    neighbors, seed = check_count("neighbors", neighbors), check_count("seed", seed, least=0)
    if check_positive("alpha", alpha) >= 1:
        raise InputError(
            "alpha must lie between 0 and 1", alpha, "0.99 spreads labels far, 0.5 stays near them."
        )
    points = of_order_one(points_of(data, embedding, seed))
    check_some(data)
    known = one_hot(data.y.cpu().numpy(), len(data.classes))
    if len(points) == 1:
        return known
    shares = spread(neighbor_graph(points, neighbors, local=True), alpha, known)
    return np.where(known.any(axis=1, keepdims=True), known, shares)


def check_some(data: LabeledDataset) -> None:
    """An error for data without any label."""
    if not bool(data.labeled.any()):
        raise InputError(
            "labels can only be filled in from some that are known",
            f"none of {len(data)}",
            "Use ad.pseudo_labels(data).",
        )


def one_hot(codes: np.ndarray, k: int) -> np.ndarray:
    """(n, k) with a 1 for each code, and rows of zeros for −1."""
    rows = np.zeros((len(codes), k))
    known = np.flatnonzero(codes >= 0)
    rows[known, codes[known]] = 1.0
    return rows


def spread(graph: Any, alpha: float, known: np.ndarray) -> np.ndarray:
    """Shares of classes (n, k) from known labels, the rows of ``known`` (n, k) that are not zero.

    Scores fall by a factor with each step away from the labels, soon below what the solution of an
    equation resolves. Where the highest is that low, the equation is solved once more for these
    rows alone: the others, which are known by then, go to its right side, and it is scaled."""
    roots = degree_roots(graph)
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
        right = (
            right[far] + alpha * (graph[far][:, ~far] @ (scores[~far] / roots[~far])) / roots[far]
        )
        graph, roots, rest, right = graph[far][:, far], roots[far], rest[far], right / right.max()
        scores = solved(graph, roots, alpha, right)


def degree_roots(graph: Any) -> np.ndarray:
    """D^½ as a column (n, 1)."""
    return np.sqrt(np.asarray(graph.sum(axis=1)).reshape(-1, 1))


def solved(
    graph: Any, roots: np.ndarray, alpha: float, right: np.ndarray, tol: float = 1e-12
) -> np.ndarray:
    """(I − α S)^−1 of each column of the right side, by conjugate gradients; no entry is negative
    where the right side has none.
    """
    from scipy.sparse import diags_array, eye_array
    from scipy.sparse.linalg import cg

    inverse = diags_array(1 / roots[:, 0])
    system = (eye_array(len(right)) - alpha * (inverse @ graph @ inverse)).tocsr()
    columns = [cg(system, column, rtol=tol, atol=0, maxiter=2000)[0] for column in right.T]
    return np.stack(columns, axis=1).clip(min=0)

"""Labels for the unlabeled samples of partly labeled data, from those that have one.

``propagate`` spreads labels over the graph of nearest neighbours (Zhou et al., Learning with local
and global consistency, 2004): F solves (I − α S) F = Y, with S = D^−½ W D^−½ for the adjacency W
and its degrees D. Each class's scores are then divided by their sum: otherwise one that has more
labels, or labels at samples with more neighbours, spreads over the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, check_known, check_positive
from advect.classes.clustering import join_nearest, of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.classes.neighbor_graph import neighbor_graph
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_REACHED = 1e-6  # of the highest score; far above what conjugate gradients leave as error


def fill_labels(
    data: LabeledDataset,
    method: str = "propagate",
    *,
    neighbors: int = 10,
    alpha: float = 0.99,
    embedding: Embedded = None,
    seed: int = 0,
) -> LabeledDataset:
    """The same samples, all labeled: those that had a label keep it, the others get one of those
    that occur.

    Args:
        data: samples, some of them with labels.
        method: ``"propagate"`` spreads labels over the graph of nearest neighbours, so they follow
            the form of the data; ``"nearest"`` takes the label of the nearest labeled sample.
        neighbors: how many neighbours each sample is joined to in the graph.
        alpha: below 1; the nearer to it, the farther labels spread.
        embedding: where to measure distances instead of the features; see ``pseudo_labels``.
        seed: of an embedding that is random.

    Raises:
        InputError: no sample has a label; unknown method.

    Example:
        >>> import advect as ad
        >>> data = ad.LabeledDataset([[0.0], [1.0], [2.0], [7.0], [8.0]], ["a", None, None, None, "b"])
        >>> ad.fill_labels(data, neighbors=1).labels
        ['a', 'a', 'a', 'b', 'b']
    """
    check_known("method to fill labels", method, ("nearest", "propagate"))
    neighbors, seed = check_count("neighbors", neighbors), check_count("seed", seed, least=0)
    if check_positive("alpha", alpha) >= 1:
        raise InputError(
            "alpha must lie between 0 and 1", alpha, "0.99 spreads labels far, 0.5 stays near them."
        )
    points = of_order_one(points_of(data, embedding, seed))
    if data.complete:
        return data
    codes = data.y.cpu().numpy().copy()
    if (codes < 0).all():
        raise InputError(
            "labels can only be filled in from some that are known",
            f"none of {len(data)}",
            "Use ad.pseudo_labels(data).",
        )
    codes = (
        _propagated(points, codes, neighbors, alpha)
        if method == "propagate"
        else join_nearest(points, codes, 1)
    )
    return data.replace(y=torch.as_tensor(codes, device=data.y.device))


def _propagated(points: np.ndarray, codes: np.ndarray, neighbors: int, alpha: float) -> np.ndarray:
    """The known codes, and for the others that of the highest score.

    Scores fall by a factor with each step away from the labels, soon below what the solution of an
    equation resolves. Where the highest is that low, the equation is solved once more for these
    rows alone: the others, which are known by then, go to its right side, and it is scaled."""
    graph = neighbor_graph(points, neighbors)
    roots = np.sqrt(np.asarray(graph.sum(axis=1)).reshape(-1, 1))
    known = np.flatnonzero(codes >= 0)
    right = np.zeros((len(codes), codes.max() + 1))
    right[known, codes[known]] = 1.0
    scores = _scores(graph, roots, alpha, right)
    sums = scores.sum(axis=0)
    sums[sums <= 0] = 1.0
    scores, right = scores / sums, right / sums
    filled, rest = codes.copy(), np.arange(len(codes))
    while True:
        best = scores.max(axis=1)
        far = best < _REACHED * best.max()
        filled[rest[~far]] = scores[~far].argmax(axis=1)
        if not far.any():
            return np.where(codes >= 0, codes, filled)
        right = (
            right[far] + alpha * (graph[far][:, ~far] @ (scores[~far] / roots[~far])) / roots[far]
        )
        graph, roots, rest, right = graph[far][:, far], roots[far], rest[far], right / right.max()
        scores = _scores(graph, roots, alpha, right)


def _scores(graph: Any, roots: np.ndarray, alpha: float, right: np.ndarray) -> np.ndarray:
    """(I − α S)^−1 of each column of the right side, by conjugate gradients; no entry is negative
    where the right side has none.
    """
    from scipy.sparse import diags_array, eye_array
    from scipy.sparse.linalg import cg

    inverse = diags_array(1 / roots[:, 0])
    system = eye_array(len(right)) - alpha * (inverse @ graph @ inverse)
    solved = [cg(system, column, rtol=1e-12, atol=0, maxiter=2000)[0] for column in right.T]
    return np.stack(solved, axis=1).clip(min=0)

"""Label spreading over the graph of nearest neighbours (Zhou et al., Learning with local and global
consistency, 2004).

F solves (I − α S) F = Y with S = D^−½ W D^−½, for edge weights W and their row sums D. The scores of
each class are divided by their sum, so that classes with more labels do not dominate, and rows are
normalised to sum to one. scikit-learn's ``LabelSpreading`` has neither these class weights nor local
scales, and finds fewer labels of images."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from advect._util.checks import check_count, check_positive
from advect.classes.clustering import neighbor_graph, of_order_one
from advect.classes.embedding import Embedded, points_of
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_REACHED = 1e-6  # of the highest score; far above the error of conjugate gradients


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
    if check_positive("alpha", alpha) >= 1:
        raise InputError("alpha must lie between 0 and 1", alpha, "The default is 0.99.")
    points = of_order_one(points_of(data, embedding, seed))
    if not bool(data.labeled.any()):
        what, remedy = "labels can only be filled in from known ones", "Use ad.pseudo_labels(data)."
        raise InputError(what, f"none of {len(data)}", remedy)
    if bool(data.labeled.all()):
        return data
    known = one_hot(data.y.cpu().numpy(), len(data.classes))
    proportions = spread(neighbor_graph(points, neighbors, local=True), alpha, known)
    proportions = np.where(known.any(axis=1, keepdims=True), known, proportions)
    if soft:
        return data.replace(probabilities=proportions)
    return data.replace(y=torch.as_tensor(proportions.argmax(axis=1), device=data.y.device))


def one_hot(codes: np.ndarray, k: int) -> np.ndarray:
    """(n, k) with a 1 for each code, and rows of zeros for −1."""
    rows = np.zeros((len(codes), k))
    known = np.flatnonzero(codes >= 0)
    rows[known, codes[known]] = 1.0
    return rows


def spread(graph: Any, alpha: float, known: np.ndarray) -> np.ndarray:
    """Class proportions (n, k) from known labels, the nonzero rows of ``known`` (n, k).

    Scores fall by a factor with each step away from the labels, soon below the accuracy of the
    solution. The equation is solved again for rows of low scores alone: the other rows move to its
    right-hand side, which is rescaled."""
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
        inflow = graph[far][:, ~far] @ (scores[~far] / roots[~far])
        right = right[far] + alpha * inflow / roots[far]
        graph, roots, rest, right = graph[far][:, far], roots[far], rest[far], right / right.max()
        scores = solved(graph, roots, alpha, right)


def degree_roots(graph: Any) -> np.ndarray:
    """D^½ as a column (n, 1)."""
    return np.sqrt(np.asarray(graph.sum(axis=1)).reshape(-1, 1))


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

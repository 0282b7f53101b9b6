"""The graph that joins each point to its nearest neighbours, with bridges between pieces: labels
and cuts need one piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BLOCK = 1000  # rows of distances at a time
_SCALE = 7  # the neighbour whose distance is the scale of a point
_LEAST = 1e-3  # of the weights of edges, so that none vanishes


def neighbor_graph(points: np.ndarray, neighbors: int, *, local: bool = False) -> Any:
    """A symmetric sparse (n, n) matrix: 1 where two points are among each other's nearest, ½ where
    one is among the other's.

    As long as there are several pieces, each is joined to the point nearest to it outside, with
    weight ½.

    Args:
        points: (n, p).
        neighbors: how many each point is joined to.
        local: weigh each edge by exp(−d² / (s_i s_j)) instead, where s is the distance of a point
            from its seventh neighbour (Zelnik-Manor and Perona, Self-tuning spectral clustering,
            2004): edges out of a dense part count less. No weight is below 10⁻³, which is that of
            bridges."""
    from scipy.sparse.csgraph import connected_components
    from sklearn.neighbors import kneighbors_graph

    count = min(neighbors, len(points) - 1)
    graph: Any = kneighbors_graph(points, count, mode="distance" if local else "connectivity")
    if local:
        graph.data = _local_weights(graph.data.reshape(-1, count), graph.indices)
    graph = ((graph + graph.T) / 2).tocsr()
    weight = _LEAST / 2 if local else 0.5
    while (piece := connected_components(graph, directed=False)[1]).any():
        ends = _bridges(points, piece)
        bridges = type(graph)((np.full(len(ends[0]), weight), ends), shape=graph.shape)
        graph = graph.maximum(bridges.maximum(bridges.T)).tocsr()
    return graph


def _local_weights(distances: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """exp(−d² / (s_i s_j)) for the neighbours (n, count) of each point, nearest first, one after
    the other.
    """
    scale = distances[:, min(_SCALE, distances.shape[1]) - 1]
    scale = np.maximum(scale, _LEAST * distances.mean() or 1.0)  # heaps of equal points
    exponents = distances**2 / (scale[:, None] * scale[indices].reshape(distances.shape))
    return np.maximum(np.exp(-exponents), _LEAST).reshape(-1)


def _bridges(points: np.ndarray, piece: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each piece but the largest, the ends of the shortest way out of it."""
    from sklearn.metrics import pairwise_distances

    names, counts = np.unique(piece, return_counts=True)
    ends = []
    for name in np.delete(names, counts.argmax()):
        inside = np.flatnonzero(piece == name)
        best = (np.inf, 0, 0)
        for rows in np.array_split(inside, -(-len(inside) // _BLOCK)):
            distances = pairwise_distances(points[rows], points)
            distances[:, inside] = np.inf
            row, column = np.unravel_index(distances.argmin(), distances.shape)
            best = min(best, (float(distances[row, column]), int(rows[row]), int(column)))
        ends.append(best[1:])
    first, second = np.array(ends).T
    return first, second

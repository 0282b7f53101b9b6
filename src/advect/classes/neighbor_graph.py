"""The graph that joins each point to its nearest neighbours, with bridges between pieces: labels
and cuts need one piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BLOCK = 1000  # rows of distances at a time


def neighbor_graph(points: np.ndarray, neighbors: int) -> Any:
    """A symmetric sparse (n, n) matrix: 1 where two points are among each other's nearest, ½ where
    one is among the other's.

    As long as there are several pieces, each is joined to the point nearest to it outside, with
    weight ½."""
    from scipy.sparse.csgraph import connected_components
    from sklearn.neighbors import kneighbors_graph

    graph: Any = kneighbors_graph(points, min(neighbors, len(points) - 1))
    graph = ((graph + graph.T) / 2).tocsr()
    while (piece := connected_components(graph, directed=False)[1]).any():
        ends = _bridges(points, piece)
        bridges = type(graph)((np.full(len(ends[0]), 0.5), ends), shape=graph.shape)
        graph = graph.maximum(bridges.maximum(bridges.T)).tocsr()
    return graph


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

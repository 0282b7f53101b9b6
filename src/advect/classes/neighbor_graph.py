"""The graph of nearest neighbours, with bridges between its components."""

from __future__ import annotations

from typing import Any

import numpy as np

_SCALE = 7  # the neighbour whose distance is the scale of a point
_LEAST = 1e-3  # smallest weight of an edge


def neighbor_graph(points: np.ndarray, neighbors: int, *, local: bool = False) -> Any:
    """A symmetric sparse (n, n) matrix: 1 for mutual neighbours, ½ for neighbours of one side.

    Each component is joined to the nearest point outside, with the smallest weight, until there is
    one component.

    Args:
        points: (n, p).
        neighbors: number of neighbours of each point.
        local: weights exp(−d² / (s_i s_j)) instead, with s the distance to the seventh neighbour
            (Zelnik-Manor and Perona, Self-tuning spectral clustering, 2004).
    """
    from scipy.sparse.csgraph import connected_components
    from sklearn.neighbors import kneighbors_graph

    count = min(neighbors, len(points) - 1)
    graph: Any = kneighbors_graph(points, count, mode="distance" if local else "connectivity")
    if local:
        distances = graph.data.reshape(-1, count)  # nearest first
        scale = distances[:, min(_SCALE, count) - 1]
        scale = np.maximum(scale, _LEAST * distances.mean() or 1.0)  # equal points have scale 0
        exponents = distances**2 / (scale[:, None] * scale[graph.indices].reshape(distances.shape))
        graph.data = np.maximum(np.exp(-exponents), _LEAST).reshape(-1)
    graph = ((graph + graph.T) / 2).tocsr()
    weight = _LEAST / 2 if local else 0.5
    while (component := connected_components(graph, directed=False)[1]).any():
        ends = _bridges(points, component)
        bridges = type(graph)((np.full(len(ends[0]), weight), ends), shape=graph.shape)
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

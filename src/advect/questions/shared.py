"""Helpers of several questions: class codes, joined features, checks and lists of names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch

from advect._util import check_positive, refuse_if
from advect.data.dataset import LabeledDataset
from advect.spaces.images import layout

_MAX_IMAGES = 12


def check_level(level: float) -> None:
    refuse_if(
        check_positive("level", level) >= 1,
        "level must be below 1",
        level,
        "Pass 0.05, for instance.",
    )


def class_names(*sets: LabeledDataset) -> tuple[Hashable, ...]:
    """Names of all classes with samples, in the order of the datasets."""
    used = {name for data in sets for name, count in data.counts.items() if count}
    return tuple(dict.fromkeys(name for data in sets for name in data.classes if name in used))


def class_codes(data: LabeledDataset, names: Sequence[Hashable]) -> np.ndarray:
    """Positions of the labels in ``names``, (n,); −1 without a label or for another class."""
    position = {name: code for code, name in enumerate(names)}
    return np.array([*(position.get(name, -1) for name in data.classes), -1])[data.y.cpu().numpy()]


def joined_features(*sets: LabeledDataset) -> LabeledDataset:
    """The features of all datasets with equal weights, without labels."""
    x = torch.cat([data.x.detach().to(sets[0].x) for data in sets])
    y = torch.full((len(x),), -1, device=x.device)
    even = torch.full((len(x),), 1 / len(x), dtype=torch.float64, device=x.device)
    return sets[0].replace(x=x, y=y, weights=even, law=None, law_index=None)


def image_pairs(
    title: str,
    data: LabeledDataset,
    rows: np.ndarray,
    partners: LabeledDataset,
    partner_rows: np.ndarray,
    titles: Sequence[str],
) -> dict[str, Any]:
    """A figure of samples next to others by its title; none without rows or for other data."""
    if not len(rows) or layout(data.sample_shape) is None:
        return {}
    frames = [data.subset(rows[:_MAX_IMAGES]), partners.subset(partner_rows[:_MAX_IMAGES])]
    viz = import_module("advect.viz")
    return {title: viz.image_grid(frames, rows=len(frames[0]), titles=list(titles))}


def nearest(points: np.ndarray, others: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Distance and position of the nearest other point; None: among the same points."""
    from sklearn.neighbors import NearestNeighbors

    among = points if others is None else others
    search = NearestNeighbors(n_neighbors=2 if others is None else 1, algorithm="brute")
    neighbors = search.fit(among).kneighbors(points, return_distance=False)
    which = neighbors[:, 0]
    if others is None:
        which = np.where(which == np.arange(len(points)), neighbors[:, 1], which)
    # by differences: distances from products are not 0 for a copy
    return np.linalg.norm(points - among[which], axis=1), which


def half_of_each(codes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Mask of half of the samples of each class."""
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    mask = np.zeros(len(codes), dtype=bool)
    mask[order[rng.integers(2) if len(codes) > 1 else 0 :: 2]] = True
    return mask


def weighted_quantile(distances: np.ndarray, weights: np.ndarray, level: float) -> float:
    """The smallest distance up to which a share ``level`` of the weight lies."""
    order = np.argsort(distances, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(distances[order][min(np.searchsorted(reached, level), len(order) - 1)])


class Points(NamedTuple):
    """Points (n, d) float64, and their weights."""

    values: np.ndarray
    weights: np.ndarray

    def take(self, index: np.ndarray) -> Points:
        return Points(self.values[index], self.weights[index])


def distances(one: Points, other: Points) -> np.ndarray:
    """Euclidean distances by differences, so that copies are at exactly 0."""
    from scipy.spatial.distance import cdist

    return cdist(one.values, other.values)

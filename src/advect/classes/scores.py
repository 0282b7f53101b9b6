"""How well clusters agree with the truth: for evaluation alone, since the names are chosen by the
truth itself.

Names for clusters without looking at the truth are given by ``alignment``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.classes.pseudo import PseudoLabels
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.ot import ExactOT


def best_permutation(codes: Any, truth: Any) -> dict[Hashable, Hashable]:
    """The one-to-one naming of clusters by true labels that gets most samples right. For scoring
    only: it uses the truth.

    Args:
        codes: the cluster of each sample: an array, tensor or list, or ``PseudoLabels``.
        truth: the label of each sample, likewise, or a dataset.

    Returns:
        {cluster: label}. With more clusters than labels some clusters are left out; with fewer,
        some labels are.

    Example:
        >>> import advect as ad
        >>> ad.classes.best_permutation([0, 0, 1, 1, 1], ["b", "b", "a", "a", "b"])
        {0: 'b', 1: 'a'}
    """
    table, rows, columns = _contingency(codes, truth)
    return {rows[i]: columns[j] for i, j in enumerate(assign(table)) if j >= 0}


def clustering_accuracy(codes: Any, truth: Any) -> float:
    """The share of samples that ``best_permutation`` names rightly; those in clusters without a
    name count as wrong.

    Example:
        >>> import advect as ad
        >>> ad.classes.clustering_accuracy([0, 0, 1, 1, 1], ["b", "b", "a", "a", "b"])
        0.8
    """
    table, _, _ = _contingency(codes, truth)
    return float(sum(table[i, j] for i, j in enumerate(assign(table)) if j >= 0) / table.sum())


def purity(codes: Any, truth: Any) -> float:
    """The share of samples whose label is the most frequent one in their cluster; grows with the
    number of clusters.

    Example:
        >>> import advect as ad
        >>> ad.classes.purity([0, 0, 1, 1, 2], ["b", "b", "a", "b", "b"])
        0.8
    """
    table, _, _ = _contingency(codes, truth)
    return float(table.max(axis=1).sum() / table.sum())


def assign(gain: np.ndarray) -> list[int]:
    """For each row a column of its own, −1 for none, with the largest sum of gains; rows or columns
    in excess are left out.
    """
    k, m = gain.shape
    square = np.zeros((max(k, m), max(k, m)))
    square[:k, :m] = gain - gain.min()
    # Vertices of the plans between uniform masses are permutations, and the simplex ends at one.
    chosen = (
        ExactOT().solve(torch.from_numpy(square.max() - square)).plan().argmax(dim=1)[:k].tolist()
    )
    return [j if j < m else -1 for j in chosen]


def _contingency(codes: Any, truth: Any) -> tuple[np.ndarray, list[Hashable], list[Hashable]]:
    """How many samples each pair of cluster and label shares, and the names of both in order of
    appearance.
    """
    first, second = _listed("codes", codes), _listed("truth", truth)
    if len(first) != len(second) or not first:
        raise InputError(
            "codes and truth must have one entry for each sample",
            f"{len(first)} and {len(second)}",
            "Check what was passed.",
        )
    rows, columns = (list(dict.fromkeys(names)) for names in (first, second))
    places = [{name: place for place, name in enumerate(names)} for names in (rows, columns)]
    table = np.zeros((len(rows), len(columns)))
    np.add.at(table, ([places[0][name] for name in first], [places[1][name] for name in second]), 1)
    return table, rows, columns


def _listed(what: str, values: Any) -> list[Hashable]:
    match values:
        case PseudoLabels():
            values = values.codes.tolist()
        case LabeledDataset():
            values.require_labels("a score of clusters")
            values = values.labels
        case Tensor() | np.ndarray():
            values = values.tolist()
    try:
        names = list(values)
        missing = sum(name is None or name != name for name in names)
        hash(tuple(names))
    except TypeError:
        raise InputError(
            f"{what} must be one hashable label for each sample",
            type(values).__name__,
            "Pass a list.",
        ) from None
    if missing:
        raise InputError(
            f"{what} must have no missing labels",
            f"{missing} missing",
            "Leave these samples out on both sides.",
        )
    return names

"""Scores of clusters by the true labels, for evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from advect.classes.pseudo import PseudoLabels
from advect.data.dataset import LabeledDataset, require_labels
from advect.errors import InputError


def clustering_accuracy(codes: Any, truth: Any) -> float:
    """Proportion of samples that the best one-to-one naming of clusters labels correctly.

    Args:
        codes: the cluster of each sample: ``PseudoLabels``, an array, tensor or list.
        truth: the label of each sample, likewise, or a dataset.

    Example:
        >>> import advect as ad
        >>> clustering_accuracy([0, 0, 1, 1, 1], ["b", "b", "a", "a", "b"])
        0.8
    """
    from scipy.optimize import linear_sum_assignment

    table = _contingency(codes, truth)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def purity(codes: Any, truth: Any) -> float:
    """Proportion of samples whose label is the most frequent one in their cluster.

    It grows with the number of clusters. Arguments are those of ``clustering_accuracy``.

    Example:
        >>> import advect as ad
        >>> purity([0, 0, 1, 1, 2], ["b", "b", "a", "b", "b"])
        0.8
    """
    table = _contingency(codes, truth)
    return float(table.max(axis=1).sum() / table.sum())


def _contingency(codes: Any, truth: Any) -> np.ndarray:
    """The number of samples for each pair of cluster and label."""
    first, second = _positions(codes), _positions(truth)
    if len(first) != len(second) or len(first) == 0 or min(first.min(), second.min()) < 0:
        raise InputError(
            "codes and truth must have one entry for each sample, none of them missing",
            f"{len(first)} and {len(second)} entries",
            "Pass two sequences of equal length.",
        )
    return pd.crosstab(first, second).to_numpy()


def _positions(values: Any) -> np.ndarray:
    """The position of each label among the different ones, −1 if it is missing."""
    if isinstance(values, LabeledDataset):
        require_labels(values, "a clustering score")
        return values.y.cpu().numpy()
    values = values.codes if isinstance(values, PseudoLabels) else values
    values = values.tolist() if isinstance(values, Tensor | np.ndarray) else list(values)
    return pd.factorize(pd.Series(values, dtype=object))[0]

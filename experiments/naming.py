"""Scores of clusters by the true labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix


def clustering_accuracy(codes: Any, truth: Any) -> float:
    """Share of samples that the best one-to-one naming of clusters labels correctly."""
    table = np.asarray(contingency_matrix(list(map(str, truth)), codes))
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())

"""Names of clusters: from the classes of another dataset, or from the truth for evaluation."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_kind
from advect.classes.pseudo import PseudoLabels
from advect.cost import GroundCost
from advect.cost.ground import check_cost
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.labels import require_classes
from advect.errors import InputError
from advect.transport.class_tables import otdd_classes


def name_clusters(
    pseudo: PseudoLabels | LabeledDataset,
    reference: LabeledDataset,
    *,
    cost: GroundCost | None = None,
) -> LabeledDataset:
    """Rename clusters to the corresponding classes of a reference, without labels of the data.

    Clusters and classes are coupled by exact optimal transport under the squared label distances:
    one to one with no more clusters than classes, otherwise by mass, and a cluster gets the class
    with which it shares most.

    Args:
        pseudo: the result of ``pseudo_labels``, or a dataset whose classes are to be renamed.
        reference: a labeled dataset in the same feature space (see ``ad.harmonize``).
        cost: its label cost gives the distances; by default between Gaussians (Bures).

    Returns:
        The data with the classes of ``reference``.

    Example:
        >>> import advect as ad
        >>> reference = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
        >>> found = ad.pseudo_labels(ad.LabeledDataset([[12.0], [13.0], [3.0], [4.0]]), target=reference)
        >>> ad.classes.name_clusters(found, reference).labels
        ['high', 'high', 'low', 'low']
    """
    data = pseudo.dataset if isinstance(pseudo, PseudoLabels) else pseudo
    for what, each in (("pseudo", data), ("reference", reference)):
        remedy = "Pass pseudo_labels(…) and a LabeledDataset."
        check_kind(f"{what} must be a dataset", each, LabeledDataset, remedy)
        require_classes(each, "name_clusters")
        require_labels(each, "name_clusters")
    cost = check_cost(cost) or GroundCost()
    if not cost.label_cost.costs:
        remedy = "Use GroundCost(label=ad.Bures())."
        raise InputError("name_clusters needs a label cost", "NoLabels", remedy)
    codes = torch.as_tensor(_class_codes(data, reference, cost), device=data.y.device)
    changes = {"classes": reference.classes, "law": None, "law_index": None}
    if data.probabilities is not None:  # of clusters of one name together
        zeros = data.probabilities.new_zeros(len(data), len(reference.classes))
        changes["probabilities"] = zeros.index_add_(1, codes, data.probabilities)
    return data.replace(y=codes[data.y], **changes)


def _class_codes(data: LabeledDataset, reference: LabeledDataset, cost: GroundCost) -> np.ndarray:
    """The class of the reference for each cluster."""
    from scipy.optimize import linear_sum_assignment

    filled, known = (np.flatnonzero(list(each.counts.values())) for each in (data, reference))
    if len(filled) > len(known):
        return otdd_classes(data, reference, cost).values.argmax(axis=1)
    squared = cost.between(data, reference).by_classes().label_distances
    squared = squared.detach().double().cpu().numpy()[:, known]
    codes = np.zeros(len(squared), dtype=np.int64)
    codes[filled] = known[linear_sum_assignment(squared[filled])[1]]
    return codes


def clustering_accuracy(codes: Any, truth: Any) -> float:
    """Proportion of samples that the best one-to-one naming of clusters labels correctly.

    For evaluation: it uses the true labels.

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
    first, second = _labels("codes", codes), _labels("truth", truth)
    if len(first) != len(second) or not first:
        raise InputError(
            "codes and truth must have one entry for each sample",
            f"{len(first)} and {len(second)}",
            "Pass two sequences of equal length.",
        )
    rows, columns = (
        {name: place for place, name in enumerate(dict.fromkeys(names))}
        for names in (first, second)
    )
    table = np.zeros((len(rows), len(columns)))
    np.add.at(table, ([rows[name] for name in first], [columns[name] for name in second]), 1)
    return table


def _labels(what: str, values: Any) -> list[Hashable]:
    if isinstance(values, LabeledDataset):
        require_labels(values, "a clustering score")
        values = values.labels
    values = values.codes if isinstance(values, PseudoLabels) else values
    names = values.tolist() if isinstance(values, Tensor | np.ndarray) else list(values)
    if missing := sum(name is None or name != name for name in names):
        raise InputError(f"{what} must have no missing labels", missing, "Leave them out.")
    return names

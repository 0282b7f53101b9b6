"""Names for clusters from another dataset's classes, without any label of the clustered data
(paper, section 5.4).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from advect._util.checks import check_kind, check_known
from advect.classes.pseudo import PseudoLabels
from advect.classes.scores import assign
from advect.cost import GroundCost
from advect.cost.ground import check_cost
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.transport.class_tables import otdd_classes


def align(
    pseudo: PseudoLabels | LabeledDataset,
    reference: LabeledDataset,
    by: str = "transport",
    *,
    cost: GroundCost | None = None,
) -> LabeledDataset:
    """The samples with their clusters renamed to the classes of ``reference`` that correspond to
    them.

    Args:
        pseudo: clusters, as ``pseudo_labels`` gives them, or any dataset whose classes are to be
            renamed.
        reference: a labeled dataset in the same feature space (see ``harmonize``).
        by: ``"transport"`` couples clusters and classes by exact optimal transport under the
            squared label distances. With no more clusters than classes all count alike: the names
            are different, and with as many of both no shift between the datasets matters. With more
            clusters than classes the masses are those of the two datasets, and a cluster gets the
            name that it shares most mass with. ``"nearest"`` gives each cluster the name of the
            nearest class.
        cost: its label cost gives the distances; by default those of Gaussians (Bures).

    Returns:
        A dataset with the classes of ``reference``, in their order.

    Example:
        >>> import advect as ad
        >>> reference = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
        >>> found = ad.pseudo_labels(ad.LabeledDataset([[12.0], [13.0], [3.0], [4.0]]), target=reference)
        >>> ad.classes.align(found, reference).labels
        ['high', 'high', 'low', 'low']
    """
    check_known("way to align", by, _WAYS)
    data = pseudo.dataset if isinstance(pseudo, PseudoLabels) else pseudo
    for what, each in (("pseudo", data), ("reference", reference)):
        remedy = "Pass pseudo_labels(…) and a LabeledDataset."
        check_kind(f"{what} must be a dataset", each, LabeledDataset, remedy)
        each.require_classes("align")
        each.require_labels("align")
    cost = check_cost(cost) or GroundCost()
    if not cost.label_cost.costs:
        raise InputError(
            "align needs a label cost", "NoLabels", "Use GroundCost(label=ad.Bures())."
        )
    names = torch.tensor(_WAYS[by](data, reference, cost), device=data.y.device)
    changes = {"classes": reference.classes, "law": None, "law_index": None}
    if data.probabilities is not None:  # of clusters of one name together
        zeros = data.probabilities.new_zeros(len(data), len(reference.classes))
        changes["probabilities"] = zeros.index_add_(1, names, data.probabilities)
    return data.replace(y=names[data.y], **changes)


def _by_transport(data: LabeledDataset, reference: LabeledDataset, cost: GroundCost) -> list[int]:
    filled, known = (np.flatnonzero(list(each.counts.values())) for each in (data, reference))
    if len(filled) > len(known):
        return otdd_classes(data, reference, cost).values.argmax(axis=1).tolist()
    squared = (
        cost.between(data, reference).by_classes().label_distances.detach().double().cpu().numpy()
    )
    names = np.zeros(len(data.classes), dtype=np.int64)
    # classes in excess must not take part of a cluster's mass
    names[filled] = known[assign(-squared[np.ix_(filled, known)])]
    return names.tolist()


def _by_nearest(data: LabeledDataset, reference: LabeledDataset, cost: GroundCost) -> list[int]:
    distances = cost.between(data, reference).by_classes().label_distances.detach().clone()
    distances[:, [count == 0 for count in reference.counts.values()]] = torch.inf
    return distances.argmin(dim=1).tolist()


_WAYS: dict[str, Callable[[LabeledDataset, LabeledDataset, GroundCost], list[int]]] = {
    "transport": _by_transport,
    "nearest": _by_nearest,
}

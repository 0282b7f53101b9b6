"""Distances between the laws of classes, and the matching of classes under them (paper, section 5.4).
Neither needs transport between samples.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from advect.cost import GroundCost, PairCost
from advect.data import LabeledDataset, occurring_classes, require_labels
from advect.data.class_table import ClassTable
from advect.ot import ExactOT

_ROUNDING = 1e-14  # of the mass of all classes


def class_distances(pair: PairCost) -> ClassTable:
    """W₂ between the laws of classes under a cost, NaN for classes without samples; see
    ``Distance.class_distances``.
    """
    values = (
        pair.by_classes().label_distances.detach().double().clamp_min(0).sqrt().cpu().numpy().copy()
    )
    values[[not some for some in occurring_classes(pair.source)], :] = np.nan
    values[:, [not some for some in occurring_classes(pair.target)]] = np.nan
    return ClassTable(values, pair.source.classes, pair.target.classes)


def match_classes(
    distances: np.ndarray, source: LabeledDataset, target: LabeledDataset
) -> ClassTable:
    """The exact coupling of class masses under given distances; see ``Distance.class_matching``."""
    # the exact coupling of class masses, under squared distances as in the ground cost
    squared = torch.from_numpy(distances).square().nan_to_num(nan=0.0)  # no samples, no mass
    a, b = source.class_mass.cpu(), target.class_mass.cpu()
    coupling = ExactOT().solve(squared, a, b).plan()
    rounding = (coupling < _ROUNDING) & (coupling < 1e-6 * torch.minimum(a[:, None], b))
    return ClassTable(coupling.masked_fill(rounding, 0.0).numpy(), source.classes, target.classes)


def left_by_class(data: LabeledDataset, carried: Tensor) -> ClassTable:
    """For each class: its mass, the mass that a plan moves, and the rest. ``carried`` is the moved mass of
    each sample, (n, 1).
    """
    require_labels(data, "the mass that classes leave")
    mass = data.class_mass.cpu()
    sums = carried[:, 0].to(data.weights)
    sent = torch.zeros_like(data.class_mass).index_add_(0, data.y, sums).cpu()
    table = torch.stack([mass, sent, mass - sent], dim=1).numpy()
    return ClassTable(table, data.classes, ("mass", "carried", "left"))


def otdd_classes(source: LabeledDataset, target: LabeledDataset, cost: GroundCost) -> ClassTable:
    """The coupling of class masses alone, without a transport problem between samples; see
    ``Distance.class_matching``.
    """
    return match_classes(
        class_distances(cost.fitted(source, target).between(source, target)).values, source, target
    )

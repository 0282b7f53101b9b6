"""Distances between the laws of classes, and the matching of classes that they give (paper, section
5.4): all that needs no transport between samples.
"""

from __future__ import annotations

import numpy as np
import torch

from advect.cost import GroundCost, PairCost
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.ot import ExactOT


def class_distances(pair: PairCost) -> ClassTable:
    """W₂ between the laws of classes under a cost, NaN for classes without samples; see
    ``Distance.class_distances``.
    """
    values = (
        pair.by_classes().label_distances.detach().double().clamp_min(0).sqrt().cpu().numpy().copy()
    )
    values[[not some for some in pair.source.occurring], :] = np.nan
    values[:, [not some for some in pair.target.occurring]] = np.nan
    return ClassTable(values, pair.source.classes, pair.target.classes)


def match_classes(
    distances: np.ndarray, source: LabeledDataset, target: LabeledDataset
) -> ClassTable:
    """The exact coupling of class masses under given distances; see ``Distance.class_matching``."""
    squared = torch.from_numpy(distances).square().nan_to_num(nan=0.0)  # no samples, no mass
    coupling = ExactOT().solve(squared, source.class_mass.cpu(), target.class_mass.cpu()).plan()
    return ClassTable(coupling.numpy(), source.classes, target.classes)


def otdd_classes(source: LabeledDataset, target: LabeledDataset, cost: GroundCost) -> ClassTable:
    """The coupling of class masses alone, without a transport problem between samples; see
    ``Distance.class_matching``.
    """
    return match_classes(
        class_distances(cost.fitted(source, target).between(source, target)).values, source, target
    )

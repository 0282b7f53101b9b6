"""What is asked of all classes together: the joint distance, and which class is taken for which.

Confusion is read off the class coupling of ``otdd`` on features alone, with classes weighted as in the
real data: where the plan sends a synthetic sample to real ones of another class, its label and its
features do not agree. Labels in the cost would hold it back, and other shares of classes would push
mass across. Labels that are wrong in one direction only change the shares, and are seen there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch

from advect.cost import GroundCost, NoLabels
from advect.data.dataset import LabeledDataset
from advect.errors import ConvergenceWarning
from advect.ot import Solver
from advect.transport.distance import otdd


@dataclass(frozen=True, eq=False)
class Joint:
    """The statistics of one draw: ``otdd``, and the coupling (k, k), rows those of the first dataset,
    which sum to one where both have the class and are NaN elsewhere.
    """

    distance: float
    coupling: np.ndarray
    converged: bool = True

    @property
    def confusion(self) -> np.ndarray:
        """The share of each class that goes to others, (k,)."""
        return 1 - np.diagonal(self.coupling)


def joint(one: LabeledDataset, other: LabeledDataset, cost: GroundCost, solver: Solver) -> Joint:
    """Of two datasets whose classes have the same names in the same order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # ``compare`` says it, once
        found = otdd(one, other, cost=cost, solver=solver)
        table = coupling(one, other, cost, solver)
    solved = (
        found.converged or found.divergence.met
    )  # met: too near to tell from 0, if not the first
    return Joint(found.value, table, solved)


def coupling(
    one: LabeledDataset, other: LabeledDataset, cost: GroundCost, solver: Solver
) -> np.ndarray:
    """Where the feature-only plan sends the mass of each class, (k, k), each row as shares.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "high", "low", "high"])
        >>> b = ad.LabeledDataset([[0.0], [1.0], [8.0], [9.0]], ["low", "low", "high", "high"])
        >>> coupling(a, b, ad.GroundCost(), ad.ExactOT()).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    k = len(one.classes)
    masses = [data.class_mass for data in (one, other)]
    both = (masses[0] > 0) & (masses[1] > 0)
    table = np.full((k, k), np.nan)
    if not bool(both.any()):
        return table
    factor = torch.where(both, masses[1] / torch.where(both, masses[0], 1), 0)
    matched = one.replace(weights=one.weights * factor[one.y]).subset(both[one.y])
    blind = replace(cost, label=NoLabels())
    plan = otdd(matched, other.subset(both[other.y]), cost=blind, solver=solver)
    mass = plan.class_coupling.values
    rows = both.cpu().numpy()
    table[rows] = mass[rows] / mass[rows].sum(axis=1, keepdims=True)
    return table

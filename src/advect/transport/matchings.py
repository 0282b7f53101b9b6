"""One-to-one matchings of classes, by the sum of squared class distances: which is best, which is second
best, and whether they differ by more than the noise of the samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from advect.cost import PairCost, spelled
from advect.data.labels import occurring_classes
from advect.transport.class_tables import class_distances
from advect.transport.sampling_error import class_cost_error

_NOISE = 2.0  # standard errors
_MAX_CLASSES = 60


@dataclass(frozen=True, eq=False)
class Matchings:
    """One-to-one matchings of classes as tables (k, k') of zeros and ones.

    Attributes:
        pair: the cost whose label distances are used.
        squared: squared class distances.
        best, second: the two best matchings.
    """

    pair: PairCost
    squared: np.ndarray
    best: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, pair: PairCost) -> Matchings | None:
        """The matchings; None without hard labels, for classes without samples, for one class or many."""
        sides = (pair.source, pair.target)
        sizes = [len(side.classes) for side in sides]
        hard = all(bool(side.labeled.all()) and not side.has_soft_labels for side in sides)
        if (
            not (hard and all(all(occurring_classes(side)) for side in sides))
            or min(sizes) < 2
            or max(sizes) > _MAX_CLASSES
        ):
            return None
        squared = np.square(class_distances(pair).values)
        best = _assigned(squared)
        # The second best lacks a pair of the best: each is made too expensive in turn.
        pairs = best * np.eye(len(best))[best.any(axis=1), :, None]
        rest = [_assigned(squared + (1 + 2 * squared.sum()) * one) for one in pairs]
        second = min(rest, key=lambda table: float((table * squared).sum()))
        return cls(pair.by_classes(), squared, best, second)

    def is_within_noise(self, other: np.ndarray) -> bool:
        """Whether another matching costs more than the best by no more than two standard errors."""
        gap = float(((other - self.best) * self.squared).sum())
        return gap <= _NOISE * class_cost_error(self.pair, torch.from_numpy(other - self.best))

    def by_names(self) -> np.ndarray:
        """The table of equal names."""
        first, second = self.pair.source.classes, self.pair.target.classes
        return np.array([[float(spelled(a) == spelled(b)) for b in second] for a in first])

    def text(self, table: np.ndarray, other: np.ndarray) -> str:
        """The pairs of a matching that are not in another one."""
        first, second = self.pair.source.classes, self.pair.target.classes
        return ", ".join(f"{first[i]} → {second[j]}" for i, j in np.argwhere(table > other))


def _assigned(squared: np.ndarray) -> np.ndarray:
    """The matching of least cost."""
    from scipy.optimize import linear_sum_assignment

    # Costs are nonnegative, and any number of classes on either side is allowed.
    # The Hungarian method: the permutation of least total cost.
    table = np.zeros_like(squared)
    table[linear_sum_assignment(squared)] = 1.0
    return table

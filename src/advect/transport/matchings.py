"""One-to-one matchings of classes, by the sum of squared class distances: which is best, which is second
best, and whether they differ by more than the noise of the samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from advect.cost import GroundCost, PairCost
from advect.cost.names import spelled
from advect.data.dataset import LabeledDataset
from advect.data.labels import occurring_classes
from advect.transport.class_tables import class_distances
from advect.transport.sampling_error import class_cost_error

_NOISE = 2.0  # standard errors
_CLEAR = 0.5  # of the cost of the best matching: a larger difference is not tested for noise
_MAX_CLASSES = 60


@dataclass(frozen=True, eq=False)
class Matchings:
    """Matchings of the classes that have samples, as tables (k, k') of zeros and ones.

    Attributes:
        pair: the cost whose label distances are used.
        squared: squared class distances, 0 where a class has no samples.
        best, second: the two best matchings.
    """

    pair: PairCost
    squared: np.ndarray
    best: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, pair: PairCost) -> Matchings | None:
        """The matchings; None for fewer than two classes or many, and without hard labels."""
        sides = (pair.source, pair.target)
        some = [np.flatnonzero(occurring_classes(side)) for side in sides]
        hard = all(bool(side.labeled.all()) and not side.has_soft_labels for side in sides)
        if not hard or min(map(len, some)) < 2 or max(map(len, some)) > _MAX_CLASSES:
            return None
        squared = np.square(class_distances(pair).values)
        best = _assigned(squared, some)
        others = []
        for row, column in np.argwhere(best):
            forbidden = squared.copy()
            forbidden[row, column] = 1 + 2 * np.nansum(squared)
            others.append(_assigned(forbidden, some))
        squared = np.nan_to_num(squared)
        second = min(others, key=lambda table: float((table * squared).sum()))
        return cls(pair.by_classes(), squared, best, second)

    def is_within_noise(self, other: np.ndarray) -> bool:
        """Whether another matching costs more than the best by no more than two standard errors."""
        gap = float(((other - self.best) * self.squared).sum())
        if gap > _CLEAR * float((self.best * self.squared).sum()) > 0:
            return False
        return gap <= _NOISE * class_cost_error(self.pair, torch.from_numpy(other - self.best))

    def by_names(self) -> np.ndarray:
        """The table of equal names."""
        rows, columns = (
            list(map(spelled, side.classes)) for side in (self.pair.source, self.pair.target)
        )
        equal = np.array([[row == column for column in columns] for row in rows])
        return equal * self.best.max(axis=1)[:, None] * self.best.max(axis=0)

    def text(self, table: np.ndarray, other: np.ndarray) -> str:
        """The pairs of a matching that are not in another one."""
        classes = self.pair.source.classes, self.pair.target.classes
        pairs = np.argwhere((table > 0) & (other == 0))
        return ", ".join(f"{classes[0][i]} → {classes[1][j]}" for i, j in pairs)


def _assigned(squared: np.ndarray, some: list[np.ndarray]) -> np.ndarray:
    """The matching of least cost among some rows and columns."""
    from scipy.optimize import linear_sum_assignment

    table, inside = np.zeros_like(squared), np.ix_(*some)
    rows, columns = linear_sum_assignment(squared[inside])
    table[some[0][rows], some[1][columns]] = 1.0
    return table


def names_contradicted(cost: GroundCost, source: LabeledDataset, target: LabeledDataset) -> bool:
    """Whether the best class matching keeps less than a third of the names that both datasets have, and is
    better than matching by name by more than noise.
    """
    found = Matchings.of(cost.fitted(source, target).between(source, target))
    if found is None:
        return False
    names = found.by_names()
    # A random matching keeps one name on average, however many there are.
    few = 3 * float((names * found.best).sum()) < float(found.best.sum())
    return few and not found.is_within_noise(names)

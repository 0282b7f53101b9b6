"""The columns of an audit, from points, classes and masses: what samples of like features say about
a label, how well a sample fits its class, whom it stands for, what it repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect._util.linalg import principal_axes
from advect._util.memory import MemoryLimit
from advect.questions.audit_plans import Crowd

_ROUND = 0.1  # of the mean variance, added to that within classes before distances are taken in it
_FEW = 8  # samples of a class, below which the spread of others stands in for theirs
_LEAST_SPREAD = 0.01  # of a typical distance: less is no difference
_NORMAL = 1.4826  # from the median deviation to the standard deviation of a Gaussian


@dataclass(frozen=True, eq=False)
class Side:
    """Points of a dataset, (n, p), their classes among names that both datasets share (−1 without a
    label), and their masses.
    """

    points: Tensor
    codes: Tensor
    mass: Tensor

    def at(self, rows: Tensor) -> Side:
        """Some of the samples, with masses that sum to one; equal ones where none has any."""
        mass = self.mass[rows]
        total = mass.sum()
        mass = mass / total if total > 0 else torch.full_like(mass, 1 / max(1, len(mass)))
        return Side(self.points[rows], self.codes[rows], mass)

    def crowd(self, limit: MemoryLimit) -> Crowd:
        return Crowd.of(self.points, self.mass, limit)

    def counts(self, k: int) -> Tensor:
        """Samples of each class."""
        return torch.bincount(self.codes[self.codes >= 0], minlength=k)


@dataclass(frozen=True, eq=False)
class Votes:
    """What the samples of a crowd say about the label of others.

    Attributes:
        shares: of each class, (n, k); NaN where nobody says anything.
        loudest: the position of the one who speaks loudest for the class of most votes, (n,).
        weights: of those who vote, (m,).
    """

    shares: Tensor
    loudest: Tensor
    weights: Tensor

    @classmethod
    def within(cls, side: Side, crowd: Crowd, k: int) -> Votes:
        """About each sample by the others, in two rounds: in the second one, voices count by how far
        others agreed with them in the first.
        """
        even = (side.codes >= 0).to(crowd.mass.dtype)
        agreed = cls._counted(crowd.among_itself(), side.codes, even, k).of(side.codes)
        alone = side.counts(k)[side.codes.clamp_min(0)] == 1  # nobody could agree with these
        weights = even * torch.where(alone, 1.0, agreed.nan_to_num(0.0))
        return cls._counted(crowd.among_itself(), side.codes, weights, k)

    def about(self, points: Tensor, side: Side, crowd: Crowd, k: int) -> Votes:
        """About new samples, by those who voted here."""
        return self._counted(crowd.toward(points), side.codes, self.weights, k)

    @classmethod
    def _counted(cls, plan: Iterable[Any], codes: Tensor, weights: Tensor, k: int) -> Votes:
        onto = one_hot(codes.clamp_min(0), k).to(weights.dtype) * weights[:, None]
        shares, loudest = [], []
        for _, block, *_ in plan:
            found = block @ onto
            total = found.sum(dim=1, keepdim=True)
            shares.append(torch.where(total > 0, found / total, torch.nan))
            speaks = codes == found.argmax(dim=1)[:, None]
            loudest.append((block * weights).where(speaks, -1.0).argmax(dim=1))
        return cls(torch.cat(shares), torch.cat(loudest), weights)

    def usual(self, side: Side, k: int) -> Tensor:
        """The mean share that each class gets from others where it is the label, (k,)."""
        own, there = self.of(side.codes), (side.codes >= 0) & ~self.shares[:, 0].isnan()
        sums = own.new_zeros(k).index_add_(0, side.codes[there], own[there])
        return sums / side.counts(k).clamp_min(1)

    def of(self, codes: Tensor) -> Tensor:
        """The share of each sample's own label; NaN without a label."""
        found = self.shares.gather(1, codes.clamp_min(0)[:, None])[:, 0]
        return torch.where(codes >= 0, found, torch.nan)


@dataclass(frozen=True, eq=False)
class Fits:
    """The crowd of each class of more than one sample, and how prices within it are spread, as
    lengths: what a misfit is measured by.

    Prices are taken where the variance within classes is about the same in all directions, so that
    what no sample of a class ever does counts for much, however small it is.
    """

    crowds: dict[int, Crowd]
    spreads: dict[int, Spread]

    @classmethod
    def of(cls, side: Side, k: int, limit: MemoryLimit) -> Fits:
        rows = {code: (side.codes == code).nonzero()[:, 0] for code in range(k)}
        crowds = {code: side.at(mine).crowd(limit) for code, mine in rows.items() if len(mine) > 1}
        lengths = {code: _length(crowd.price) for code, crowd in crowds.items()}
        return cls(crowds, Spread.of_all(lengths, crowds))

    def within(self, codes: Tensor) -> np.ndarray:
        """Misfit of the samples themselves."""
        lengths = {code: _length(crowd.price) for code, crowd in self.crowds.items()}
        return self._scaled(codes, lengths, self.spreads)

    def about(self, points: Tensor, codes: Tensor, own: bool) -> np.ndarray:
        """Misfit of new samples, NaN where their class is not there: in deviations from what is usual
        among themselves (``own``; where a class has few of them, among those here), or among those
        here.
        """
        rows = {code: codes == code for code in self.crowds}
        lengths = {
            code: _length(crowd.prices(points[rows[code]]))
            for code, crowd in self.crowds.items()
            if bool(rows[code].any())
        }
        spreads = self.spreads
        if own:
            enough = {code: each for code, each in lengths.items() if len(each) >= _FEW}
            spreads = spreads | Spread.of_all(enough, self.crowds)
        return self._scaled(codes, lengths, spreads)

    @staticmethod
    def _scaled(
        codes: Tensor, lengths: dict[int, np.ndarray], spreads: dict[int, Spread]
    ) -> np.ndarray:
        found = np.full(len(codes), np.nan)
        for code, each in lengths.items():
            found[(codes == code).numpy()] = (each - spreads[code].middle) / spreads[code].size
        return found


@dataclass(frozen=True)
class Spread:
    """The median of some lengths, and how far they are from it, in a way that a few odd ones do not
    change.
    """

    middle: float
    size: float

    @classmethod
    def of_all(cls, lengths: dict[int, np.ndarray], crowds: dict[int, Crowd]) -> dict[int, Spread]:
        """Of each class; where it has few samples or they do not vary, the spread of all stands in."""
        middle = {code: float(np.median(each)) for code, each in lengths.items()}
        deviations = {code: np.abs(each - middle[code]) for code, each in lengths.items()}
        unit = {code: (2 * crowds[code].typical) ** 0.5 for code in lengths}
        pooled = [each / unit[code] for code, each in deviations.items()]
        shared = _NORMAL * float(np.median(np.concatenate(pooled))) if pooled else 0.0
        found = {}
        for code, each in deviations.items():
            own = _NORMAL * float(np.median(each)) if len(each) >= _FEW else 0.0
            size = max(own or shared * unit[code], _LEAST_SPREAD * unit[code])
            found[code] = cls(middle[code], size)
        return found


def _length(prices: Tensor) -> np.ndarray:
    """Prices are half squared lengths, which tail off more slowly than lengths do."""
    return (2 * prices.clamp_min(0)).sqrt().numpy()


def roundness(sides: Sequence[Side], k: int) -> Tensor:
    """A matrix that takes points to where classes are round: the inverse root of the variance within
    classes, pooled over them.
    """
    points, codes = (
        torch.cat(part) for part in zip(*((side.points, side.codes) for side in sides), strict=True)
    )
    parts = []
    for code in range(k):
        mine = points[codes == code]
        if len(mine) > 1:
            parts.append(mine - mine.median(dim=0).values)
    deviations = torch.cat(parts) if parts else points.new_zeros(1, points.shape[1])
    values, vectors = torch.linalg.eigh(deviations.T @ deviations / len(deviations))
    values = values.clamp_min(0)
    mean = float(values.mean())
    if mean <= 0:  # each class is one point
        return torch.eye(points.shape[1], dtype=points.dtype)
    return vectors / ((1 - _ROUND) * values + _ROUND * mean).sqrt()


def reduced(points: Tensor) -> Tensor:
    """The same points in as few coordinates as they need, distances unchanged."""
    if points.shape[1] <= len(points):
        return points
    centre = points.mean(dim=0)
    _, axes = principal_axes([points - centre])
    return (points - centre) @ axes.T


def stands_for(mass: Tensor, plan: Iterable[Any], n: int) -> np.ndarray:
    """How many times its share of the samples each of n others is chosen by them, were everyone free
    to choose: 1 on average.
    """
    chosen = torch.zeros(n, dtype=mass.dtype)
    for rows, _, free, _ in plan:
        chosen += mass[rows] @ free
    return (n * chosen).numpy()

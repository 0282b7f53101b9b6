"""Means and covariances of classes from weighted samples (paper, section 2.3): at once, or part by
part for data that does not fit in memory; in float64 whatever the samples are in.

Both begin with ``centred_classes``, which takes the samples of each class around their mean. At
once, the centred samples are the rows of factors, and a graph to the samples stays. Part by part,
``Moments`` sums their products, and two parts are joined by the rule of Chan, Golub and LeVeque,

    μ = μ₁ + (w₂/w) δ ,   C = C₁ + C₂ + (w₁ w₂/w) δ δᵀ ,        δ = μ₂ − μ₁ ,  w = w₁ + w₂

in any order. Means are kept as a fixed point nearby and what is missing to it, so that features far
from the origin lose no digits however many parts there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect.data.laws.covariance import Factored
from advect.data.laws.gaussians import Gaussians, group_shares, group_sizes

_FEW_CLASSES = 64  # that are centred one by one


def estimate_gaussians(x: Tensor, y: Tensor, weights: Tensor, n_classes: int) -> Gaussians:
    """Mean and factored covariance of each class y ∈ {0, …, k−1} of a weighted sample (x, y), in
    float64.
    """
    found = centred_classes(x, y, weights, n_classes)
    scale = _scales(found.share, found.freedom, found.y)
    rows = found.points.mul_(scale[:, None])
    return Gaussians(found.near + found.rest, Factored(rows, found.counts))


@dataclass(frozen=True, eq=False)
class CentredClasses:
    """Samples in the order of their classes, each around the mean of its class, ``near + rest``.

    Attributes:
        y, share, points: class, weight within it, and centred features of each sample.
        counts: samples of each class.  freedom: 1 − Σ share² of each class.
        near, rest: (k, d), a sample of each class, and what its mean is away from there.
    """

    y: Tensor
    share: Tensor
    points: Tensor
    counts: tuple[int, ...]
    freedom: Tensor
    near: Tensor
    rest: Tensor


def centred_classes(x: Tensor, y: Tensor, weights: Tensor, n_classes: int) -> CentredClasses:
    """The samples of each class around their mean; differentiable in x."""
    order = torch.argsort(y, stable=True)
    sizes = group_sizes(y, n_classes)
    share, freedom, heaviest = weigh(y, weights, n_classes)
    share, labels = share[order], y[order]
    # About a sample of the class: differences of what is near are exact, and those of equal samples
    # are zero. About the heaviest: the mean may be nearer to it than rounding of features is.
    present = heaviest < len(y)  # a class without samples is at the origin
    near = share.new_zeros(n_classes, x.shape[1])
    if len(x):
        heavy = x.detach().index_select(0, torch.where(present, heaviest, 0)).double()
        near = torch.where(present[:, None], heavy, near)
    points = x.index_select(0, order).double()
    if points.requires_grad or n_classes > _FEW_CLASSES:
        points = points.sub_(near.index_select(0, labels))
        rest = torch.zeros_like(near).index_add(0, labels, share[:, None] * points)
        points = points.sub_(rest.index_select(0, labels))
        return CentredClasses(labels, share, points, sizes, freedom, near, rest)
    # class by class, in place: fresh memory takes longer than the arithmetic
    rest = torch.zeros_like(near)
    parts = zip(points.split(sizes), share.split(sizes), near, rest, strict=True)
    for block, weights, about, mean in parts:
        block -= about
        torch.mv(block.mT, weights, out=mean)
        block -= mean
    return CentredClasses(labels, share, points, sizes, freedom, near, rest)


@dataclass(frozen=True, eq=False)
class Moments:
    """Of one class: rows, Σ w, mean = near + rest (d,), and Σ w (x − μ)(x − μ)ᵀ as (d, d), or its
    diagonal (d,).
    """

    count: int
    weight: float
    freedom: float
    near: Tensor
    rest: Tensor
    scatter: Tensor

    @classmethod
    def of_classes(
        cls, x: Tensor, y: Tensor, weights: Tensor, n_classes: int, diagonal: bool
    ) -> list[Moments]:
        """Those of each class of one part; every class has samples."""
        found = centred_classes(x, y, weights, n_classes)
        totals = weights.new_zeros(n_classes).index_add_(0, y, weights).tolist()
        parts = zip(found.points.split(found.counts), found.share.split(found.counts), strict=True)
        moments = []
        for k, (points, share) in enumerate(parts):
            mass = totals[k] or float(len(points))
            weighted = points * (mass * share)[:, None]
            scatter = (weighted * points).sum(dim=0) if diagonal else weighted.T @ points
            freedom, near, rest = mass * float(found.freedom[k]), found.near[k], found.rest[k]
            moments.append(cls(len(points), totals[k], freedom, near, rest, scatter))
        return moments

    @property
    def mean(self) -> Tensor:
        return self.near + self.rest

    def joined(self, other: Moments) -> Moments:
        """Those of both parts together."""
        weight, count = self.weight + other.weight, self.count + other.count
        if (self.weight == 0) != (other.weight == 0):
            # rows without weight, beside others, are counted and say nothing else
            return replace(other if self.weight == 0 else self, count=count)
        # About the heavier part: the mean may be nearer to its own than rounding of features is.
        one, two = (self, other) if self._mass >= other._mass else (other, self)
        large, small = one._mass / (one._mass + two._mass), two._mass / (one._mass + two._mass)
        step = (two.near - one.near) + (two.rest - one.rest)
        spread = step.square() if one.scatter.ndim == 1 else torch.outer(step, step)
        scatter = one.scatter + two.scatter + (two._mass * large) * spread
        freedom = large * one.freedom + small * two.freedom + 2 * two._mass * large
        return Moments(count, weight, freedom, one.near, one.rest + small * step, scatter)

    @property
    def _mass(self) -> float:
        """The weights that the moments are of."""
        return self.weight or float(self.count)

    def covariance(self) -> Tensor:
        """Divided by the freedom, which is n − 1 for equal weights; zero for a single sample."""
        return self.scatter / self.freedom if self.freedom > 0 else torch.zeros_like(self.scatter)


def class_shares(y: Tensor, weights: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Weights within each class, p, and √(p / (1 − Σ p²)), which makes factor rows; float64."""
    share, freedom, _ = weigh(y, weights, n_classes)
    return share, _scales(share, freedom, y)


def weigh(y: Tensor, weights: Tensor, n_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights within each class, p; of each class 1 − Σ p², and which row is its heaviest (the
    first; n if it has none).
    """
    share, n = group_shares(y, weights.double(), n_classes), len(y)
    top = share.new_zeros(n_classes).scatter_reduce_(0, y, share, "amax")
    rows = torch.arange(n, device=y.device)
    heaviest = y.new_full((n_classes,), n).scatter_reduce_(
        0, y, torch.where(share == top[y], rows, n), "amin"
    )
    others = torch.where(rows == heaviest[y], 0, share)
    light = share.new_zeros(n_classes).index_add_(0, y, others)
    freedom = (top * light).index_add_(0, y, others * (1 - others))
    return share, freedom, heaviest


def _scales(share: Tensor, freedom: Tensor, y: Tensor) -> Tensor:
    """√p / √freedom, roots first: a heavy sample beside very light ones is beyond floats."""
    return (
        torch.where(freedom > 0, 1 / torch.where(freedom > 0, freedom, 1).sqrt(), 0)[y]
        * share.sqrt()
    )

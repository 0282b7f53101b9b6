"""Means and covariances of classes part by part, for data that does not fit in memory.

The products of the centred samples of each part are summed, and two parts are joined by the rule of
Chan, Golub and LeVeque,

    μ = μ₁ + (w₂/w) δ ,   C = C₁ + C₂ + (w₁ w₂/w) δ δᵀ ,        δ = μ₂ − μ₁ ,  w = w₁ + w₂

in any order. Means are stored as a fixed nearby point plus a difference, so that features far from the
origin lose no digits, whatever the number of parts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from advect.data.laws.gaussians import centred_classes


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of one class: rows, Σ w, mean = near + rest (d,), and Σ w (x − μ)(x − μ)ᵀ as (d, d), or its
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
        """The moments of each class of one part; every class has samples."""
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
        """The moments of both parts together."""
        weight, count = self.weight + other.weight, self.count + other.count
        if (self.weight == 0) != (other.weight == 0):
            # rows without weight are counted and do not change the moments of others
            return replace(other if self.weight == 0 else self, count=count)
        # Relative to the heavier part, to whose mean the joint mean may be nearer than the rounding of
        # features.
        one, two = (self, other) if self._mass >= other._mass else (other, self)
        large, small = one._mass / (one._mass + two._mass), two._mass / (one._mass + two._mass)
        step = (two.near - one.near) + (two.rest - one.rest)
        spread = step.square() if one.scatter.ndim == 1 else torch.outer(step, step)
        scatter = one.scatter + two.scatter + (two._mass * large) * spread
        freedom = large * one.freedom + small * two.freedom + 2 * two._mass * large
        return Moments(count, weight, freedom, one.near, one.rest + small * step, scatter)

    @property
    def _mass(self) -> float:
        """The weights of the moments."""
        return self.weight or float(self.count)

    def covariance(self) -> Tensor:
        """Divided by the freedom, which is n − 1 for equal weights; zero for a single sample."""
        return self.scatter / self.freedom if self.freedom > 0 else torch.zeros_like(self.scatter)

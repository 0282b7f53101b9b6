"""What a labeled sample is on a line: its features along a direction θ, and its label as a few
numbers that describe the law of its class there.

    projection      a sample (x, y) along θ is the point                     and the law of y is
    "gaussian"      (θ·x, √w θ·μ_y, √w (θ·S_y θ)^½)                          N(μ_y, S_y)
    "moments"       (θ·x, √w m_1, …, √w m_k),  m_i = E_y[(θ·X)^λ_i] / λ_i!     whatever it is

with w = label_weight. A second direction ψ, of as many components, makes the point a number. Orders
λ_1, …, λ_k are drawn with each direction, λ_i from the zero-truncated Poisson law of rate i: that is
the moment transform projection of s-OTDD (Nguyen et al. 2025), whose label part is linear in ψ, so
that it is the mean over the class of one polynomial of θ·X."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from advect._util.checks import check_count, check_known
from advect._util.linalg import root
from advect.data.dataset import LabeledDataset

PROJECTIONS = ("gaussian", "moments")


@dataclass(frozen=True, eq=False)
class Lines:
    """Directions of features, and of the points that describe labeled samples along them.

    Attributes:
        theta: (d, p), of length 1, float64.
        psi: (q, p), of length 1, float64; q = 1 without labels.
        orders: of the moments, (k, p); None where there are none.
    """

    theta: Tensor
    psi: Tensor
    orders: Tensor | None = None

    def __len__(self) -> int:
        return self.theta.shape[1]

    def some(self, start: int, stop: int, like: Tensor) -> Lines:
        """Those from ``start`` on, with the dtype and device of ``like``."""
        orders = None if self.orders is None else self.orders[:, start:stop].to(like.device)
        return Lines(self.theta[:, start:stop].to(like), self.psi[:, start:stop].to(like), orders)


@dataclass(frozen=True, eq=False)
class Frame:
    """Where features are looked at from, (d,), and the length that is one there."""

    centre: Tensor
    unit: float = 1.0


class LabelLines(Protocol):
    """The law of a class along lines, as a number for each."""

    @property
    def parts(self) -> int:
        """How many numbers describe a law."""
        ...

    @property
    def straight(self) -> float:
        """The mean of ``slope``², in units of that of a component of ψ: how often a part is the
        mean of the law.
        """
        ...

    def orders(self, n: int, generator: torch.Generator | None) -> Tensor | None:
        """What else is drawn with n directions."""
        ...

    def slope(self, lines: Lines) -> Tensor:
        """What the number has of the mean of the law along each line, (p,)."""
        ...

    def of_law(self, lines: Lines, means: Tensor, variances: Tensor, unit: float) -> Tensor:
        """The numbers of Gaussian laws, (p, k), from means and variances along the lines, (p, k)."""
        ...

    def of_samples(
        self,
        lines: Lines,
        images: Tensor,
        y: Tensor,
        share: tuple[Tensor, Tensor],
        k: int,
        unit: float,
    ) -> Tensor:
        """The numbers of the laws of k classes, (p, k), from samples along the lines, (p, n)."""
        ...


class GaussianLabels:
    """Mean and deviation: two laws N(m, s²) on a line are at the Euclidean distance of (m, s)."""

    parts = 2
    straight = 1.0

    def orders(self, n: int, generator: torch.Generator | None) -> None:
        return None

    def slope(self, lines: Lines) -> Tensor:
        return lines.psi[1]

    def of_law(self, lines: Lines, means: Tensor, variances: Tensor, unit: float) -> Tensor:
        return lines.psi[1][:, None] * means + lines.psi[2][:, None] * root(variances)

    def of_samples(
        self,
        lines: Lines,
        images: Tensor,
        y: Tensor,
        share: tuple[Tensor, Tensor],
        k: int,
        unit: float,
    ) -> Tensor:
        weights, scales = share
        zeros = images.new_zeros(len(images), k)
        means = zeros.index_add(1, y, weights * images)
        spread = (images - means[:, y]) * scales
        deviations = root(zeros.index_add(1, y, spread.square()))
        return lines.psi[1][:, None] * means + lines.psi[2][:, None] * deviations


@dataclass(frozen=True)
class MomentLabels:
    """Moments of random orders over their factorials, of features in units of the frame."""

    n_moments: int = 5

    def __post_init__(self) -> None:
        check_count("n_moments", self.n_moments)

    @property
    def parts(self) -> int:
        return self.n_moments

    @property
    def straight(self) -> float:
        return sum(rate / math.expm1(rate) for rate in range(1, self.n_moments + 1))

    def orders(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Zero-truncated Poisson orders of rates 1, …, k: (k, n), by the inverse of their
        distribution functions.

        >>> drawn = MomentLabels(2).orders(20_000, torch.Generator().manual_seed(0))
        >>> [round(float(row.double().mean()), 1) for row in drawn], int(drawn.min())
        ([1.6, 2.3], 1)
        """
        rates = torch.arange(1, self.n_moments + 1, dtype=torch.float64)
        last = int(self.n_moments + 12 * math.sqrt(self.n_moments) + 20)
        counts = torch.arange(1, last + 1, dtype=torch.float64)
        logs = counts * rates[:, None].log() - torch.lgamma(counts + 1)
        below = (logs - torch.expm1(rates).log()[:, None]).exp().cumsum(dim=1)
        uniform = torch.rand(self.n_moments, n, generator=generator, dtype=torch.float64)
        return 1 + torch.searchsorted(below, uniform, right=True).clamp_max(last - 1)

    def slope(self, lines: Lines) -> Tensor:
        assert lines.orders is not None
        return (lines.psi[1:] * (lines.orders == 1)).sum(dim=0)

    def _coefficients(self, lines: Lines) -> Tensor:
        """What ψ gives to each order, from 0 on, (J + 1, p)."""
        assert lines.orders is not None
        found = lines.psi.new_zeros(int(lines.orders.max()) + 1, len(lines))
        return found.scatter_add(0, lines.orders, lines.psi[1:])

    def of_law(self, lines: Lines, means: Tensor, variances: Tensor, unit: float) -> Tensor:
        given, m, v = self._coefficients(lines), means / unit, variances / unit**2
        before, moment = torch.zeros_like(m), torch.ones_like(m)  # E X^j / j!, from j = 0
        total = torch.zeros_like(m)
        for order in range(1, len(given)):
            before, moment = moment, (m * moment + v * before) / order
            total = total + given[order][:, None] * moment
        return unit * total

    def of_samples(
        self,
        lines: Lines,
        images: Tensor,
        y: Tensor,
        share: tuple[Tensor, Tensor],
        k: int,
        unit: float,
    ) -> Tensor:
        weights = share[0]
        # Powers of what is far away and has no mass would be infinite.
        z = torch.where(weights > 0, images / unit, 0)
        given = self._coefficients(lines)
        total = torch.zeros_like(z)
        for order in range(len(given) - 1, 0, -1):
            # c_1 z + c_2 z²/2! + … = z (c_1 + z/2 (c_2 + z/3 (c_3 + …)))
            total = (total + given[order][:, None]) * (z / order)
        return unit * images.new_zeros(len(images), k).index_add(1, y, weights * total)


def label_lines(projection: str, n_moments: int) -> LabelLines:
    """The projection of this name."""
    check_known("projection", projection, PROJECTIONS)
    moments = MomentLabels(n_moments)  # checked in any case
    return moments if projection == "moments" else GaussianLabels()


def uniform_lines(
    dim: int, n: int, labels: LabelLines | None, generator: torch.Generator | None
) -> Lines:
    """n independent lines, uniform on both spheres."""
    parts = 1 if labels is None else 1 + labels.parts
    drawn = (
        torch.randn(size, n, generator=generator, dtype=torch.float64) for size in (dim, parts)
    )
    theta, psi = (part / torch.linalg.vector_norm(part, dim=0) for part in drawn)
    return Lines(theta, psi, None if labels is None else labels.orders(n, generator))


def along(data: LabeledDataset, theta: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of the laws that a dataset carries, along directions: (p, k) both."""
    assert data.law is not None
    means = theta.T @ (data.law.means - centre).to(theta).T
    return means, data.law.covariance.along(theta)

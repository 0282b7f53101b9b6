"""Internal energies F(ρ) = ∫ f(ρ(x)) dx by the deterministic blob method (Carrillo, Craig and Patacchini 2019; paper, eq. 8).

Particles have no density, so the energy is taken with the density smoothed by a Gaussian kernel φ of width h:

    F_h(ρ) = ∫ f(φ ∗ ρ)/(φ ∗ ρ) dρ = Σ_i w_i g(Σ_j w_j φ(x_i − x_j))

with g(r) = log r for the entropy f(r) = r log r (heat flow), and g(r) = r^(m−1)/(m−1) for f(r) = r^m/(m−1) (porous medium). Its
particle gradient is the blob scheme. The stochastic scheme for the entropy is the integrator ``EulerMaruyama``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect._checks import check_positive
from advect.data import LabeledDataset
from advect.errors import InputError
from advect.functionals.base import Functional
from advect.linalg import squared_distances


class Internal(Functional):
    """∫ f(ρ) dx with f(r) = r log r for ``power`` 1 and r^m/(m − 1) for power m > 1.

    Args:
        power: 1 for the entropy, whose flow is heat; m > 1 for the porous medium ∂_t ρ = Δ ρ^m.
        bandwidth: the kernel width h, in the units of the features; by default Silverman's rule for the current
            samples. Small ones need many particles in each ball of radius h.
        by_class: use the density of each class alone, as the density of z = (x, y).

    Example:
        >>> import torch, advect as ad
        >>> wide, narrow = (ad.LabeledDataset(s * torch.randn(300, 1, generator=torch.Generator().manual_seed(0)), [0] * 300)
        ...                 for s in (2.0, 1.0))
        >>> entropy = ad.Internal()
        >>> bool(entropy(wide) < entropy(narrow))            # spreading lowers ∫ρ log ρ
        True
    """

    def __init__(self, power: float = 1.0, *, bandwidth: float | None = None, by_class: bool = False) -> None:
        if check_positive("power", power) < 1:
            raise InputError("power must be at least 1", power, "1 is the entropy, 2 the porous medium of Boussinesq.")
        self.power, self.by_class = power, by_class
        self.bandwidth = None if bandwidth is None else check_positive("bandwidth", bandwidth)

    def __call__(self, rho: LabeledDataset) -> Tensor:
        width = self.bandwidth or self._silverman(rho)
        mass = rho.weights.clamp_min(torch.finfo(rho.x.dtype).tiny)  # a logarithm of zero has no gradient
        squares = squared_distances(rho.x, rho.x, (rho.weights, rho.weights))
        logs = mass.log().to(rho.x.dtype) - squares / (2 * width**2)  # log w_j φ up to a constant
        if self.by_class:
            rho.require_labels("Internal(by_class=True)")
            logs = logs.masked_fill(rho.y[:, None] != rho.y, -math.inf)
        log_density = torch.logsumexp(logs, dim=1) - rho.dim / 2 * math.log(2 * math.pi * width**2)
        m = self.power
        values = log_density if m == 1 else torch.exp((m - 1) * log_density) / (m - 1)
        return torch.where(rho.weights > 0, rho.weights * values, 0).sum()

    @staticmethod
    def _silverman(rho: LabeledDataset) -> float:
        present = rho.weights > 0
        x, weights, d = rho.x.detach()[present].double(), rho.weights[present], rho.dim
        squares = float(weights.square().sum())  # of equal weights, 1 / n
        variance = weights @ (x - weights @ x).square() / (1 - squares) if len(x) > 1 else x.new_zeros(d)
        spread = float(variance.mean().sqrt())
        return (spread or 1.0) * (4 * squares / (d + 2)) ** (1 / (d + 4))

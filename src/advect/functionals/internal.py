"""Internal energies F(ρ) = ∫ f(ρ(x)) dx by the deterministic blob method (Carrillo, Craig and
Patacchini 2019; paper, eq. 9).

Particles have no density, so the energy is taken with the density smoothed by a Gaussian kernel φ
of width h:

    F_h(ρ) = ∫ f(φ ∗ ρ)/(φ ∗ ρ) dρ = Σ_i w_i g(Σ_j w_j φ(x_i − x_j))

with g(r) = log r for the entropy f(r) = r log r (heat flow), and g(r) = r^(m−1)/(m−1) for f(r) =
r^m/(m−1) (porous medium). Its particle gradient is the blob scheme. The stochastic scheme for the
entropy is the integrator ``EulerMaruyama``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from advect._util import check_positive, refuse_if
from advect.data.dataset import LabeledDataset
from advect.data.laws import estimate_gaussians, squared_distances
from advect.functionals.base import Functional, State


class Internal(Functional):
    """∫ f(ρ) dx with f(r) = r log r for ``power`` 1 and r^m/(m − 1) for power m > 1.

    Without a ``bandwidth``, the width is estimated from the samples that a flow starts with and is part
    of the state, so that a whole flow descends one functional. A single call estimates it from the
    samples it is given: pass a ``bandwidth`` to compare the values of several datasets.

    Args:
        power: 1 for the entropy, whose flow is heat; m > 1 for the porous medium ∂_t ρ = Δ ρ^m.
        bandwidth: the kernel width h, in the units of the features; by default Silverman's rule for
            the samples that a flow starts with. A small width needs many particles in each ball of
            radius h.

    Example:
        >>> import torch, advect as ad
        >>> wide, narrow = (ad.LabeledDataset(s * torch.randn(300, 1, generator=torch.Generator().manual_seed(0)), [0] * 300)
        ...                 for s in (2.0, 1.0))
        >>> entropy = ad.Internal()
        >>> bool(entropy(wide) < entropy(narrow))            # spreading lowers ∫ρ log ρ
        True
    """

    def __init__(self, power: float = 1.0, *, bandwidth: float | None = None) -> None:
        refuse_if(
            check_positive("power", power) < 1,
            "power must be at least 1",
            power,
            "Use 1 for the entropy and 2 for the porous medium equation.",
        )
        self.power = power
        self.bandwidth = None if bandwidth is None else check_positive("bandwidth", bandwidth)

    def begin(self, rho: LabeledDataset) -> State:
        if self.bandwidth is not None:
            return {}
        return {"width": torch.tensor(self._silverman(rho), dtype=torch.float64)}

    def terms(self, rho: LabeledDataset, state: State) -> tuple[dict[str, Tensor], State]:
        state = state or self.begin(rho)
        return {self.name: self._energy(rho, self.bandwidth or float(state["width"]))}, state

    def _energy(self, rho: LabeledDataset, width: float) -> Tensor:
        # A mass of zero would make the logarithm infinite and its gradient NaN.
        mass = rho.weights.clamp_min(torch.finfo(rho.x.dtype).tiny)
        squares = squared_distances(rho.x, rho.x, (rho.weights, rho.weights))
        logs = mass.log().to(rho.x.dtype) - squares / (2 * width**2)  # log w_j φ up to a constant
        log_density = torch.logsumexp(logs, dim=1) - rho.dim / 2 * math.log(2 * math.pi * width**2)
        m = self.power
        values = log_density if m == 1 else torch.exp((m - 1) * log_density) / (m - 1)
        return torch.where(rho.weights > 0, rho.weights * values, 0).sum()

    @staticmethod
    def _silverman(rho: LabeledDataset) -> float:
        one_class = torch.zeros(len(rho), dtype=torch.long, device=rho.x.device)
        law = estimate_gaussians(rho.x.detach(), one_class, rho.weights, 1)
        d, spread = rho.dim, math.sqrt(float(law.covariance.traces()) / rho.dim)
        inverse_n = float(rho.weights.square().sum())  # 1 / n for equal weights
        return (spread or 1.0) * (4 * inverse_n / (d + 2)) ** (1 / (d + 4))

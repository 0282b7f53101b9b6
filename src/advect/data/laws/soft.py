"""Class laws from soft labels: every sample counts for each class by its probability.

    μ_c = Σ s_i x_i ,   S_c = φ_c Σ s_i (x_i − μ_c)(x_i − μ_c)ᵀ / (1 − Σ s_i²)        s_i ∝ w_i p_ic

The factor φ_c = 1 − Π (1 − p_ic / max p_c), over all but the most probable sample, is 1 as soon as
two samples are equally probable. It makes the estimate continuous where a class has one sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.laws.covariance import Factored
from advect.data.laws.gaussians import Gaussians
from advect.data.laws.moments import estimate_gaussians

_NEGLIGIBLE = 1e-18  # share of the mass of a class


def class_rows(probabilities: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every sample once for each class that it may be of: its row, the class, and w_i p_ic."""
    mass = weights[:, None] * probabilities
    kept = (mass > _NEGLIGIBLE * mass.sum(dim=0)) | ((mass == 0) & (probabilities > 0))
    rows, codes = kept.nonzero(as_tuple=True)
    return rows, codes, mass[rows, codes]


def estimate_soft(x: Tensor, probabilities: Tensor, weights: Tensor) -> Gaussians:
    """Mean and factored covariance of each class, in float64; differentiable in x."""
    rows, codes, mass = class_rows(probabilities, weights)
    laws = estimate_gaussians(x[rows], codes, mass, probabilities.shape[1])
    spread, covariance = several(probabilities, weights).sqrt(), laws.covariance
    if bool((spread == 1).all()):
        return laws
    counts = torch.bincount(codes, minlength=len(spread))
    own = covariance.tensors()["rows"] * spread.repeat_interleave(counts)[:, None]
    return Gaussians(laws.means, Factored(own, tuple(counts.tolist())))


def several(probabilities: Tensor, weights: Tensor) -> Tensor:
    """φ of each class, (k,): how far a class is of more than one sample."""
    likely = torch.where(weights[:, None] > 0, probabilities, 0)
    most, top = likely.max(dim=0)
    relative = likely / torch.where(most > 0, most, 1)
    relative[top, torch.arange(len(top), device=top.device)] = 0
    return -torch.expm1(torch.log1p(-relative).sum(dim=0))

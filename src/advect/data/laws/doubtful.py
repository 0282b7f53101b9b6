"""Laws of classes from samples whose labels are probabilities: every sample is one of each class, by
its share.

    μ_c = Σ s_i x_i ,   S_c = φ_c Σ s_i (x_i − μ_c)(x_i − μ_c)ᵀ / (1 − Σ s_i²)        s_i ∝ w_i p_ic

The factor φ_c = 1 − Π (1 − p_ic / max p_c), over all but the likeliest sample, is 1 as soon as two
samples are as likely as each other. A class of one sample has no spread, and a little doubt of the
others, whose n − 1 would be a division of nothing by nothing, gives it only a little.
"""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.laws.covariance import Factored
from advect.data.laws.gaussians import Gaussians
from advect.data.laws.moments import estimate_gaussians

_NOTHING = 1e-18  # of the mass of a class, and of a probability beside the largest: not felt


def class_rows(probabilities: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every sample once for each class that it may be of: its row, the class, and w_i p_ic.

    Example:
        >>> import torch
        >>> rows, codes, mass = class_rows(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([0.5, 0.5]))
        >>> rows.tolist(), codes.tolist(), mass.tolist()
        ([0, 1, 1], [0, 0, 1], [0.5, 0.25, 0.25])
    """
    mass = weights[:, None] * probabilities
    felt = (mass > _NOTHING * mass.sum(dim=0)) | ((mass == 0) & (probabilities > 0))
    rows, codes = felt.nonzero(as_tuple=True)
    return rows, codes, mass[rows, codes]


def estimate_doubtful(x: Tensor, probabilities: Tensor, weights: Tensor) -> Gaussians:
    """Mean and factored covariance of each class, in float64; differentiable in x.

    Certain labels give what ``estimate_gaussians`` gives.

    Example:
        >>> import torch
        >>> x, p = torch.tensor([[0.0], [2.0], [8.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]])
        >>> laws = estimate_doubtful(x, p.double(), torch.ones(3).double() / 3)
        >>> laws.means.flatten().round(decimals=9).tolist(), laws.covariances().flatten().round(decimals=9).tolist()
        ([2.4, 8.0], [13.5, 0.0])
    """
    rows, codes, mass = class_rows(probabilities, weights)
    laws = estimate_gaussians(x[rows], codes, mass, probabilities.shape[1])
    spread, covariance = several(probabilities, weights).sqrt(), laws.covariance
    if bool((spread == 1).all()):
        return laws
    counts = torch.bincount(codes, minlength=len(spread))
    own = covariance.tensors()["rows"] * spread.repeat_interleave(counts)[:, None]
    return Gaussians(laws.means, Factored(own, tuple(counts.tolist())))


def several(probabilities: Tensor, weights: Tensor) -> Tensor:
    """φ of each class, (k,): how far a class is of more than one sample.

    Example:
        >>> import torch
        >>> several(torch.tensor([[1.0, 0.5], [0.25, 0.5]]).double(), torch.ones(2)).round(decimals=6).tolist()
        [0.25, 1.0]
    """
    likely = torch.where(weights[:, None] > 0, probabilities, 0)
    most, top = likely.max(dim=0)
    relative = likely / torch.where(most > 0, most, 1)
    relative[top, torch.arange(len(top), device=top.device)] = 0
    return -torch.expm1(torch.log1p(-relative).sum(dim=0))

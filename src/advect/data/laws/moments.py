"""Gaussian label laws estimated from weighted samples (paper, section 2.3), in float64 whatever the
samples are in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.laws.covariance import Factored
from advect.data.laws.gaussians import Gaussians, group_shares


def estimate_gaussians(x: Tensor, y: Tensor, weights: Tensor, n_classes: int) -> Gaussians:
    """Mean and factored covariance of each class y ∈ {0, …, k−1} of a weighted sample (x, y), in
    float64.

        μ = Σ p_i x_i ,   S = Σ p_i (x_i − μ)(x_i − μ)ᵀ / (1 − Σ p_i²)        p = weights within the class

    Weights say how much a sample counts (reliability weights): n samples of equal weight give the
    usual n − 1, whether some coincide or not, and S is continuous in the weights where they are
    positive: two samples have one S, however light the lighter of them, but a weight of exactly 0
    is no sample. Two rows of half the weight are two samples, not one: the same point listed twice
    has a slightly smaller S than once. A single sample, or all at one point, gives exactly zero. A
    class without mass is described by its samples with equal weights; one without samples by a
    point at the origin.

    Example:
        >>> import torch
        >>> x, y = torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1])
        >>> laws = estimate_gaussians(x, y, torch.ones(3), 2)
        >>> laws.means.tolist(), laws.covariances().flatten().tolist()
        ([[1.0], [5.0]], [2.0, 0.0])
    """
    order = torch.argsort(y, stable=True)
    counts = torch.bincount(y, minlength=n_classes)
    share, freedom, heaviest = weigh(y, weights, n_classes)
    scale, labels = _scales(share, freedom, y), y[order]
    # About a sample of the class: differences of what is near are exact, and those of equal samples
    # are zero. About the heaviest: the mean may be nearer to it than rounding of features is.
    present = counts > 0
    anchors = share.new_zeros(n_classes, x.shape[1])
    anchors[present] = x.detach()[heaviest[present]].double()
    points = x[order].double() - anchors[labels]
    middles = torch.zeros_like(anchors).index_add(0, labels, share[order, None] * points)
    rows = (points - middles[labels]) * scale[order, None]
    return Gaussians(anchors + middles, Factored(rows, tuple(counts.tolist())))


def class_shares(y: Tensor, weights: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Weights within each class, p, and the scales √(p / (1 − Σ p²)) that turn centred samples into
    factor rows; float64.
    """
    share, freedom, _ = weigh(y, weights, n_classes)
    return share, _scales(share, freedom, y)


def weigh(y: Tensor, weights: Tensor, n_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Weights within each class, p; of each class 1 − Σ p², and which row is its heaviest (the
    first; n if it has none).

    1 − Σ p² = Σ p (1 − p), and 1 − p of the heaviest is what the others have: nothing cancels,
    however light they are."""
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
    """√p / √freedom, roots first: the quotient of a heavy sample beside very light ones is beyond
    floats.
    """
    return (
        torch.where(freedom > 0, 1 / torch.where(freedom > 0, freedom, 1).sqrt(), 0)[y]
        * share.sqrt()
    )

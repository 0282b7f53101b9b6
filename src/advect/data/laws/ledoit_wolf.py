"""How far to shrink a covariance, from the samples that it is estimated from (Ledoit and Wolf 2004).

    λ = min(1, b² / ‖S − T‖²) ,        b² ≈ E‖S − Σ‖²

b is the error that S has for being estimated from few samples. With T = (tr S/d) I the share is that
of Ledoit and Wolf; for any T that does not depend on the samples it minimises E‖(1 − λ) S + λ T − Σ‖²
as well, which a pooled T does nearly. Norms come from products of samples where those are fewer than
dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.laws.covariance import Covariance
from advect.data.laws.moments import CentredClasses

_FEWEST = 3  # samples that tell how far their covariance may be off: two are alike but for a sign


def inner_products(a: Covariance, b: Covariance) -> Tensor:
    """⟨S_i, T_i⟩ = tr S_i T_i of each pair, (k,), float64: ‖A Bᵀ‖² of factors."""
    if a.is_diagonal and b.is_diagonal:
        return (a.scales().double() * b.scales().double()).square().sum(dim=1)
    if not (a.has_factors and b.has_factors):
        return (a.dense().double() * b.dense()).sum(dim=(1, 2))
    blocks = zip(a.compressed.parts(), b.compressed.parts(), strict=True)
    return torch.stack([(one @ two.mT).square().sum() for one, two in blocks])


def ledoit_wolf_shares(found: CentredClasses, own: Covariance, target: Covariance) -> Tensor:
    """λ (k,) of classes with samples ``found``, covariances ``own`` and targets; 1 for classes of
    fewer than three samples.
    """
    blocks = zip(found.points.split(found.counts), found.share.split(found.counts), strict=True)
    errors = torch.stack([_squared_error(points, share) for points, share in blocks])
    scale = torch.where(found.freedom > 0, found.freedom, 1).square()
    apart = inner_products(own, own) + inner_products(target, target)
    apart = apart - 2 * inner_products(own, target)
    shares = errors / scale / apart.clamp_min(torch.finfo(torch.float64).tiny)
    several = found.share.new_zeros(len(own)).index_add_(0, found.y, (found.share > 0).double())
    return torch.where(several < _FEWEST, 1.0, shares.clamp(0, 1))


def _squared_error(points: Tensor, share: Tensor) -> Tensor:
    """b² of one class, by products of its samples or by its matrix, whichever is smaller."""
    if len(points) <= points.shape[1]:
        products = (points @ points.mT).square() @ share  # xᵀSx
    else:
        products = ((points @ (points.mT @ (points * share[:, None]))) * points).sum(dim=1)
    lengths = points.square().sum(dim=1).square()
    return (share.square() * (lengths - 2 * products + share @ products)).sum()

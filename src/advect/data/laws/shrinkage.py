"""Covariances of few samples pulled toward better known ones (beyond the paper).

    S_i  ↦  (1 − λ_i) S_i + λ_i T_i

Factors stay factors: their rows are stacked, and no d × d matrix is made unless T is a ball."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_known
from advect.data.laws.covariance import Covariance, Diagonal, Factored, Full, root
from advect.errors import InputError

_AIMS = ("pooled", "spherical")


def blended(a: Covariance, a_shares: Tensor, b: Covariance, b_shares: Tensor) -> Covariance:
    """a_i S_i + b_i T_i for k covariances each and shares (k,), in float64: deviations if both are
    diagonal, factors if both have them, else matrices.
    """
    first, second = a_shares.double(), b_shares.double()
    if a.is_diagonal and b.is_diagonal:
        variances = (each.scales().double().square() for each in (a, b))
        one, two = variances
        return Diagonal(root(first[:, None] * one + second[:, None] * two))
    if not (a.has_factors and b.has_factors):
        matrices = first[:, None, None] * a.dense() + second[:, None, None] * b.dense()
        return Full(matrices)
    parts = [
        (each.compressed.each_row(root(shares))[:, None] * each.compressed.rows).split(
            each.compressed.sizes
        )
        for each, shares in ((a, first), (b, second))
    ]
    # a share of nothing has no rows
    kept = [
        [block[: 0 if weight == 0 else None] for block, weight in zip(blocks, shares, strict=True)]
        for blocks, shares in zip(parts, (first.tolist(), second.tolist()), strict=True)
    ]
    rows = [torch.cat(pair) for pair in zip(*kept, strict=True)]
    return Factored(torch.cat(rows), tuple(map(len, rows)))


def pooled(covariance: Covariance, shares: Tensor) -> Covariance:
    """Σ p_i S_i as one covariance, in float64 and of the same kind."""
    shares = shares.double()
    if covariance.is_diagonal:
        variances = shares @ covariance.scales().double().square()
        return Diagonal(root(variances)[None])
    if not covariance.has_factors:
        return Full(torch.einsum("k,kde->de", shares, covariance.dense().double())[None])
    kept = covariance.take(shares.nonzero()[:, 0]).compressed
    rows = kept.each_row(root(shares[shares != 0]))[:, None] * kept.rows
    return Factored(rows, (len(rows),)).compressed


def aim(own: Covariance, laws: Any, *, rescale: bool, mass: Tensor | None) -> Covariance:
    """The k covariances that ``own`` are pulled toward; see ``Gaussians.shrunk``."""
    traces = own.traces().double()
    if isinstance(laws, str):
        check_known("aim of a shrinkage", laws, _AIMS)
        if laws == "spherical":
            return Diagonal(root(traces / own.dim)[:, None].expand(-1, own.dim))
        mass = (traces > 0).double() if mass is None else mass.double()
        toward = pooled(own, mass / mass.sum().clamp_min(torch.finfo(torch.float64).tiny))
    else:
        if not hasattr(laws, "covariance"):
            remedy = f"Pass ad.Gaussians, or one of {', '.join(map(repr, _AIMS))}."
            raise InputError("laws are shrunk toward others", repr(laws), remedy)
        toward: Covariance = laws.covariance
    if toward.dim != own.dim or len(toward) not in (1, len(own)):
        raise InputError(
            f"laws to shrink toward must be {len(own)}, or one for all, of dimension {own.dim}",
            f"{len(toward)} of dimension {toward.dim}",
            "Give one for each law, in the same feature space.",
        )
    if len(toward) < len(own):
        toward = toward.take(torch.zeros(len(own), dtype=torch.long, device=traces.device))
    if not rescale:
        return toward
    goals = toward.traces().double()
    known = (traces > 0) & (goals > 0)
    factors = torch.where(known, traces / torch.where(known, goals, 1), 1)
    return blended(toward, factors, toward, torch.zeros_like(factors))

"""Bures geodesics between Gaussian laws (McCann 1997), for covariances of any rank.

Roots and inverses of d × d matrices are never taken. With factors S = AᵀA and S' = BᵀB, and R the polar
factor of B Aᵀ, x = Aᵀg and x' = Bᵀ(R g + (I − RRᵀ)^½ h) with independent noise g, h are an optimal
coupling. So (1 − t) x + t x' has the factor

    [ (1 − t) A + t RᵀB ;  t (I − RRᵀ) B ]

Where an optimal coupling is not unique, as between laws on lines at right angles, this one is independent
outside the common part."""

from __future__ import annotations

import torch
from torch import Tensor

from advect._util import refuse_if
from advect._util.threads import side_by_side
from advect.data.laws.covariance import Diagonal, Factored
from advect.data.laws.gaussians import Gaussians
from advect.data.laws.wasserstein import polar_factor

_ROUNDING = 1e-13  # of ‖A‖ ‖B‖: products below this are zero up to rounding


def geodesic(a: Gaussians, b: Gaussians, t: float) -> Gaussians:
    """The laws at time t from a_i to b_i, row by row, along W₂ geodesics, in float64."""
    refuse_if(
        len(a) != len(b) or a.dim != b.dim,
        "a geodesic goes from each law to the one in its row",
        f"{len(a)} and {len(b)} laws of dimensions {a.dim} and {b.dim}",
        "Take matched laws with laws.take(rows).",
    )
    means = (1 - t) * a.means.double() + t * b.means.double()
    if a.covariance.is_diagonal and b.covariance.is_diagonal:
        one, two = (laws.covariance.scales().double() for laws in (a, b))
        return Gaussians(means, Diagonal((1 - t) * one + t * two))
    pairs = list(zip(a.covariance.compressed.parts(), b.covariance.compressed.parts(), strict=True))
    found = side_by_side(lambda pair: _factor_between(*pair, t), pairs, rows=a.dim)
    rows = torch.cat([means.new_zeros(0, a.dim), *found])
    return Gaussians(means, Factored(rows, tuple(map(len, found))))


def detached(laws: Gaussians) -> Gaussians:
    """The same laws without a graph."""
    return laws.with_tensors({name: value.detach() for name, value in laws.tensors().items()})


def _factor_between(own: Tensor, other: Tensor, t: float) -> Tensor:
    """The factor at time t between two factors, with no more rows than columns."""
    length = float(torch.linalg.vector_norm(other))
    polar = polar_factor(other @ own.mT, _ROUNDING * float(torch.linalg.vector_norm(own)) * length)
    image = polar.mT @ other
    rest = other - polar @ image  # directions without a counterpart grow from zero, independently
    rows = (1 - t) * own + t * image
    if float(torch.linalg.vector_norm(rest)) > _ROUNDING * length:
        rows = torch.cat([rows, t * rest])
    return rows if len(rows) <= rows.shape[1] else torch.linalg.qr(rows, mode="r")[1]

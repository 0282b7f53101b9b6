"""Laws between laws: Bures geodesics (McCann 1997) and barycenters (Agueh and Carlier 2011; the fixed
point of Álvarez-Esteban et al. 2016), for covariances of any rank.

Roots and inverses of d × d matrices are never taken. With factors S = AᵀA and S' = BᵀB, and R the polar
factor of B Aᵀ, x = Aᵀg and x' = Bᵀ(R g + (I − RRᵀ)^½ h) with independent noise g, h are an optimal
coupling. So (1 − t) x + t x' has the factor

    [ (1 − t) A + t RᵀB ;  t (I − RRᵀ) B ]

and one step of the fixed point of a barycenter with factor F is F ← Σ_s w_s R_sᵀ A_s. Where an optimal
coupling is not unique, as between laws on lines at right angles, this is the one that is independent
off the common part."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from advect._util.polar import polar_factor
from advect._util.threads import side_by_side
from advect.data.laws.covariance import Diagonal, Factored
from advect.data.laws.gaussians import Gaussians
from advect.errors import InputError

_ROUNDING = 1e-13  # of ‖A‖ ‖B‖: what a product in float64 cannot tell from zero
# what a step takes off the sum of squared distances, of the mean trace, where a fixed point is there:
# laws of full rank come to rounding in tens of steps, singular ones to as good a sum in hundreds
_SETTLED, _NEAR = 1e-16, 1e-7
_PATIENCE, _MOST = 20, 400  # steps


def geodesic(a: Gaussians, b: Gaussians, t: float) -> Gaussians:
    """The laws at time t from a_i to b_i, row by row, along W₂ geodesics, in float64:

        μ_t = (1 − t) μ + t μ' ,   W₂(a, a_t) = t W₂(a, b) ,   W₂(a_t, b) = (1 − t) W₂(a, b)

    Diagonal laws stay diagonal; others have factors of at most d rows.

    Args:
        a, b: k laws each, of one dimension.
        t: from 0 to 1.

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws.between import geodesic
        >>> a = ad.Gaussians(torch.zeros(1, 2), ad.Diagonal(torch.tensor([[1.0, 2.0]])))
        >>> b = ad.Gaussians(torch.tensor([[4.0, 0.0]]), ad.Diagonal(torch.tensor([[3.0, 2.0]])))
        >>> half = geodesic(a, b, 0.5)
        >>> half.means.tolist(), half.covariance.scales().tolist()
        ([[2.0, 0.0]], [[2.0, 2.0]])
    """
    if len(a) != len(b) or a.dim != b.dim:
        raise InputError(
            "a geodesic goes from each law to the one in its row",
            f"{len(a)} and {len(b)} laws of dimensions {a.dim} and {b.dim}",
            "Take matched laws with laws.take(rows).",
        )
    means = (1 - t) * a.means.double() + t * b.means.double()
    if a.covariance.is_diagonal and b.covariance.is_diagonal:
        one, two = (laws.covariance.scales().double() for laws in (a, b))
        return Gaussians(means, Diagonal((1 - t) * one + t * two))
    pairs = list(zip(a.covariance.compressed.parts(), b.covariance.compressed.parts(), strict=True))
    found = side_by_side(lambda pair: _on_the_way(*pair, t), pairs, rows=a.dim)
    return Gaussians(means, _factored(found, a.dim, means))


def law_barycenters(laws: Sequence[Gaussians], shares: Tensor) -> tuple[Gaussians, bool]:
    """Laws that minimise Σ_l share_l W₂²(·, law_l), one for each row of shares, and whether all fixed
    points were reached.

    One law with a share is that law, two are met on their geodesic, diagonal ones by the mean of
    their deviations; others by the fixed point, whose sum of squared distances never rises.

    Args:
        laws: Gaussians of one dimension, taken together in their order: K laws.
        shares: (g, K), not negative, rows that sum to one.

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws.between import law_barycenters
        >>> laws = ad.Gaussians(torch.tensor([[0.0], [6.0]]), ad.Diagonal(torch.tensor([[1.0], [4.0]])))
        >>> found, reached = law_barycenters([laws], torch.tensor([[2 / 3, 1 / 3]]))
        >>> found.means.round(decimals=3).tolist(), found.covariance.scales().round(decimals=3).tolist(), reached
        ([[2.0]], [[2.0]], True)
    """
    shares = shares.double()
    shares = shares / shares.sum(dim=1, keepdim=True)
    means = shares @ torch.cat([part.means.double() for part in laws])
    if all(part.covariance.is_diagonal for part in laws):
        deviations = torch.cat([part.covariance.scales().double() for part in laws])
        return Gaussians(means, Diagonal(shares @ deviations)), True
    factors = [rows for part in laws for rows in part.covariance.compressed.parts()]

    def met(row: Tensor) -> tuple[Tensor, bool]:
        some = row.nonzero()[:, 0].tolist()
        return _met([factors[at] for at in some], row[some].tolist())

    found = side_by_side(met, list(shares), rows=means.shape[1])
    covariance = _factored([rows for rows, _ in found], means.shape[1], means)
    return Gaussians(means, covariance), all(reached for _, reached in found)


def detached(laws: Gaussians) -> Gaussians:
    """The same laws without a graph."""
    return laws.with_tensors({name: value.detach() for name, value in laws.tensors().items()})


def replaced(laws: Gaussians, rows: Tensor, others: Gaussians) -> Gaussians:
    """The laws with others in some rows, (k,) bool; in float64, diagonal where both are.

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws.between import replaced
        >>> laws = ad.Gaussians(torch.zeros(2, 1), ad.Diagonal(torch.ones(2, 1)))
        >>> other = ad.Gaussians(torch.ones(1, 1), ad.Diagonal(torch.tensor([[3.0]])))
        >>> replaced(laws, torch.tensor([False, True]), other).covariance.scales().tolist()
        [[1.0], [3.0]]
    """
    means = laws.means.double().masked_scatter(rows[:, None], others.means.double())
    if laws.covariance.is_diagonal and others.covariance.is_diagonal:
        before, after = (part.covariance.scales().double() for part in (laws, others))
        return Gaussians(means, Diagonal(before.masked_scatter(rows[:, None], after)))
    new = iter(others.covariance.compressed.parts())
    parts = zip(laws.covariance.compressed.parts(), rows.tolist(), strict=True)
    found = [next(new) if other else own for own, other in parts]
    return Gaussians(means, _factored(found, laws.dim, means))


def _met(factors: list[Tensor], shares: list[float]) -> tuple[Tensor, bool]:
    """The factor of one barycenter."""
    if len(factors) == 1:
        return factors[0], True
    if len(factors) == 2:
        return _on_the_way(factors[0], factors[1], shares[1]), True
    together = torch.cat([share**0.5 * f for f, share in zip(factors, shares, strict=True)])
    scale = float(together.square().sum())
    basis = None
    if len(together) < together.shape[1]:  # all there is lies in the span of the rows
        basis = torch.linalg.qr(together.mT)[0]
        factors, together = [f @ basis for f in factors], together @ basis
    rows, reached = _short(together), False
    for step in range(_MOST):
        moved = torch.stack(
            [share * _image(rows, f) for f, share in zip(factors, shares, strict=True)]
        ).sum(dim=0)
        gain, rows = float((moved - rows).square().sum()), moved
        reached = gain <= _NEAR * scale
        if gain <= _SETTLED * scale or (reached and step >= _PATIENCE):
            break
    return rows if basis is None else rows @ basis.mT, reached


def _image(own: Tensor, other: Tensor) -> Tensor:
    """RᵀB: where the noise of one factor is taken in the other."""
    return _polar(own, other).mT @ other


def _polar(own: Tensor, other: Tensor) -> Tensor:
    least = _ROUNDING * float(torch.linalg.vector_norm(own) * torch.linalg.vector_norm(other))
    return polar_factor(other @ own.mT, least)


def _on_the_way(own: Tensor, other: Tensor, t: float) -> Tensor:
    polar = _polar(own, other)
    image = polar.mT @ other
    rest = other - polar @ image
    rows = (1 - t) * own + t * image
    if float(torch.linalg.vector_norm(rest)) > _ROUNDING * float(torch.linalg.vector_norm(other)):
        rows = torch.cat([rows, t * rest])
    return _short(rows)


def _short(rows: Tensor) -> Tensor:
    """A factor of the same covariance with no more rows than it has columns."""
    return rows if len(rows) <= rows.shape[1] else torch.linalg.qr(rows, mode="r")[1]


def _factored(parts: list[Tensor], dim: int, like: Tensor) -> Factored:
    return Factored(torch.cat([like.new_zeros(0, dim), *parts]), tuple(len(rows) for rows in parts))

"""What every kind of covariance promises: to be the matrices that it says it is."""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.laws.bures import bures
from advect.data.laws.covariance import Covariance, Full
from advect.data.laws.gaussians import Gaussians
from advect.testing.problems import require


def check_covariance(covariance: Covariance, *, rtol: float = 1e-8) -> None:
    """Try covariances of a kind of one's own against the dense matrices that they stand for.

    Args:
        covariance: two or more of them, in float64; they may be singular.
        rtol: how far formulas may be from those of the matrices.

    Raises:
        AssertionError: says which promise is broken.

    Example:
        >>> import torch, advect as ad
        >>> deviations = torch.tensor([[1.0, 0.0], [2.0, 3.0]], dtype=torch.float64)
        >>> ad.testing.check_covariance(ad.Diagonal(deviations))
    """
    dense = covariance.dense()
    k, d = len(covariance), covariance.dim
    require(dense.shape == (k, d, d), "dense() must be k matrices d × d", tuple(dense.shape))
    _agree(dense, dense.mT, rtol, "matrices must be symmetric")
    least = float(torch.linalg.eigvalsh(dense).min())
    size = float(dense.abs().max())
    require(least >= -rtol * size, "matrices must be positive semi-definite", least)
    _check_formulas(covariance, dense, rtol)
    _check_parts(covariance, dense, rtol)
    _check_distances(covariance, dense, rtol)


def _check_formulas(covariance: Covariance, dense: Tensor, rtol: float) -> None:
    diagonals = dense.diagonal(dim1=1, dim2=2)
    _agree(covariance.traces(), diagonals.sum(1), rtol, "traces() must be those of the matrices")
    _agree(covariance.scales().square(), diagonals, rtol, "scales()² must be the variances")
    _agree(covariance.compressed.dense(), dense, rtol, "compressed must be the same covariances")
    basis = torch.randn(dense.shape[1], 2, generator=torch.Generator().manual_seed(0))
    basis = basis.to(dense)
    image = basis.mT @ dense @ basis
    _agree(covariance.carried(basis).dense(), image, rtol, "carried(B) must be Bᵀ S B")
    along = torch.einsum("dp,kde,ep->pk", basis, dense, basis)
    _agree(covariance.along(basis), along, rtol, "along(θ) must be the variances θᵀSθ")
    if covariance.is_diagonal:
        rest = dense - torch.diag_embed(diagonals)
        require(not rest.any(), "is_diagonal says that nothing is off the diagonal")


def _check_parts(covariance: Covariance, dense: Tensor, rtol: float) -> None:
    last = torch.tensor([len(covariance) - 1])
    _agree(covariance.take(last).dense(), dense[last], rtol, "take(i) must be those at i")
    again = covariance.with_tensors(covariance.tensors())
    _agree(again.dense(), dense, 0.0, "with_tensors(tensors()) must be the same covariances")
    narrow = covariance.to(dtype=torch.float32).dense()
    require(narrow.dtype == torch.float32, "to(dtype=…) must change the dtype", narrow.dtype)
    _agree(narrow.double(), dense, 1e-5, "to(dtype=…) must be the same covariances")


def _check_distances(covariance: Covariance, dense: Tensor, rtol: float) -> None:
    means = torch.zeros(dense.shape[:2], dtype=dense.dtype)
    own, plain = Gaussians(means, covariance), Gaussians(means, Full(dense))
    wanted = bures(plain, plain)
    _agree(bures(own, own), wanted, max(rtol, 1e-7), "W₂² must be that of the matrices")
    _agree(bures(own, plain), wanted, max(rtol, 1e-7), "W₂² to other kinds must be the same")


def _agree(found: Tensor, wanted: Tensor, rtol: float, promise: str) -> None:
    size = float(wanted.abs().max()) if wanted.numel() else 0.0
    off = float((found - wanted).abs().max()) if wanted.numel() else 0.0
    require(off <= rtol * size + 1e-14, promise, f"{off:.2e} off, of {size:.2e}")

"""Bures-Wasserstein distances between Gaussian laws (paper, section 2.3).

    W₂²(N(μ, S), N(μ', S')) = ‖μ − μ'‖² + tr S + tr S' − 2 tr (S^½ S' S^½)^½

Roots of d × d matrices are never taken. With any factors S = AᵀA and S' = BᵀB the last trace is the
nuclear norm ‖A Bᵀ‖_*, the sum of the singular values of a matrix whose sides are the ranks: classes
of few samples in many dimensions have small ones, and rank-deficient laws need no ridge. Diagonal
covariances commute, and then the formula is the squared distance of (μ, s) and (μ', s') with s the
standard deviations."""

from __future__ import annotations

import torch
from torch import Tensor

from advect.data.laws.gaussians import Gaussians
from advect.data.laws.linalg import squared_gaps
from advect.data.laws.nuclear import nuclear_norms
from advect.data.laws.single_norms import SampleProducts
from advect.errors import InputError


def bures(
    a: Gaussians,
    b: Gaussians,
    *,
    rtol: float = 0.0,
    wanted: Tensor | None = None,
    pulled: Tensor | None = None,
    samples: SampleProducts | None = None,
) -> Tensor:
    """W₂²(a_i, b_j) for all pairs of laws, as a (k, k') matrix; zero on the diagonal when ``a is
    b``.

    Differentiable in means and covariances; safe for rank-deficient and zero covariances. Computed
    in float64.

    Args:
        a, b: the laws.
        rtol: relative error that a distance may have: products are then taken in float32 where that
            is certain to be enough (``advect.data.laws.nuclear``). By default 0: exact to rounding in
            float64.
        wanted: (k, k') bool, the pairs that are asked for; distances of others mean nothing. When
            ``a is b``, those above the diagonal.
        pulled: (k, k') bool, pairs whose gradient is likely to be asked for: changes the order of the
            work, not the result.
        samples: products of the samples that the rows of factored covariances come from, where they
            are known: used where ``rtol`` allows.

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws import Full
        >>> near = ad.Gaussians(torch.zeros(1, 2), Full(torch.eye(2)[None]))
        >>> far = ad.Gaussians(torch.tensor([[3.0, 4.0]]), Full(4 * torch.eye(2)[None]))
        >>> round(ad.bures(near, far).item(), 6)    # 25 + 2 (2 - 1)^2
        27.0
    """
    if a.dim != b.dim:
        raise InputError(
            "laws must live in one feature space",
            f"dimensions {a.dim} and {b.dim}",
            "Bring both to one space with harmonize.",
        )
    dtype = torch.promote_types(a.means.dtype, b.means.dtype)
    if a.covariance.is_diagonal and b.covariance.is_diagonal:
        distances = squared_gaps(a.means, b.means)
        distances = distances + squared_gaps(a.covariance.scales(), b.covariance.scales())
    else:
        factors_a, factors_b = a.covariance.compressed, b.covariance.compressed
        apart = squared_gaps(a.means, b.means)
        traces = factors_a.traces()[:, None] + factors_b.traces()
        factors = factors_a.rows, factors_a.sizes, factors_b.rows, factors_b.sizes
        near = apart + traces
        norms = nuclear_norms(
            *factors, near=near, rtol=rtol, wanted=wanted, pulled=pulled, samples=samples
        )
        distances = apart + (traces - 2 * norms).clamp_min(0)
    if a is b:
        distances = distances * (
            1 - torch.eye(len(a), dtype=distances.dtype, device=distances.device)
        )
    return distances.to(dtype)

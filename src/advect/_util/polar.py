"""Polar factors U Vᵀ of K = U diag(s) Vᵀ, the gradients of nuclear norms."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_ROUNDING = 1e-13  # of ‖A‖ ‖B‖: what a product in float64 cannot tell from zero


def polar_factor(matrix: Tensor, least: float = 0.0) -> Tensor:
    """U Vᵀ for K = U diag(s) Vᵀ, by eigenvectors of the smaller Gram matrix; directions with s = 0
    contribute nothing.

    Squares cannot tell singular values below 1e-8 of the largest apart: those are decomposed again
    at their own scale, and those below 1e-12 of it, or below ``least``, count as zero."""
    return polar(matrix, least)[0]


def polar(matrix: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """The polar factor, and the singular values that it was made with."""
    if not matrix.numel():
        return torch.zeros_like(matrix), matrix.new_zeros(0)
    if matrix.shape[0] > matrix.shape[1]:
        factor, singular = polar(matrix.mT, least)
        return factor.mT, singular
    left = torch.linalg.eigh(matrix @ matrix.mT)[1]
    right = left.mT @ matrix  # rows s_i v_iᵀ
    singular = torch.linalg.vector_norm(right, dim=1)
    top = float(singular.max().clamp_min(torch.finfo(matrix.dtype).tiny))
    # of the whole: rounding must not become a direction at its own scale
    least = max(least, 1e-12 * top)
    large, small = singular > max(1e-6 * top, least), (singular > least) & (singular <= 1e-6 * top)
    factor = left[:, large] @ (right[large] / singular[large, None])
    if bool(small.any()):
        factor = factor + left[:, small] @ polar(right[small], least)[0]
    return factor, singular


def lengths(blocks: Iterable[Tensor]) -> Tensor:
    """‖A_i‖ of all blocks."""
    return torch.stack([torch.linalg.vector_norm(block) for block in blocks])


def rounding(a_lengths: Tensor, b_lengths: Tensor) -> Tensor:
    """Below which singular values of A_i B_jᵀ are rounding, (k, k')."""
    return _ROUNDING * a_lengths[:, None] * b_lengths

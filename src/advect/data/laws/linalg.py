"""Centred distances, principal axes and roots of covariances."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def centred(
    x: Tensor, y: Tensor, masses: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Both clouds about a common centre (that of the masses, if given), against cancellation."""
    middles = (
        [part.detach().mean(dim=0) for part in (x, y)]
        if masses is None
        else map(mass_centre, (x, y), masses)
    )
    centre = sum(middles) / 2
    moved = x - centre
    return moved, moved if y is x else y - centre


def mass_centre(x: Tensor, mass: Tensor) -> Tensor:
    """The mean of the points by their mass, without a graph."""
    return (mass / mass.sum()).to(x.dtype) @ x.detach()


def squared_distances(x: Tensor, y: Tensor, masses: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """‖x_i − y_j‖² (n, m) by one product about a common centre; never negative."""
    x, y = centred(x, y, masses)
    products = torch.addmm(x.square().sum(dim=1)[:, None], x, y.T, alpha=-2)  # (n, m)
    return (products + y.square().sum(dim=1)).clamp_min(0)


def root(values: Tensor) -> Tensor:
    """√ of each number, with derivative 0 at 0."""
    positive = values > 0
    return torch.where(positive, torch.where(positive, values, 1).sqrt(), 0)


_FEW = 4096
_ROWS = 256  # that are in float64 at a time


def squared_gaps(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖² in float64, by differences where pairs are few, which is exact for near ones."""
    if len(x) * len(y) > _FEW:
        gaps: Any = _WideSquaredDistances.apply(x, y)
        return gaps
    return torch.cdist(x.double(), y.double(), compute_mode="donot_use_mm_for_euclid_dist").square()


class _WideSquaredDistances(torch.autograd.Function):
    """‖x_i − y_j‖² in float64 in blocks, without a float64 copy of all points; gradient 2 (diag(G 1) x − G y)."""

    @staticmethod
    def forward(ctx, x: Tensor, y: Tensor) -> Tensor:
        centre = sum(part.mean(dim=0, dtype=torch.float64) for part in (x, y)) / 2
        ctx.save_for_backward(x, y, centre)
        columns = [part.double() - centre for part in y.split(_ROWS)]
        found = torch.empty(len(x), len(y), dtype=torch.float64, device=x.device)
        for out, rows in zip(found.split(_ROWS), x.split(_ROWS), strict=True):
            rows = rows.double() - centre
            for at, part in zip(out.split(_ROWS, 1), columns, strict=True):
                squares = part.square().sum(dim=1)
                at.copy_(torch.addmm(rows.square().sum(dim=1)[:, None], rows, part.T, alpha=-2))
                at.add_(squares).clamp_min_(0)
        return found

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (x, y, centre) = grads, ctx.saved_tensors
        ends = ((x, y, grad), (y, x, grad.mT))
        pulls = [
            _pull_of_squares(*end, centre) if wanted else None
            for end, wanted in zip(ends, ctx.needs_input_grad, strict=True)
        ]
        return tuple(pulls)


def _pull_of_squares(x: Tensor, y: Tensor, grad: Tensor, centre: Tensor) -> Tensor:
    pull = torch.empty_like(x)
    for out, rows, part in zip(pull.split(_ROWS), x.split(_ROWS), grad.split(_ROWS), strict=True):
        wide = (rows.double() - centre) * part.sum(dim=1, keepdim=True)
        for columns, weights in zip(y.split(_ROWS), part.split(_ROWS, 1), strict=True):
            wide.addmm_(weights, columns.double() - centre, alpha=-1)
        out.copy_(wide.mul_(2))
    return pull


def principal_axes(blocks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Directions (r, d) along which centred rows vary most, and their singular values (r,), in float64.

    Of rows that come in blocks only the triangular factor R of x = QR is kept: moments xᵀx would lose
    half the digits of small singular values. The largest loading of each direction is positive.
    """
    kept = None
    for block in blocks:
        block = block.double()
        rows = block if kept is None else torch.cat([kept, block])
        kept = torch.linalg.qr(rows, mode="r")[1] if len(rows) > rows.shape[1] else rows
    assert kept is not None, "principal axes of no rows"
    frame, square = torch.linalg.qr(kept.mT)  # (d, r) and (r, r): of few rows, far less to factor
    _, singular, axes = torch.linalg.svd(square.mT)
    axes = axes @ frame.mT
    size = axes.abs()
    # loadings that tie but for rounding: the first decides
    near = size >= size.amax(dim=1, keepdim=True) * (1 - 1e-9)
    return singular, axes * axes.gather(1, near.int().argmax(dim=1, keepdim=True)).sign()


class _SymmetricRoot(torch.autograd.Function):
    """S ↦ S^½ for batches of semi-definite matrices; its derivative solves X S^½ + S^½ X = dS."""

    @staticmethod
    def forward(ctx, matrices: Tensor, eigenvalues: Tensor, vectors: Tensor) -> Tensor:
        roots = eigenvalues.clamp_min(0).sqrt()
        ctx.save_for_backward(roots, vectors)
        return (vectors * roots[..., None, :]) @ vectors.mT

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (roots, vectors) = grads, ctx.saved_tensors
        sums = roots[..., :, None] + roots[..., None, :]
        # the null space has no derivative: take 0 there
        floor = sums.amax(dim=(-2, -1), keepdim=True) * 1e-12
        inverse = torch.where(sums > floor, 1 / sums.clamp_min(torch.finfo(sums.dtype).tiny), 0)
        inner = vectors.mT @ ((grad + grad.mT) / 2) @ vectors
        return vectors @ (inner * inverse) @ vectors.mT, None, None


def symmetric_root(matrices: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Symmetric square roots S^½ of positive semi-definite matrices (k, d, d), computed in float64.

    The derivative is taken as zero on the null space.
    """
    dtype = dtype or matrices.dtype
    symmetric = matrices.to(dtype)
    symmetric = ((symmetric + symmetric.mT) / 2).double()
    roots: Any = _SymmetricRoot.apply(symmetric, *torch.linalg.eigh(symmetric.detach()))
    return roots.to(dtype)

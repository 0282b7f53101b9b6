"""Nuclear norms ‖A_i B_jᵀ‖_* of all pairs in few large calls, for devices that are slow at many
small ones and that the program should not wait for.

One symmetric decomposition has all of it. With K = A Bᵀ = U diag(s) Vᵀ,

    [ 0  K ; Kᵀ 0 ]   has eigenvalues ±s and eigenvectors (u, ±v)/√2 ,

to rounding of the largest: there is no square to lose half the digits in, as in K Kᵀ. The norm is the
sum of the positive ones, and the gradient's polar factor U Vᵀ twice the upper right block of their
projector, without those below rounding; it is kept from the norms for the gradient. Factors are
filled up with rows of zeros to one size, which add eigenvalues 0. Pairs go in batches of some hundred
megabytes, and a batch is one wait: that of the decomposition's error code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from advect._util.polar import lengths, rounding

_ENTRIES = 2**26  # of the matrices that are decomposed in one call
_KEPT = 2**28  # entries of polar factors that are kept for a gradient; beyond, they are made again
_LEAST = 1e-12  # of the largest singular value: what is not told from zero


def batched_norms(a: Tensor, a_sizes: Sequence[int], b: Tensor, b_sizes: Sequence[int]) -> Tensor:
    """‖A_i B_jᵀ‖_* for stacked factors, (k, k'), differentiable in both; float64. When ``a is b``
    each pair is decomposed once.

    Example:
        >>> import torch
        >>> a = torch.eye(2, dtype=torch.float64)
        >>> [round(norm, 12) for norm in batched_norms(a, [2], 3 * a, [1, 1]).flatten().tolist()]
        [3.0, 3.0]
    """
    first = _stacked(a, a_sizes)
    second = first if a is b else _stacked(b, b_sizes)
    norms: Any = _Norms.apply
    if a is not b:
        return norms(first, second, False)
    # A Aᵀ is positive: its nuclear norm is its trace
    own = first.square().sum(dim=(1, 2))
    return norms(first, first.detach(), True) + own.diag_embed()


def _stacked(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """(k, r, d), by rows of zeros of one size; at least one."""
    size = max(1, *sizes) if sizes else 1
    if all(one == size for one in sizes):
        return rows.reshape(len(sizes), size, rows.shape[1])
    longest = rows.new_zeros(size, rows.shape[1])
    return pad_sequence([*rows.split(list(sizes)), longest], batch_first=True)[:-1]


class _Norms(torch.autograd.Function):
    """All pairs of (k, r, d) and (k', r', d); of one with itself those above the diagonal, and below
    it the same.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, symmetric: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.symmetric = symmetric
        entries = len(a) * len(b) * a.shape[1] * b.shape[1]
        keeps = any(ctx.needs_input_grad) and entries <= _KEPT
        norms, ctx.factors = _decomposed(a, b, symmetric, keeps)
        return norms

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        (grad,), (a, b) = grads, ctx.saved_tensors
        factors = ctx.factors
        if factors is None:
            factors = _decomposed(a, b, ctx.symmetric, keeps=True)[1]
        assert factors is not None
        if ctx.symmetric:
            grad = grad + grad.mT
        pulls = (factors * grad[:, :, None, None]).transpose(1, 2)  # (k, r, k', r')
        pulls = pulls.reshape(a.shape[0] * a.shape[1], b.shape[0] * b.shape[1])
        on_a = (pulls @ b.flatten(0, 1)).view_as(a) if ctx.needs_input_grad[0] else None
        on_b = (pulls.mT @ a.flatten(0, 1)).view_as(b) if ctx.needs_input_grad[1] else None
        return on_a, on_b, None


def _decomposed(a: Tensor, b: Tensor, symmetric: bool, keeps: bool) -> tuple[Tensor, Tensor | None]:
    """The norms (k, k'), and the polar factors (k, k', r, r') where they are to be kept."""
    shape = (len(a), len(b), a.shape[1], b.shape[1])
    norms = a.new_zeros(shape[:2])
    factors = a.new_zeros(shape) if keeps else None
    least = rounding(lengths(a), lengths(b))
    for i, j in _pairs(shape, a.shape[2], symmetric, a.device):
        found, polar = _norm_and_polar(a[i] @ b[j].mT, least[i, j], keeps)
        norms[i, j] = found
        if symmetric:
            norms[j, i] = found
        if factors is None or polar is None:
            continue
        factors[i, j] = polar
        if symmetric:
            factors[j, i] = polar.mT
    return norms, factors


def _pairs(
    shape: tuple[int, int, int, int], dim: int, symmetric: bool, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Positions of pairs, in batches; made on the device."""
    k, others, r, s = shape
    if symmetric:
        rows, columns = torch.triu_indices(k, k, offset=1, device=device)
    else:
        rows = torch.arange(k, device=device)[:, None].expand(k, others).reshape(-1)
        columns = torch.arange(others, device=device).repeat(k)
    step = max(1, _ENTRIES // max((r + s) ** 2, (r + s) * dim))
    return zip(rows.split(step), columns.split(step), strict=True)


def _norm_and_polar(products: Tensor, least: Tensor, wanted: bool) -> tuple[Tensor, Tensor | None]:
    """Of matrices (p, r, r')."""
    count, r, s = products.shape
    joint = products.new_zeros(count, r + s, r + s)
    joint[:, :r, r:], joint[:, r:, :r] = products, products.mT
    if not wanted:
        return torch.linalg.eigvalsh(joint).clamp_min(0).sum(dim=1), None
    values, vectors = torch.linalg.eigh(joint)
    few = min(r, s)
    singular, vectors = values[:, -few:], vectors[:, :, -few:]
    cut = torch.maximum(least, _LEAST * singular[:, -1])[:, None]
    left = vectors[:, :r] * (2.0 * (singular > cut))[:, None, :]
    return singular.clamp_min(0).sum(dim=1), left @ vectors[:, r:].mT

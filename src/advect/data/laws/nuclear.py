"""Nuclear norms ‖A Bᵀ‖_* of pairs of covariance factors, S = AᵀA and S' = BᵀB, and their gradients.

    tr (S^½ S' S^½)^½ = ‖A Bᵀ‖_*

No d × d root is needed when classes have fewer samples than dimensions. With A Bᵀ = U diag(s) Vᵀ the
gradient in A is U Vᵀ B. Decompositions run in float64 on the smaller side, one thread each.
``advect.data.laws.single_norms`` is cheaper where less precision is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from advect._util.threads import side_by_side
from advect.data.laws.linalg import lengths, polar_factor, rounding
from advect.data.laws.single_norms import Pair, Request, SampleProducts, SingleNorms

_SMALL = 16  # rows of factors that are decomposed in one batch
_ENTRIES = 4_000_000  # of the products in such a batch
_NEGLIGIBLE = 1e-5  # of a gradient, where not all digits are asked for


def nuclear_norms(
    a: Tensor,
    a_sizes: Sequence[int],
    b: Tensor,
    b_sizes: Sequence[int],
    *,
    near: Tensor | None = None,
    rtol: float = 0.0,
    wanted: Tensor | None = None,
    pulled: Tensor | None = None,
    samples: SampleProducts | None = None,
) -> Tensor:
    """‖A_i B_jᵀ‖_* for stacked factors A = [A_1; …; A_k] and B = [B_1; …; B_k'], (k, k'), in float64.

    When ``a is b`` each pair is decomposed once. Pairs whose part of a gradient is below rounding (or
    1e-5, with ``rtol``) in all its rows are skipped in the gradient.

    Args:
        a, a_sizes, b, b_sizes: factors, and the rows of each.
        near: (k, k'), from which twice a norm will be subtracted: the difference has to be precise.
        rtol: relative error that the difference may have; with 0 products are float64.
        wanted: (k, k') bool, the pairs that are needed; above the diagonal when ``a is b``.
        pulled: (k, k') bool, pairs whose gradient is expected: their polar factors are computed with
            the norms. This changes the work, not the result.
        samples: products of the samples that the rows are made of, if known.
    """
    alike = len(set(a_sizes)) == 1 and len(set(b_sizes)) == 1
    if alike and min(a_sizes[0], b_sizes[0]) > 0 and max(a_sizes[0], b_sizes[0]) <= _SMALL:
        factors = a.reshape(len(a_sizes), -1, a.shape[1]), b.reshape(len(b_sizes), -1, b.shape[1])
        # products of all pairs of many laws would dwarf their distances
        step = max(1, _ENTRIES // (len(b) * a_sizes[0]))
        small: Any = _SmallNuclearNorms.apply
        return torch.cat([small(part, factors[1]) for part in factors[0].split(step)])
    wanted = torch.ones(len(a_sizes), len(b_sizes), dtype=torch.bool) if wanted is None else wanted
    near = None if near is None else near.detach()
    likely = [[False] * len(b_sizes)] * len(a_sizes) if pulled is None else pulled.tolist()
    sizes = tuple(a_sizes), tuple(b_sizes)
    request = Request(*sizes, a is b, wanted.tolist(), near, rtol, likely)
    norms: Any = _NuclearNorms.apply(a, b, request, samples)
    return norms


class _NuclearNorms(torch.autograd.Function):
    """‖A_i B_jᵀ‖_* for all pairs of row blocks of A and B.

    Values come from singular values: roots of eigenvalues are exact to 1e-8 of the largest only, and a
    class would not be at distance zero from its own copy.
    """

    @staticmethod
    def forward(
        ctx, a: Tensor, b: Tensor, request: Request, samples: SampleProducts | None
    ) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.request = request
        norms = a.new_zeros(len(request.a_sizes), len(request.b_sizes))
        a_blocks, b_blocks = a.split(request.a_sizes), b.split(request.b_sizes)
        ctx.factors = {}
        known: dict[Pair, Tensor] = {}
        if request.single:
            kept = ctx.factors if any(ctx.needs_input_grad[:2]) else None
            known = SingleNorms(a, b, request, samples, kept).norms()

        def norm(pair: Pair) -> Tensor:
            return torch.linalg.svdvals(a_blocks[pair[0]] @ b_blocks[pair[1]].mT).sum()

        rest = [pair for pair in request.pairs if pair not in known]
        sums = side_by_side(norm, rest, rows=max(request.a_sizes, default=0))
        for (i, j), value in (*known.items(), *zip(rest, sums, strict=True)):
            norms[i, j] = value
        if not request.symmetric:
            return norms
        # A Aᵀ is positive: its nuclear norm is its trace
        own = torch.stack([block.square().sum() for block in a_blocks])
        return norms + norms.mT + own.diag()

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (a, b) = grads, ctx.saved_tensors
        request: Request = ctx.request
        a_blocks, b_blocks = a.split(request.a_sizes), b.split(request.b_sizes)
        if request.symmetric:
            grad = torch.triu(grad) + torch.tril(grad, diagonal=-1).mT
        sizes = lengths(a_blocks), lengths(b_blocks)
        least = rounding(*sizes)
        negligible = _NEGLIGIBLE if request.rtol else torch.finfo(grad.dtype).eps
        counts = _that_count(grad, *sizes, negligible=negligible).tolist()
        # of products with polar factors, which need no more digits
        dtype = torch.float32 if request.rtol else grad.dtype
        narrow = a.to(dtype).split(request.a_sizes), b.to(dtype).split(request.b_sizes)
        pulls = [torch.zeros_like(part, dtype=dtype) for part in (a, b)]
        on_a, on_b = pulls[0].split(request.a_sizes), pulls[1].split(request.b_sizes)
        first, second = ctx.needs_input_grad[:2]

        def factor(pair: Pair) -> Tensor:
            i, j = pair
            found = ctx.factors.get(pair)
            if found is None:
                found = polar_factor(a_blocks[i] @ b_blocks[j].mT, float(least[i, j]))
            return found.to(dtype) * grad[i, j].to(dtype)

        # row by row: all factors at once would be as large as the transport plan
        for i, size in enumerate(request.a_sizes):
            columns = [j for j in request.columns(i) if counts[i][j]]
            factors = side_by_side(factor, [(i, j) for j in columns], rows=size)
            if first and columns:
                others = torch.cat([narrow[1][j] for j in columns])
                torch.addmm(on_a[i], torch.cat(factors, dim=1), others, out=on_a[i])
            for j, each in zip(columns, factors, strict=True) if second else ():
                torch.addmm(on_b[j], each.mT, narrow[0][i], out=on_b[j])
        grad_a, grad_b = (part.to(a.dtype) for part in pulls)
        if request.symmetric and first:
            grad_a += (2 * grad.diagonal()).repeat_interleave(
                torch.tensor(request.a_sizes, device=a.device)
            )[:, None] * a
        return grad_a, grad_b, None, None


def _that_count(grad: Tensor, a_lengths: Tensor, b_lengths: Tensor, negligible: float) -> Tensor:
    """The pairs that a gradient needs, (k, k') bool: the others are negligible in every block of rows.

    The pull of a pair on A_i is at most |g_ij| ‖B_j‖, and on B_j at most |g_ij| ‖A_i‖.
    """
    counts = torch.zeros_like(grad, dtype=torch.bool)
    for pulls, dim in ((grad.abs() * b_lengths, 1), (grad.abs() * a_lengths[:, None], 0)):
        counts |= pulls * grad.shape[dim] > negligible * pulls.sum(dim=dim, keepdim=True)
    return counts


class _SmallNuclearNorms(torch.autograd.Function):
    """‖A_i B_jᵀ‖_* for batches of small factors (k, r, d) and (k', r', d), all pairs at once."""

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        products = torch.einsum("ird,jsd->ijrs", a, b)
        if products.shape[2:] == (2, 2):  # s_1 + s_2 = √(s_1² + s_2² + 2 s_1 s_2)
            return (products.square().sum(dim=(2, 3)) + 2 * torch.linalg.det(products).abs()).sqrt()
        return torch.linalg.svdvals(products).sum(dim=2)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (a, b) = grads, ctx.saved_tensors
        products = torch.einsum("ird,jsd->ijrs", a, b)
        left, singular, right = torch.linalg.svd(products, full_matrices=False)
        least = torch.maximum(rounding(lengths(a), lengths(b)), 1e-12 * singular.amax(dim=2))
        counts = (singular > least[:, :, None])[:, :, None, :]
        factors = (left * counts) @ right * grad[:, :, None, None]
        return torch.einsum("ijrs,jsd->ird", factors, b), torch.einsum("ijrs,ird->jsd", factors, a)

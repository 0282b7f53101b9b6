"""Bures-Wasserstein distances between Gaussian laws (paper, section 2.3).

    W₂²(N(μ, S), N(μ', S')) = ‖μ − μ'‖² + tr S + tr S' − 2 tr (S^½ S' S^½)^½

Roots of d × d matrices are never taken. With any factors S = AᵀA and S' = BᵀB the last trace is the
nuclear norm ‖A Bᵀ‖_*, the sum of the singular values of a matrix whose sides are the ranks: classes
of few samples in many dimensions have small ones, and rank-deficient laws need no ridge. With
A Bᵀ = U diag(s) Vᵀ its gradient in A is U Vᵀ B. Diagonal covariances commute, and then W₂ is the
distance of (μ, s) and (μ', s') with s the standard deviations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from advect._util import refuse_if
from advect._util.threads import side_by_side
from advect.data.laws.covariance import Factored
from advect.data.laws.gaussians import Gaussians, squared_distances

Pair = tuple[int, int]

_FEW_PAIRS = 4096  # of points, whose distances are taken from differences
SMALL_FACTORS = 48  # rows of factors whose products are decomposed in one batch
_FEW_ROWS = 8  # of products whose singular values are as cheap by the SVD
_BATCH_ENTRIES = 4_000_000  # of the products in such a batch
_ROUNDING = 1e-13  # of ‖A‖ ‖B‖: singular values of A Bᵀ in float64 below this are rounding
_SINGLE = 4 * torch.finfo(torch.float32).eps  # of ‖A‖ ‖B‖: error of a norm by float32 products
_NEGLIGIBLE = 1e-5  # of a gradient, if a tolerance is given
_KEPT_BYTES = 2**28  # of polar factors that are kept for a gradient


def squared_gaps(x: Tensor, y: Tensor) -> Tensor:
    """‖x_i − y_j‖² in float64, by differences where pairs are few, which is exact for near ones."""
    x, y = x.double(), y.double()
    if len(x) * len(y) > _FEW_PAIRS:
        return squared_distances(x, y)
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").square()


def bures(a: Gaussians, b: Gaussians, *, rtol: float = 0.0) -> Tensor:
    """W₂²(a_i, b_j) for all pairs of laws, as a (k, k') matrix; zero on the diagonal when ``a is
    b``.

    Differentiable in means and covariances; safe for rank-deficient and zero covariances. Computed
    in float64.

    Args:
        a, b: the laws.
        rtol: relative error that a distance may have; a larger one is faster. By default 0: exact to
            rounding in float64.

    Example:
        >>> import torch, advect as ad
        >>> from advect.data.laws import Full
        >>> near = ad.Gaussians(torch.zeros(1, 2), Full(torch.eye(2)[None]))
        >>> far = ad.Gaussians(torch.tensor([[3.0, 4.0]]), Full(4 * torch.eye(2)[None]))
        >>> round(ad.bures(near, far).item(), 6)    # 25 + 2 (2 - 1)^2
        27.0
    """
    refuse_if(
        a.dim != b.dim,
        "laws must live in one feature space",
        f"dimensions {a.dim} and {b.dim}",
        "Bring both to one space with harmonize.",
    )
    distances = squared_gaps(a.means, b.means)
    if a.covariance.is_diagonal and b.covariance.is_diagonal:
        distances = distances + squared_gaps(a.covariance.scales(), b.covariance.scales())
    else:
        factors = a.covariance.compressed, b.covariance.compressed
        traces = factors[0].traces()
        traces = traces[:, None] + (traces if a is b else factors[1].traces())
        norms = nuclear_norms(*factors, upper=distances + traces, rtol=rtol)
        if a is not b and factors[0] is factors[1]:  # the same covariances at other means
            norms = norms + torch.diag(traces.diagonal() / 2)
        distances = distances + (traces - 2 * norms).clamp_min(0)
    if a is b:
        distances = distances * (1 - torch.eye(len(distances)).to(distances))
    return distances.to(torch.promote_types(a.means.dtype, b.means.dtype))


def nuclear_norms(
    a: Factored, b: Factored, *, upper: Tensor | None = None, rtol: float = 0.0
) -> Tensor:
    """‖A_i B_jᵀ‖_* of all pairs of float64 factors, (k, k'). When ``a is b`` each pair is computed
    once, and the diagonal is zero.

    Args:
        a, b: the factors.
        upper: (k, k'), from which twice a norm will be subtracted.
        rtol: relative error that this difference may have.
    """
    wanted = torch.ones(len(a.sizes), len(b.sizes), dtype=torch.bool)
    if a is b:
        wanted = wanted.triu(diagonal=1)
    norms: Any
    allowed = None if upper is None or rtol == 0 else (rtol, upper.detach())
    if max(*a.sizes, *b.sizes) <= SMALL_FACTORS:
        # Factors are padded with rows of zeros, which add singular values 0.
        left, right = a.padded(), b.padded()
        # Products of all pairs of many laws need far more memory than their distances.
        step = max(1, _BATCH_ENTRIES // max(1, len(b.sizes) * left.shape[1] * right.shape[1]))
        wanted = wanted.to(left.device)
        norms = []
        for rows in (slice(start, start + step) for start in range(0, len(left), step)):
            limit = None if allowed is None else (rtol, allowed[1][rows])
            part = _SmallNorms.apply(left[rows], wanted[rows], right, limit, len(left) <= step)
            norms.append(part)
        norms = torch.cat(norms)
    else:
        pairs = [(i, j) for i, j in wanted.nonzero().tolist()]
        norms = _LargeNorms.apply(a.rows, b.rows, (a.sizes, b.sizes), pairs, allowed)
    return norms + norms.mT if a is b else norms


class _SmallNorms(torch.autograd.Function):
    """‖A_i B_jᵀ‖_* for the wanted pairs of small factors (k, r, d) and (k', s, d), decomposed in one
    batch: a call for each pair would take longer than its work."""

    @staticmethod
    def forward(
        ctx,
        a: Tensor,
        wanted: Tensor,
        b: Tensor,
        allowed: tuple[float, Tensor] | None,
        keep: bool,
    ) -> Tensor:
        ctx.save_for_backward(a, wanted, b)
        ctx.factors, ctx.exact = None, allowed is None
        norms = a.new_zeros(wanted.shape)
        keep, rows = keep and any(ctx.needs_input_grad), max(a.shape[1], b.shape[1])
        if allowed is not None and rows > _FEW_ROWS:
            # By squares of products, in float32 without a gradient, where that is precise enough:
            # see ``_LargeNorms``.
            narrow = (a, b) if keep else (a.float(), b.float())
            products = torch.einsum("ird,jsd->ijrs", *narrow)[wanted].double()
            if keep:
                ctx.factors, singular = _polar_factors(products, a, wanted, b, by_squares=True)
                rounding = 0.0
            else:
                singular = torch.linalg.eigvalsh(products @ products.mT).clamp_min(0).sqrt()
                lengths = [torch.linalg.vector_norm(part, dim=(1, 2)) for part in (a, b)]
                rounding = _SINGLE * (lengths[0][:, None] * lengths[1])[wanted]
            norms[wanted] = singular.sum(dim=1)
            error = _squares_error(singular, sum(products.shape[1:])) + rounding
            slack = allowed[0] * (allowed[1] - 2 * norms)[wanted]
            wanted = wanted.masked_scatter(wanted, ~(2 * error <= slack))
            if not bool(wanted.any()):
                return norms
            keep = False
        products = torch.einsum("ird,jsd->ijrs", a, b)[wanted]
        if keep:
            ctx.factors, singular = _polar_factors(products, a, wanted, b)
            norms[wanted] = singular.sum(dim=1)
        elif products.shape[1:] == (2, 2):  # s_1 + s_2 = √(s_1² + s_2² + 2 s_1 s_2)
            squares = products.square().sum(dim=(1, 2))
            norms[wanted] = (squares + 2 * torch.linalg.det(products).abs()).sqrt()
        elif products.numel():
            norms[wanted] = torch.linalg.svdvals(products).sum(dim=1)
        return norms

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (a, wanted, b), factors = grads, ctx.saved_tensors, ctx.factors
        if factors is None:
            rows, columns = (torch.linalg.vector_norm(part, dim=(1, 2)) for part in (a, b))
            negligible = torch.finfo(a.dtype).eps if ctx.exact else _NEGLIGIBLE
            wanted = wanted & _significant(grad, rows, columns, negligible)
            products = torch.einsum("ird,jsd->ijrs", a, b)[wanted]
            factors, _ = _polar_factors(products, a, wanted, b, by_squares=not ctx.exact)
        # ∂‖A Bᵀ‖_*/∂A = U Vᵀ B and ∂‖A Bᵀ‖_*/∂B = (U Vᵀ)ᵀ A, summed over the pairs of a law
        pulls = a.new_zeros(*wanted.shape, a.shape[1], b.shape[1])
        pulls[wanted] = factors * grad[wanted][:, None, None]
        on_a = torch.einsum("ijrs,jsd->ird", pulls, b)
        return on_a, None, torch.einsum("ijrs,ird->jsd", pulls, a), None, None


def _polar_factors(
    products: Tensor,
    a: Tensor,
    wanted: Tensor,
    b: Tensor,
    *,
    by_squares: bool = False,
) -> tuple[Tensor, Tensor]:
    """U Vᵀ and s of products K = A_i B_jᵀ = U diag(s) Vᵀ, (p, r, s) and (p, r). Directions with s
    below rounding contribute nothing to U Vᵀ: there the norm has a kink, and 0 is a subgradient."""
    lengths = torch.linalg.vector_norm(a, dim=(1, 2))[:, None]
    least = _ROUNDING * (lengths * torch.linalg.vector_norm(b, dim=(1, 2)))[wanted]
    if not products.numel():
        return products, products.new_zeros(len(products), 1)
    if products.shape[1:] == (2, 2):
        # s_1 ± s_2 are the lengths of K ± cof K, and U Vᵀ = (K ± cof K)/(s_1 + s_2) by the sign of det K.
        cofactors = products.flip(1, 2) * products.new_tensor([[1, -1], [-1, 1]])
        sums = torch.stack([products + cofactors, products - cofactors])
        signed = torch.linalg.vector_norm(sums, dim=(2, 3)) / 2**0.5
        norms, gap = signed.amax(dim=0), signed.amin(dim=0)
        least = torch.maximum(2 * least, 1e-12 * norms)
        side = torch.where(norms - gap > least, torch.sign(signed[0] - signed[1]), 0)
        scale = torch.where(norms > least, 1 / torch.where(norms > 0, norms, 1), 0)
        return (products + side[:, None, None] * cofactors) * scale[:, None, None], norms[:, None]
    if not by_squares:
        left, singular, right = torch.linalg.svd(products, full_matrices=False)
        least = torch.maximum(least, 1e-12 * singular[:, 0])
        return (left * (singular > least[:, None])[:, None, :]) @ right, singular
    # By eigenvectors of K Kᵀ, in half the time, where they are precise enough (see ``_polar``).
    left = torch.linalg.eigh(products @ products.mT)[1]
    right = left.mT @ products  # rows s_i v_iᵀ
    singular = torch.linalg.vector_norm(right, dim=2)
    top = singular.amax(dim=1)
    least = torch.maximum(least, 1e-12 * top)[:, None]
    large = singular > torch.maximum(1e-6 * top[:, None], least)
    scale = torch.where(large, 1 / torch.where(large, singular, 1), 0)
    factors = (left * scale[:, None, :]) @ right
    coarse = ((singular > least) & ~large).any(dim=1)
    if bool(coarse.any()):
        pairs = wanted.masked_scatter(wanted, coarse)
        factors[coarse], exact = _polar_factors(products[coarse], a, pairs, b)
        singular[coarse, : exact.shape[1]], singular[coarse, exact.shape[1] :] = exact, 0.0
    return factors, singular


class _LargeNorms(torch.autograd.Function):
    """‖A_i B_jᵀ‖_* for pairs of row blocks of A and B.

    Decompositions run in float64 on one thread each, several at a time. Where a relative error is
    allowed, one eigendecomposition gives both norm and polar factor, which is kept for the gradient.
    """

    @staticmethod
    def forward(
        ctx,
        a: Tensor,
        b: Tensor,
        sizes: tuple[tuple[int, ...], tuple[int, ...]],
        pairs: list[Pair],
        allowed: tuple[float, Tensor] | None,
    ) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.sizes, ctx.pairs, ctx.exact, ctx.factors = sizes, pairs, allowed is None, {}
        a_blocks, b_blocks = a.split(sizes[0]), b.split(sizes[1])
        size = sum(sizes[0][i] * sizes[1][j] for i, j in pairs) * torch.float32.itemsize
        keep = any(ctx.needs_input_grad) and not ctx.exact and size <= _KEPT_BYTES
        lengths = _lengths(a_blocks)[:, None] * _lengths(b_blocks)
        norms = a.new_zeros(len(a_blocks), len(b_blocks))
        narrow = b.float()  # products in float32 take half the time
        for i, left in enumerate(a_blocks):
            columns = [j for row, j in pairs if row == i]
            if not columns:
                continue
            # one product for all pairs of a row
            begin = sum(sizes[1][: columns[0]])
            rows = left @ b[begin:].mT if ctx.exact or keep else left.float() @ narrow[begin:].mT
            products = dict(enumerate(rows.split(sizes[1][columns[0] :], dim=1), columns[0]))

            def norm(j: int, i: int = i, products: dict[int, Tensor] = products) -> Tensor:
                if allowed is None:
                    return torch.linalg.svdvals(products[j]).sum()
                if keep:
                    factor, singular = _polar(products[j], _ROUNDING * float(lengths[i, j]))
                    ctx.factors[i, j], error = factor.float(), 0.0
                else:
                    singular = _singular_by_squares(products[j].double())
                    error = _SINGLE * lengths[i, j]
                # A distance that is small compared with the norms needs more digits of them.
                error = error + _squares_error(singular, sum(products[j].shape))
                if bool(2 * error <= allowed[0] * (allowed[1][i, j] - 2 * singular.sum())):
                    return singular.sum()
                return torch.linalg.svdvals(a_blocks[i] @ b_blocks[j].mT).sum()

            norms[i, columns] = torch.stack(side_by_side(norm, columns, rows=sizes[0][i]))
        return norms

    @staticmethod
    def backward(ctx, *grads: Tensor):
        (grad,), (a, b), (a_sizes, b_sizes) = grads, ctx.saved_tensors, ctx.sizes
        a_blocks, b_blocks = a.split(a_sizes), b.split(b_sizes)
        lengths = _lengths(a_blocks), _lengths(b_blocks)
        least = _ROUNDING * lengths[0][:, None] * lengths[1]
        negligible = torch.finfo(a.dtype).eps if ctx.exact else _NEGLIGIBLE
        counts = _significant(grad, *lengths, negligible)
        # Products with polar factors, whose entries are at most 1, keep the digits of float32.
        dtype = a.dtype if ctx.exact else torch.float32
        narrow = a.to(dtype).split(a_sizes), b.to(dtype).split(b_sizes)
        grad_a, grad_b = (torch.zeros_like(part, dtype=dtype) for part in (a, b))
        on_a, on_b = grad_a.split(a_sizes), grad_b.split(b_sizes)
        first, second = ctx.needs_input_grad[:2]

        def scaled_factor(pair: Pair) -> Tensor:
            factor = ctx.factors.get(pair)
            if factor is None:
                factor = polar_factor(a_blocks[pair[0]] @ b_blocks[pair[1]].mT, float(least[pair]))
            return factor.to(dtype) * grad[pair].to(dtype)

        # Row by row: all factors at once would be as large as the transport plan.
        for i, size in enumerate(a_sizes):
            pairs = [pair for pair in ctx.pairs if pair[0] == i and counts[pair]]
            factors = side_by_side(scaled_factor, pairs, rows=size)
            if first and pairs:  # Σ_j g_ij U Vᵀ B_j as one product
                others = torch.cat([narrow[1][j] for _, j in pairs])
                torch.addmm(on_a[i], torch.cat(factors, dim=1), others, out=on_a[i])
            for (_, j), factor in zip(pairs, factors, strict=True) if second else ():
                torch.addmm(on_b[j], factor.mT, narrow[0][i], out=on_b[j])
        return grad_a.to(a.dtype), grad_b.to(a.dtype), None, None, None


def polar_factor(matrix: Tensor, least: float = 0.0) -> Tensor:
    """U Vᵀ for K = U diag(s) Vᵀ; directions with s ≤ ``least``, or 1e-12 of the largest, contribute
    nothing.
    """
    return _polar(matrix, least)[0]


def _polar(matrix: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """The polar factor and the singular values, by the Gram matrix of the smaller side."""
    if matrix.shape[0] > matrix.shape[1]:
        factor, singular = _polar(matrix.mT, least)
        return factor.mT, singular
    if not matrix.numel():
        return torch.zeros_like(matrix), matrix.new_zeros(0)
    left = torch.linalg.eigh(matrix @ matrix.mT)[1]
    right = left.mT @ matrix  # rows s_i v_iᵀ
    singular = torch.linalg.vector_norm(right, dim=1)
    top = float(singular.max())
    least = max(least, 1e-12 * top, torch.finfo(matrix.dtype).tiny)
    large = singular > max(1e-6 * top, least)
    directions = right[large] / singular[large, None]
    factor = left[:, large] @ directions
    # Eigenvalues of the Gram matrix cannot tell singular values below 1e-8 of the largest apart.
    # The remaining rows are decomposed again at their scale, after rounding errors along the finished
    # directions are removed.
    small = right[~large]
    for _ in range(
        2
    ):  # twice, as directions of nearly equal values are at right angles to 1e-4 only
        small = small - (small @ directions.mT) @ directions
    if len(small) and float(torch.linalg.vector_norm(small, dim=1).max()) > least:
        factor = factor + left[:, ~large] @ _polar(small, least)[0]
    return factor, singular


def _singular_by_squares(matrix: Tensor) -> Tensor:
    """Singular values as roots of eigenvalues of the smaller Gram matrix: four times as fast."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
    return torch.linalg.eigvalsh(wide @ wide.mT).clamp_min(0).sqrt()


def _squares_error(singular: Tensor, size: int) -> Tensor:
    """Error bound of the sum of singular values that come from a Gram matrix: eigenvalues s² are off
    by δ, 4 √size units of the trace, and s by at most min(δ/s, √δ).
    """
    unit = torch.finfo(singular.dtype)
    off = 4 * size**0.5 * unit.eps * singular.square().sum(dim=-1, keepdim=True)
    return torch.minimum(off / singular.clamp_min(unit.tiny), off.sqrt()).sum(dim=-1)


def _significant(grad: Tensor, a_lengths: Tensor, b_lengths: Tensor, negligible: float) -> Tensor:
    """The pairs that a gradient needs, (k, k') bool: the others are negligible in every block of rows.

    The part of a pair in A_i is at most |g_ij| ‖B_j‖, and in B_j at most |g_ij| ‖A_i‖.
    """
    on_a, on_b = grad.abs() * b_lengths, grad.abs() * a_lengths[:, None]
    counts = on_a * grad.shape[1] > negligible * on_a.sum(dim=1, keepdim=True)
    return counts | (on_b * grad.shape[0] > negligible * on_b.sum(dim=0))


def _lengths(blocks: tuple[Tensor, ...]) -> Tensor:
    """‖A_i‖ of all blocks."""
    return torch.stack([torch.linalg.vector_norm(block) for block in blocks])

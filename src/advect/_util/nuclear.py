"""Nuclear norms ‖A Bᵀ‖_* of pairs of covariance factors, S = AᵀA and S' = BᵀB, and their gradients.

    tr (S^½ S' S^½)^½ = ‖A Bᵀ‖_*

so no d × d root is taken when classes have fewer samples than dimensions, and with A Bᵀ = U diag(s)
Vᵀ the gradient in A is U Vᵀ B, without any inverse. Decompositions run in float64 on the smaller
side, side by side, each on one thread.

Where less than all digits of float64 is asked for, two things are cheaper, as far as a bound allows:

- products in float32. With K = A Bᵀ + E the norms differ by at most ‖E‖_* ≤ √r ‖E‖_F, and random
  vectors v tell ‖E‖_F, since ‖K v − A (Bᵀ v)‖² is ‖E‖_F² in the mean, for the price of thin products
  in float64;
- singular values as roots of the eigenvalues of K Kᵀ, in half the time. With eigenvalues off by at
  most δ, the norm is off by at most Σ min(δ / s_i, √δ)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from advect._util.threads import side_by_side

Pair = tuple[int, int]

_PROBES = 4
_WORTHWHILE = 64  # rows below which a product in float64 is quick, and few probes could mislead
_SMALL = 16  # rows of factors that are decomposed in one batch
_ENTRIES = 4_000_000  # of the products in such a batch
_NEGLIGIBLE = 1e-5  # of a gradient, where not all digits are asked for
_ROUNDING = 1e-13  # of ‖A‖ ‖B‖: what a product in float64 cannot tell from zero


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
) -> Tensor:
    """‖A_i B_jᵀ‖_* for stacked factors A = [A_1; …; A_k] and B = [B_1; …; B_k'], as a (k, k')
    matrix; all in float64.

    When ``a is b`` each pair is decomposed once. Differentiable in both, with the polar factor as
    the gradient; pairs whose part of a gradient is below rounding (or 1e-5, with ``rtol``) in all its
    rows need none.

    Args:
        a, a_sizes, b, b_sizes: factors, and how many rows each has.
        near: (k, k'), what twice a norm is subtracted from; the difference is what has to be right.
        rtol: relative error that the difference may have: 0 for products in float64, else float32
            where it is certain to do.
        wanted: (k, k') bool, the pairs that are asked for; the others may be zero. When ``a is b``,
            those above the diagonal.
        pulled: (k, k') bool, pairs whose gradient is likely to be asked for: their polar factors are
            taken with the norms, by one decomposition, and kept. A guess changes the work, not the
            result.

    Example:
        >>> import torch
        >>> a = torch.eye(2, dtype=torch.float64)
        >>> nuclear_norms(a, [2], 3 * a, [2]).tolist()
        [[6.0]]
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
    request = _Request(*sizes, a is b, wanted.tolist(), near, rtol, likely)
    norms: Any = _NuclearNorms.apply(a, b, request)
    return norms


def polar_factor(matrix: Tensor, least: float = 0.0) -> Tensor:
    """U Vᵀ for K = U diag(s) Vᵀ, by eigenvectors of the smaller Gram matrix; directions with s = 0
    contribute nothing.

    Squares cannot tell singular values below 1e-8 of the largest apart: those are decomposed again
    at their own scale, and those below 1e-12 of it, or below ``least``, count as zero."""
    return _polar(matrix, least)[0]


def _polar(matrix: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """The polar factor, and the singular values that it was made with."""
    if not matrix.numel():
        return torch.zeros_like(matrix), matrix.new_zeros(0)
    if matrix.shape[0] > matrix.shape[1]:
        factor, singular = _polar(matrix.mT, least)
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
        factor = factor + left[:, small] @ _polar(right[small], least)[0]
    return factor, singular


@dataclass(frozen=True)
class _Request:
    """What ``nuclear_norms`` was asked for, beside the factors."""

    a_sizes: tuple[int, ...]
    b_sizes: tuple[int, ...]
    symmetric: bool
    wanted: list[list[bool]]
    near: Tensor | None
    rtol: float
    pulled: list[list[bool]]

    @property
    def single(self) -> bool:
        """Whether products may be in float32 where that is certain to be enough."""
        return self.near is not None and self.rtol > 0

    def columns(self, i: int) -> list[int]:
        """The j whose pairs with i are to be decomposed."""
        first = i + 1 if self.symmetric else 0
        return [
            j
            for j in range(first, len(self.b_sizes))
            if self.wanted[i][j] and self.a_sizes[i] and self.b_sizes[j]
        ]


class _NuclearNorms(torch.autograd.Function):
    """‖A_i B_jᵀ‖_* for all pairs of row blocks of A and B; see ``nuclear_norms``.

    Values come from singular values, which are exact to rounding of the largest: roots of
    eigenvalues stall at 1e-8 of it, and a class would not be at distance zero from its own copy.
    Polar factors wait until a gradient is asked for."""

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, request: _Request) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.request = request
        norms = a.new_zeros(len(request.a_sizes), len(request.b_sizes))
        a_blocks, b_blocks = a.split(request.a_sizes), b.split(request.b_sizes)
        ctx.factors = {}
        single = _SinglePrecision(a, b, request) if request.single else None
        moves = request.single and any(ctx.needs_input_grad[:2])
        pulled = _WithFactors(a, b, request, ctx.factors) if moves else None

        def norm(pair: Pair) -> Tensor:
            return torch.linalg.svdvals(a_blocks[pair[0]] @ b_blocks[pair[1]].mT).sum()

        pairs = [(i, j) for i in range(len(a_blocks)) for j in request.columns(i)]
        known = {} if pulled is None else pulled.norms(pairs)
        rest = [pair for pair in pairs if pair not in known]
        known |= {} if single is None else single.norms(rest)
        rest = [pair for pair in pairs if pair not in known]
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
        request: _Request = ctx.request
        a_blocks, b_blocks = a.split(request.a_sizes), b.split(request.b_sizes)
        if request.symmetric:
            grad = torch.triu(grad) + torch.tril(grad, diagonal=-1).mT
        lengths = [_lengths(blocks) for blocks in (a_blocks, b_blocks)]
        least = _ROUNDING * lengths[0][:, None] * lengths[1]
        negligible = _NEGLIGIBLE if request.rtol else torch.finfo(grad.dtype).eps
        counts = _that_count(grad, *lengths, negligible=negligible).tolist()
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
        return grad_a, grad_b, None


def _lengths(blocks: Sequence[Tensor]) -> Tensor:
    """‖A_i‖ of all blocks."""
    return torch.stack([torch.linalg.vector_norm(block) for block in blocks])


def _that_count(grad: Tensor, a_lengths: Tensor, b_lengths: Tensor, negligible: float) -> Tensor:
    """Which pairs a gradient needs, (k, k') bool: without the others no block of rows loses more
    than a negligible part.

    The pull of a pair on A_i is at most |g_ij| ‖B_j‖, and on B_j at most |g_ij| ‖A_i‖.
    """
    counts = torch.zeros_like(grad, dtype=torch.bool)
    for pulls, dim in ((grad.abs() * b_lengths, 1), (grad.abs() * a_lengths[:, None], 0)):
        counts |= pulls * grad.shape[dim] > negligible * pulls.sum(dim=dim, keepdim=True)
    return counts


class _SinglePrecision:
    """Norms by products in float32 and by squares, with what they may be off by (see the module)."""

    def __init__(self, a: Tensor, b: Tensor, request: _Request) -> None:
        assert request.near is not None
        self.near, self.rtol, sizes = request.near, request.rtol, request.b_sizes
        self.a, self.b = a.float().split(request.a_sizes), b.float().split(sizes)
        self.wide = a.split(request.a_sizes), b.split(sizes)
        generator = torch.Generator().manual_seed(0)
        vectors = torch.randn(len(b), _PROBES, generator=generator, dtype=b.dtype)
        self.vectors = vectors.to(b.device).split(sizes)
        images = [block.mT @ part for block, part in zip(b.split(sizes), self.vectors, strict=True)]
        # A Bᵀ v in float64, (n, k' probes)
        self.images = (a @ torch.cat(images, dim=1)).split(request.a_sizes)

    def norms(self, pairs: list[Pair]) -> dict[Pair, Tensor]:
        """Those of pairs (i, j) of so many rows that it is worth while."""
        large = [(i, j) for i, j in pairs if min(len(self.a[i]), len(self.b[j])) >= _WORTHWHILE]
        found = side_by_side(lambda pair: self._norm(*pair), large, rows=max(map(len, self.a)))
        return dict(zip(large, found, strict=True))

    def _norm(self, i: int, j: int) -> Tensor:
        product = (self.a[i] @ self.b[j].mT).double()
        image = self.images[i][:, _PROBES * j : _PROBES * (j + 1)]
        error = torch.linalg.matrix_norm(product @ self.vectors[j] - image)
        error = error * (min(product.shape) / _PROBES) ** 0.5

        def enough(norm: Tensor, error: Tensor) -> bool:
            return bool(2 * error <= self.rtol * (self.near[i, j] - 2 * norm))

        norm, rough = _by_squares(product)
        if not enough(norm, error):
            product, error = self.wide[0][i] @ self.wide[1][j].mT, torch.zeros_like(error)
            norm, rough = _by_squares(product)
        return norm if enough(norm, error + rough) else torch.linalg.svdvals(product).sum()


class _WithFactors:
    """Norms of pairs whose gradient is asked for too, from the decompositions of their polar factors,
    which are kept in float32.
    """

    def __init__(self, a: Tensor, b: Tensor, request: _Request, kept: dict[Pair, Tensor]) -> None:
        assert request.near is not None
        self.near, self.rtol, self.pulled = request.near, request.rtol, request.pulled
        self.kept = kept
        self.a, self.b = a.split(request.a_sizes), b.split(request.b_sizes)
        self.least = _ROUNDING * _lengths(self.a)[:, None] * _lengths(self.b)

    def norms(self, pairs: list[Pair]) -> dict[Pair, Tensor]:
        likely = [(i, j) for i, j in pairs if self.pulled[i][j]]
        found = side_by_side(lambda pair: self._norm(*pair), likely, rows=max(map(len, self.a)))
        return dict(zip(likely, found, strict=True))

    def _norm(self, i: int, j: int) -> Tensor:
        product = self.a[i] @ self.b[j].mT
        factor, singular = _polar(product, float(self.least[i, j]))
        self.kept[i, j] = factor.float()
        norm, rough = singular.sum(), _squares_error(singular, sum(product.shape))
        if bool(2 * rough <= self.rtol * (self.near[i, j] - 2 * norm)):
            return norm
        return torch.linalg.svdvals(product).sum()


def _by_squares(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """‖K‖_* from the eigenvalues of the smaller Gram matrix, and how far it may be off."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT
    singular = torch.linalg.eigvalsh(wide @ wide.mT).clamp_min(0).sqrt()
    return singular.sum(), _squares_error(singular, sum(wide.shape))


def _squares_error(singular: Tensor, sizes: int) -> Tensor:
    """How far the sum of singular values may be off that come from eigenvalues of a Gram matrix:
    rounding of products and eigenvalues is within so many units of the trace as there are rows and
    columns.
    """
    kind = torch.finfo(singular.dtype)
    off = sizes * kind.eps * singular.square().sum()
    return torch.minimum(off / singular.clamp_min(kind.tiny), off.sqrt()).sum()


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
        lengths = [torch.linalg.matrix_norm(part) for part in (a, b)]
        rounding = _ROUNDING * lengths[0][:, None] * lengths[1]
        least = torch.maximum(rounding, 1e-12 * singular.amax(dim=2))
        counts = (singular > least[:, :, None])[:, :, None, :]
        factors = (left * counts) @ right * grad[:, :, None, None]
        return torch.einsum("ijrs,jsd->ird", factors, b), torch.einsum("ijrs,ird->jsd", factors, a)

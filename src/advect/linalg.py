"""Matrix pieces of the Bures-Wasserstein distance, written so that rank deficiency is an ordinary case.

For covariances given by factors, S = AᵀA and S' = BᵀB,

    tr (S^½ S' S^½)^½ = ‖A Bᵀ‖_*                                   (nuclear norm)

so no d × d root is taken when classes have fewer samples than dimensions, and with A Bᵀ = U diag(s) Vᵀ the gradient
in A is U Vᵀ B, without any inverse. Decompositions run in float64 on the smaller side: float32 ones fail or return
NaN on real image covariances, whose constant pixels make many singular values vanish.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from advect._threads import side_by_side


def centred(x: Tensor, y: Tensor, masses: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Both clouds around a common centre, which cancels a large common offset; gradients pass.

    With masses the centre is that of the mass: a far point without any must not cost the others their precision.
    """
    middles = [part.detach().mean(dim=0) for part in (x, y)] if masses is None else map(mass_centre, (x, y), masses)
    centre = sum(middles) / 2
    moved = x - centre
    return moved, moved if y is x else y - centre


def mass_centre(x: Tensor, mass: Tensor) -> Tensor:
    """The mean of the points by their mass, without a graph."""
    return (mass / mass.sum()).to(x.dtype) @ x.detach()


def squared_distances(x: Tensor, y: Tensor, masses: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """‖x_i − y_j‖² as an (n, m) matrix, by one matrix product around a common centre (``centred``); never negative."""
    x, y = centred(x, y, masses)
    products = torch.addmm(x.square().sum(dim=1)[:, None], x, y.T, alpha=-2)  # (n, m)
    return (products + y.square().sum(dim=1)).clamp_min(0)


def root(values: Tensor) -> Tensor:
    """√ of each number, with derivative 0 at 0: a class of one point has no deviation to change."""
    positive = values > 0
    return torch.where(positive, torch.where(positive, values, 1).sqrt(), 0)


class _SymmetricRoot(torch.autograd.Function):
    """S ↦ S^½ for batches of positive semi-definite matrices; its derivative solves X S^½ + S^½ X = dS."""

    @staticmethod
    def forward(ctx, matrices: Tensor) -> Tensor:
        eigenvalues, vectors = torch.linalg.eigh(matrices)
        roots = eigenvalues.clamp_min(0).sqrt()
        ctx.save_for_backward(roots, vectors)
        return (vectors * roots[..., None, :]) @ vectors.mT

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        roots, vectors = ctx.saved_tensors
        sums = roots[..., :, None] + roots[..., None, :]
        floor = sums.amax(dim=(-2, -1), keepdim=True) * 1e-12  # the null space has no derivative: take 0 there
        inverse = torch.where(sums > floor, 1 / sums.clamp_min(torch.finfo(sums.dtype).tiny), 0)
        inner = vectors.mT @ ((grad + grad.mT) / 2) @ vectors
        return vectors @ (inner * inverse) @ vectors.mT


def symmetric_root(matrices: Tensor) -> Tensor:
    """The symmetric square roots S^½ of positive semi-definite matrices (k, d, d), computed in float64.

    Eigenvalues below zero by rounding count as zero; the derivative is taken as zero on the null space.

    Example:
        >>> import torch
        >>> root = symmetric_root(torch.tensor([[[4.0, 0.0], [0.0, 0.0]]]))
        >>> root[0].tolist()
        [[2.0, 0.0], [0.0, 0.0]]
    """
    symmetric = ((matrices + matrices.mT) / 2).double()
    return _SymmetricRoot.apply(symmetric).to(matrices.dtype)  # pyright: ignore[reportAttributeAccessIssue]


def polar_factor(matrix: Tensor, least: float = 0.0) -> Tensor:
    """U Vᵀ for K = U diag(s) Vᵀ, by eigenvectors of the smaller Gram matrix; directions with s = 0 contribute nothing.

    Squares cannot tell singular values below 1e-8 of the largest apart: those are decomposed again at their own scale,
    and those below 1e-12 of it, or below ``least``, count as zero.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return polar_factor(matrix.mT, least).mT
    left = torch.linalg.eigh(matrix @ matrix.mT)[1]
    right = left.mT @ matrix  # rows s_i v_iᵀ
    singular = torch.linalg.vector_norm(right, dim=1)
    top = float(singular.max().clamp_min(torch.finfo(matrix.dtype).tiny))
    least = max(least, 1e-12 * top)  # of the whole: rounding must not become a direction at its own scale
    large, small = singular > max(1e-6 * top, least), (singular > least) & (singular <= 1e-6 * top)
    factor = left[:, large] @ (right[large] / singular[large, None])
    return factor + left[:, small] @ polar_factor(right[small], least) if bool(small.any()) else factor


class _NuclearNorms(torch.autograd.Function):
    """‖A_i B_jᵀ‖_* for all pairs of row blocks of A and B; see ``nuclear_norms``.

    Values come from singular values, which are exact to rounding of the largest: roots of eigenvalues stall at 1e-8 of
    it, and a class would not be at distance zero from its own copy. Polar factors wait until a gradient is asked for.
    """

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, a_sizes: tuple[int, ...], b_sizes: tuple[int, ...], symmetric: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.sizes, ctx.symmetric = (a_sizes, b_sizes), symmetric
        norms = a.new_zeros(len(a_sizes), len(b_sizes))
        for i, a_i in enumerate(a.split(a_sizes)):
            first = i if symmetric else 0
            row = a_i @ b[sum(b_sizes[:first]) :].mT
            products = dict(enumerate(row.split(b_sizes[first:], dim=1), start=first))
            if symmetric:
                norms[i, i] = products.pop(i).diagonal().sum()  # A Aᵀ is positive: its nuclear norm is its trace
            products = {j: product for j, product in products.items() if product.numel()}
            values = side_by_side(torch.linalg.svdvals, products.values(), rows=a_sizes[i])
            for j, singular in zip(products, values, strict=True):
                norms[i, j] = singular.sum()
        return torch.triu(norms) + torch.triu(norms, diagonal=1).mT if symmetric else norms

    @staticmethod
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b = ctx.saved_tensors
        a_sizes, b_sizes = ctx.sizes
        grad_a, grad_b = torch.zeros_like(a), torch.zeros_like(b)
        a_blocks, b_blocks = a.split(a_sizes), b.split(b_sizes)
        a_grads, b_grads = grad_a.split(a_sizes), grad_b.split(b_sizes)
        if ctx.symmetric:
            grad = torch.triu(grad) + torch.tril(grad, diagonal=-1).mT
        pairs = [(i, j) for i, j in grad.nonzero().tolist() if len(a_blocks[i]) and len(b_blocks[j])]
        for row in sorted({i for i, _ in pairs}):  # row by row: all factors at once would be as large as the transport plan
            chosen = [pair for pair in pairs if pair[0] == row]
            factors = side_by_side(
                lambda pair: polar_factor(a_blocks[pair[0]] @ b_blocks[pair[1]].mT), chosen, rows=a_sizes[row]
            )
            for (i, j), factor in zip(chosen, factors, strict=True):
                factor = grad[i, j] * factor
                if ctx.needs_input_grad[0]:
                    a_grads[i].addmm_(factor, b_blocks[j])
                if ctx.needs_input_grad[1]:
                    b_grads[j].addmm_(factor.mT, a_blocks[i])
        return grad_a, grad_b, None, None, None


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
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b = ctx.saved_tensors
        products = torch.einsum("ird,jsd->ijrs", a, b)
        left, singular, right = torch.linalg.svd(products, full_matrices=False)
        kept = singular > 1e-12 * singular.amax(dim=2, keepdim=True)
        factors = (left * kept[:, :, None, :]) @ right * grad[:, :, None, None]
        return torch.einsum("ijrs,jsd->ird", factors, b), torch.einsum("ijrs,ird->jsd", factors, a)


_SMALL = 16  # rows of factors that are decomposed in one batch


def nuclear_norms(a: Tensor, a_sizes: Sequence[int], b: Tensor, b_sizes: Sequence[int]) -> Tensor:
    """‖A_i B_jᵀ‖_* for stacked factors A = [A_1; …; A_k] and B = [B_1; …; B_k'], as a (k, k') matrix.

    When ``a is b`` each pair is decomposed once. Differentiable in both, with the polar factor as the gradient.

    Example:
        >>> import torch
        >>> a = torch.eye(2, dtype=torch.float64)
        >>> nuclear_norms(a, [2], 3 * a, [2]).tolist()
        [[6.0]]
    """
    if len(set(a_sizes)) == 1 and len(set(b_sizes)) == 1 and 0 < max(a_sizes[0], b_sizes[0]) <= _SMALL:
        factors = a.reshape(len(a_sizes), -1, a.shape[1]), b.reshape(len(b_sizes), -1, b.shape[1])
        return _SmallNuclearNorms.apply(*factors)  # pyright: ignore
    return _NuclearNorms.apply(a, b, tuple(a_sizes), tuple(b_sizes), a is b)  # pyright: ignore


def row_basis(factor: Tensor, tolerance: float) -> Tensor | None:
    """Orthonormal Z (n, r) with ‖A − Z Zᵀ A‖ ≤ tolerance ‖A‖ and r at most n/2, or None if there is none.

    Zᵀ A has the same covariance as A with fewer rows: at most d, and fewer when the samples lie in a subspace, as
    enlarged images do. A random half-size range (Halko, Martinsson and Tropp 2011) tells for the price of a few thin
    products whether it is worth looking.
    """
    n, d = factor.shape
    if n > d:
        basis = torch.linalg.qr(factor)[0]  # (n, d)
        inner = row_basis(basis.mT @ factor, tolerance)
        return basis if inner is None else basis @ inner
    if n < 16:
        return None
    test = torch.randn(n, n // 2, generator=torch.Generator().manual_seed(0), dtype=factor.dtype).to(factor.device)
    basis = torch.linalg.qr(factor @ (factor.mT @ test))[0]  # (n, n/2)
    reduced = basis.mT @ factor
    energy = factor.square().sum()
    negligible = energy * max(tolerance**2, 1e-14)  # squares cannot tell less than rounding: the residual is checked below
    if bool(energy - reduced.square().sum() > negligible):
        return None
    values, vectors = torch.linalg.eigh(reduced @ reduced.mT)
    trimmed = basis @ vectors[:, values.clamp_min(0).cumsum(dim=0) > negligible / 4]
    for candidate in (trimmed, basis):
        if bool((factor - candidate @ (candidate.mT @ factor)).norm() <= tolerance * factor.norm()):
            return candidate
    return None

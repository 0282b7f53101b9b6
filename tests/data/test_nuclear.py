"""Nuclear norms of products of factors against torch.linalg, and polar factors of hard matrices."""

import pytest
import torch

import advect as ad
from advect.data.laws import Diagonal, Factored
from advect.data.laws.wasserstein import nuclear_norms, polar_factor

SIZES = (70, 90), (80, 100, 75)
SMALL = (23, 30), (26, 33, 25)  # in one batch


def factors(decay: float, sizes=SIZES, seed: int = 0):
    """Stacked factors whose singular values fall by so many powers of ten."""
    generator = torch.Generator().manual_seed(seed)
    fall = 10 ** -torch.linspace(0, decay, 150).double()
    return [torch.randn(sum(side), 150, generator=generator).double() * fall for side in sizes]


def matrix(singular, shape, seed=1):
    """A matrix with these singular values, and its polar factor."""
    generator = torch.Generator().manual_seed(seed)
    draws = (torch.randn(n, len(singular), generator=generator).double() for n in shape)
    left, right = (torch.linalg.qr(drawn)[0] for drawn in draws)
    return left * singular @ right.T, left * (singular > 0) @ right.T


@pytest.mark.parametrize(
    ("sizes", "gradients", "decay"), [(SIZES, False, 0.0), (SIZES, False, 9.0), (SIZES, True, 3.0),
    (SIZES, True, 9.0), *((SMALL, gradients, decay) for gradients in (False, True) for decay in (0.0, 3.0, 9.0))],
)  # fmt: skip
def test_a_relative_error_is_kept_in_values_and_gradients(sizes, gradients, decay):
    a, b = factors(decay, sizes)
    blocks = a.split(sizes[0]), b.split(sizes[1])
    exact = [[torch.linalg.svdvals(p @ q.T).sum() for q in blocks[1]] for p in blocks[0]]
    exact = torch.tensor(exact, dtype=torch.float64)
    traces = [torch.stack([block.square().sum() for block in side]) for side in blocks]
    upper = traces[0][:, None] + traces[1]
    weights = torch.tensor([[0.3, 1e-3, 0.2], [0.0, 0.5, 0.1]]).double()
    found = []
    # means that are far apart leave room for products in float32
    for options in ({}, {"upper": upper, "rtol": 9e-7}, {"upper": 20 * upper, "rtol": 9e-7}):
        leaves = [part.clone().requires_grad_(gradients) for part in (a, b)]
        sides = (Factored(leaf, side) for leaf, side in zip(leaves, sizes, strict=True))
        norms = nuclear_norms(*sides, **options)
        assert ((norms - exact).abs() <= 9e-7 * (options.get("upper", upper) - 2 * exact)).all()
        if gradients:
            (norms * weights).sum().backward()
            found.append([leaf.grad for leaf in leaves])
    for side, gradients in enumerate(zip(*found, strict=True)):
        wanted = pulls(*blocks, weights) if side == 0 else pulls(*blocks[::-1], weights.T)
        assert all(
            torch.linalg.norm(g - wanted) <= 1e-6 * torch.linalg.norm(wanted) for g in gradients
        )


def pulls(own, other, weights):
    """Σ_j g_ij U Vᵀ B_j from singular vectors."""
    rows = [torch.zeros_like(part) for part in own]
    for i, j in weights.nonzero().tolist():
        left, _, right = torch.linalg.svd(own[i] @ other[j].T, full_matrices=False)
        rows[i] += weights[i, j] * left @ (right @ other[j])
    return torch.cat(rows)


@pytest.mark.parametrize("rows", [3, 40])  # in one batch, and pair by pair
def test_gradients_follow_the_scale_of_either_side(rows):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(2 * rows, 50, generator=generator).double() for _ in range(2))
    found = []
    for one, other in ((1.0, 1.0), (1e-12, 1e12), (1e12, 1e-12)):
        leaves = [(s * part).requires_grad_() for s, part in ((one, a), (other, b))]
        nuclear_norms(*(Factored(leaf, (rows, rows)) for leaf in leaves)).sum().backward()
        found.append((one * leaves[0].grad, other * leaves[1].grad))
    for scaled in found[1:]:
        torch.testing.assert_close(scaled, found[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("least", [1e-9, 1e-7, 1e-5, 1e-4, 1e-2])
@pytest.mark.parametrize("null", [0, 1, 3])
@pytest.mark.parametrize("shape", [(30, 30), (30, 50), (50, 30)])
def test_polar_factors_beside_null_directions(least, null, shape):
    """No singular value of a polar factor exceeds 1, also where one is small and others are zero."""
    singular = torch.cat([torch.linspace(1, 0.1, 20), torch.tensor([least]), torch.zeros(null)])
    product, polar = matrix(singular.double(), shape)
    found = polar_factor(product, 1e-13)
    assert torch.linalg.svdvals(found).max() <= 1 + 1e-6
    # eigenvectors of the Gram matrix are off by eps (top/s)², down to where it is decomposed again
    rounding = 10 * torch.finfo(torch.float64).eps / max(least, 1e-6) ** 2
    assert torch.linalg.norm(found - polar) <= 1e-6 + rounding


def test_many_diagonal_laws_against_the_formula():
    """More pairs than are compared at once: W₂² = ‖μ − μ'‖² + ‖s − s'‖², and its gradient."""
    draw = torch.Generator().manual_seed(3)
    draws = (5 + torch.randn(n, 3, generator=draw).double() for n in (300, 290))
    numbers = [drawn.requires_grad_() for drawn in draws]
    sides = [ad.Gaussians(leaf, Diagonal(leaf.square())) for leaf in numbers]
    points = [torch.cat([leaf, leaf.square()], dim=1) for leaf in numbers]
    expected = (points[0][:, None] - points[1]).square().sum(dim=2)
    found = ad.bures(*sides)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-9)
    weights = torch.rand(300, 290, generator=draw).double()
    slopes = [torch.autograd.grad((weights * d).sum(), numbers) for d in (found, expected)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize(("n", "m", "moves"), [(20, 24, False), (70, 80, False), (80, 70, True)])
def test_squares_are_used_where_their_error_is_allowed(n, m, moves, monkeypatch):
    """Eigenvalues of K Kᵀ are off by δ, 4 √(n + m) units of Σ s², and s by min(δ/s, √δ); products in float32 by four
    units of ‖A‖ ‖B‖. Norms count twice. Elsewhere singular values are computed one by one."""
    calls, exact, r = [], torch.linalg.svdvals, min(n, m)
    monkeypatch.setattr(torch.linalg, "svdvals", lambda k: calls.append(len(k)) or exact(k))
    singular = torch.linspace(1, 0.2, r).double()
    singular[r - 10 * moves :] = 0
    left, right, basis = (torch.linalg.qr(torch.randn(k, r).double())[0] for k in (n, m, 90))
    a, b = (left * singular) @ basis.T, right @ basis.T
    delta = 4 * (n + m) ** 0.5 * 2.0**-52 * float(singular.square().sum())
    error = float(torch.minimum(delta / singular, torch.tensor(delta).sqrt()).sum())
    error += 0 if moves else 4 * 2.0**-23 * float(a.norm() * b.norm())
    for share, direct in ((1.02, False), (0.98, True)):
        upper = (2 * singular.sum() + share * 2 * error / 1e-6)[None, None]
        sides = Factored(a.requires_grad_(moves), (n,)), Factored(b, (m,))
        norm = nuclear_norms(*sides, upper=upper, rtol=1e-6).detach()
        assert abs(float(norm - singular.sum())) <= error and bool(calls) == direct


@pytest.mark.parametrize(("lengths", "least"), [((1, 2, 1, 3), 1 / 6), ((3, 0.6, 1, 1), 1 / 10)])
def test_pairs_are_left_out_where_both_sides_do_not_see_them(lengths, least):
    """|g_ij| ‖B_j‖ is at most 1e-5 of the mean over j, and |g_ij| ‖A_i‖ of that over i."""
    rows, generator = 70, torch.Generator().manual_seed(0)
    parts = torch.randn(4, rows, 90, generator=generator).double()
    parts = [s * part / part.norm() for s, part in zip(lengths, parts, strict=True)]
    a, b = torch.cat(parts[:2]), torch.cat(parts[2:])
    pulls = []
    for share in (0.0, 0.98, 1.02):
        weights = torch.tensor([[1.0, share * least * 1e-5], [0.0, 1.0]]).double()
        leaf = b.clone().requires_grad_()
        sides = Factored(a, (rows, rows)), Factored(leaf, (rows, rows))
        norms = nuclear_norms(*sides, upper=torch.full((2, 2), 100.0).double(), rtol=1e-6)
        (weights * norms).sum().backward()
        pulls.append(leaf.grad[rows:])
    assert torch.equal(pulls[1], pulls[0])
    gap = float((pulls[2] - pulls[0]).norm() / (1e-5 * least * lengths[0]))
    assert 0.3 < gap < 3


@pytest.mark.every_case
@pytest.mark.parametrize("rtol", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [1, 2, 3, 12, 70])
def test_factors_of_any_rank(rows, rtol):
    """Products with determinants of either sign, nearly singular, of rank one, and zero: U Vᵀ B and its transpose, from
    the SVD, in one batch and pair by pair; with a tolerance, large ones in float32."""
    generator, dim = torch.Generator().manual_seed(4), max(6, rows + 20)
    a, b = torch.randn(2, 5, rows, dim, generator=generator, dtype=torch.float64)
    a[2, -1] *= 1e-7
    a[3], b[4] = a[3, :1], 0.0
    weights = torch.rand(5, 5, generator=generator, dtype=torch.float64)
    products = torch.einsum("ird,jsd->ijrs", a, b)
    signs = torch.linalg.det(products) if rows == 2 else torch.tensor([-1.0, 1.0])
    assert signs.min() < -0.1 and signs.max() > 0.1
    left, singular, right = torch.linalg.svd(products, full_matrices=False)
    polar = (left * (singular > 1e-10)[..., None, :]) @ right * weights[..., None, None]
    leaves = [part.reshape(-1, dim).clone().requires_grad_() for part in (a, b)]
    sides = [Factored(leaf, (rows,) * 5) for leaf in leaves]
    upper, close = torch.full((5, 5), 1e5).double(), 1e-5 if rtol and rows > 32 else 1e-7
    for moving in (True, False):
        with torch.set_grad_enabled(moving):
            norms = nuclear_norms(*sides, upper=upper, rtol=rtol)
        wanted, exact = singular.sum(dim=-1), 1e-5 if rtol else 1e-12
        torch.testing.assert_close(norms.detach(), wanted, rtol=exact, atol=1e-12)
        if moving:
            (weights * norms).sum().backward()
    wanted = torch.einsum("ijrs,jsd->ird", polar, b), torch.einsum("ijrs,ird->jsd", polar, a)
    for leaf, pull in zip(leaves, wanted, strict=True):
        torch.testing.assert_close(leaf.grad, pull.reshape(-1, dim), rtol=close, atol=close)

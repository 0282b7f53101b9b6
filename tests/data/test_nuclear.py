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
    ("sizes", "gradients", "decay"),
    [
        (SIZES, False, 0.0),
        (SIZES, False, 9.0),
        (SIZES, True, 3.0),
        pytest.param(SIZES, True, 9.0, marks=pytest.mark.slow),
        *((SMALL, gradients, decay) for gradients in (False, True) for decay in (0.0, 3.0, 9.0)),
    ],
)
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
    for first, *others in zip(*found, strict=True):
        assert all(torch.linalg.norm(first - o) <= 1e-6 * torch.linalg.norm(first) for o in others)


@pytest.mark.parametrize("rows", [2, 3, 40])
def test_null_directions_have_no_gradient(rows):
    """‖u wᵀ Bᵀ‖_* = ‖u‖ ‖B w‖ for a factor of one direction, and nothing pulls it into another."""
    generator = torch.Generator().manual_seed(2)
    u, w, b = (torch.randn(*n, generator=generator).double() for n in ((rows,), (50,), (rows, 50)))
    leaf = torch.outer(u, w).requires_grad_()
    norm = nuclear_norms(Factored(leaf, (rows,)), Factored(b, (rows,)))
    assert norm.item() == pytest.approx(float(u.norm() * (b @ w).norm()), rel=1e-12)
    norm.backward()
    expected = torch.outer(u / u.norm(), b.T @ (b @ w) / (b @ w).norm())
    torch.testing.assert_close(leaf.grad, expected, rtol=1e-9, atol=1e-9)


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


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-9, 0.0])
def test_a_direction_that_float32_does_not_see_has_its_gradient(angle):
    """A direction of one factor is nearly at a right angle to the other factor: its singular value is below the
    rounding of float32, its part of the gradient is not."""
    generator = torch.Generator().manual_seed(5)
    basis = torch.linalg.qr(torch.randn(200, 200, generator=generator).double())[0]
    a, b = basis[:70].clone(), 2 * basis[:80].clone()
    a[69] = angle * basis[69] + (1 - angle**2) ** 0.5 * basis[150]
    a[:69] += 0.1 * torch.randn(69, 69, generator=generator).double() @ basis[:69]
    upper = (a.square().sum() + b.square().sum())[None, None]
    found = []
    for options in ({}, {"upper": upper, "rtol": 9e-7}):
        leaves = [part.clone().requires_grad_() for part in (a, b)]
        sides = Factored(leaves[0], (70,)), Factored(leaves[1], (80,))
        nuclear_norms(*sides, **options).sum().backward()
        found.append([leaf.grad for leaf in leaves])
    for exact, cheap in zip(*found, strict=True):
        assert torch.linalg.norm(exact - cheap) <= 1e-5 * torch.linalg.norm(exact)


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

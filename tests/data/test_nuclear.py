"""Nuclear norms: cheaper routes are as right as they say, and a guess changes no result."""

import pytest
import torch

from advect.data.laws.nuclear import nuclear_norms
from advect.data.laws.single_norms import by_squares

SIZES = (70, 90), (80, 100, 75)


def factors(decay: float, seed: int = 0):
    """Stacked factors whose singular values fall by so many powers of ten."""
    generator = torch.Generator().manual_seed(seed)
    fall = 10 ** -torch.linspace(0, decay, 150).double()
    return [torch.randn(sum(sizes), 150, generator=generator).double() * fall for sizes in SIZES]


def norms(a, b, **options):
    return nuclear_norms(a, SIZES[0], b, SIZES[1], **options)


def near(a, b):
    """What twice a norm is taken from: ‖A‖² + ‖B‖²."""
    traces = [
        torch.stack([block.square().sum() for block in part.split(sizes)])
        for part, sizes in zip((a, b), SIZES, strict=True)
    ]
    return traces[0][:, None] + traces[1]


@pytest.mark.parametrize("decay", [0.0, 3.0, 9.0])
@pytest.mark.parametrize("shape", [(60, 60), (30, 80), (80, 30)])
def test_squares_are_off_by_no_more_than_they_say(decay, shape):
    generator = torch.Generator().manual_seed(1)
    left, right = (
        torch.linalg.qr(torch.randn(n, min(shape), generator=generator).double())[0] for n in shape
    )
    singular = 10 ** -torch.linspace(0, decay, min(shape)).double()
    found, error = by_squares(left * singular @ right.T)
    assert abs(found - singular.sum()) <= error < 1e-5


@pytest.mark.parametrize("decay", [0.0, 3.0])
@pytest.mark.parametrize("guess", ["none", "all", "some"])
def test_a_guess_of_what_is_pulled_changes_no_result(decay, guess):
    a, b = factors(decay)
    pulled = {
        "none": torch.zeros(2, 3, dtype=torch.bool),
        "all": torch.ones(2, 3, dtype=torch.bool),
        "some": torch.tensor([[True, False, True], [False, False, True]]),
    }[guess]
    weights = torch.tensor([[0.3, 1e-3, 0.2], [0.0, 0.5, 0.1]]).double()
    results = []
    for options in ({}, {"near": near(a, b), "rtol": 9e-7, "pulled": pulled}):
        leaves = [part.clone().requires_grad_() for part in (a, b)]
        found = norms(*leaves, **options)
        (found * weights).sum().backward()
        results.append((found.detach(), *(leaf.grad for leaf in leaves)))
    gap = near(a, b) - 2 * results[0][0]
    assert ((results[1][0] - results[0][0]).abs() <= 9e-7 * gap).all()
    for exact, cheap in zip(results[0][1:], results[1][1:], strict=True):
        assert torch.linalg.norm(exact - cheap) <= 1e-6 * torch.linalg.norm(exact)


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-9, 0.0])
def test_a_direction_that_float32_does_not_see_has_its_gradient(angle):
    """Two factors with all of their directions, one of which is nearly at a right angle to the
    other's: its singular value is below rounding in float32, its pull is not.
    """
    generator = torch.Generator().manual_seed(5)
    basis = torch.linalg.qr(torch.randn(200, 200, generator=generator).double())[0]
    a, b = basis[:70].clone(), 2 * basis[:80].clone()
    a[69] = angle * basis[69] + (1 - angle**2) ** 0.5 * basis[150]
    a[:69] += 0.1 * torch.randn(69, 69, generator=generator).double() @ basis[:69]
    near = (a.square().sum() + b.square().sum())[None, None]
    found = []
    for options in ({}, {"near": near, "rtol": 9e-7, "pulled": torch.ones(1, 1) > 0}):
        leaves = [part.clone().requires_grad_() for part in (a, b)]
        nuclear_norms(leaves[0], [70], leaves[1], [80], **options).sum().backward()
        found.append([leaf.grad for leaf in leaves])
    for exact, cheap in zip(*found, strict=True):
        assert torch.linalg.norm(exact - cheap) <= 1e-5 * torch.linalg.norm(exact)

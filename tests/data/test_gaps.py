"""Squared distances of many points: float64 of what is given, with its gradient."""

from __future__ import annotations

import pytest
import torch

from advect.data.laws.linalg import squared_gaps


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("shape", [(700, 9), (9, 700), (300, 300), (20, 20)])
def test_gaps_of_float32_points_are_those_of_float64(shape, offset):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 5, generator=generator) + offset for n in shape)
    weights = torch.randn(*shape, generator=generator).double()
    leaves = [part.clone().requires_grad_() for part in (x, y)]
    wide = [part.double().requires_grad_() for part in (x, y)]
    found, exact = squared_gaps(*leaves), (wide[0][:, None] - wide[1]).square().sum(dim=2)
    assert torch.allclose(found, exact, rtol=1e-12, atol=1e-12)
    for values in (found, exact):
        (values * weights).sum().backward()
    for part, other in zip(leaves, wide, strict=True):
        assert torch.allclose(part.grad.double(), other.grad, rtol=1e-6, atol=1e-4)


def test_the_gradient_in_float64_is_that_of_differences():
    generator = torch.Generator().manual_seed(1)
    points = [torch.randn(n, 2, generator=generator).double().requires_grad_() for n in (80, 60)]
    assert torch.autograd.gradcheck(squared_gaps, points, fast_mode=True)

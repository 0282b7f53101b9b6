"""Label distances from products of samples that are there anyway: the same, to what is promised."""

from __future__ import annotations

import pytest
import torch

import advect as ad
from advect.cost.labels import SINGLE_LABELS, Hints
from advect.data.laws.moments import estimate_gaussians, sample_rows


def data(kind: str, seed: int, sizes: tuple[int, ...], dim: int = 300) -> ad.LabeledDataset:
    """Classes of these sizes in float32, of a kind that float32 may find hard."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    fall = 10 ** -torch.linspace(0, 2, dim)
    x = torch.randn(len(y), dim, generator=generator) * fall
    x = x + torch.randn(len(sizes), dim, generator=generator)[y] * fall
    weights = torch.ones(len(y))
    match kind:
        case "far":
            x = x + 300
        case "tiny":
            x = x * 1e-8
        case "pixels":  # whole numbers, most of them 0: rounding has a pattern
            x = (x * 400 - 200).clamp(0, 255).round()
        case "close":
            base = torch.Generator().manual_seed(7)
            x = torch.randn(len(y), dim, generator=base) * fall + 1e-3 * x
        case "equal":
            x = torch.where((y == 0)[:, None], x[:1], x)
        case "thin":  # most singular values vanish: rounding takes their place
            x = (x[:, :8] @ torch.randn(8, dim, generator=generator)).contiguous()
        case "weighted":
            weights = torch.rand(len(y), generator=generator) ** 4
            weights[::7] = 0
    order = torch.randperm(len(y), generator=generator)
    return ad.LabeledDataset(x[order], y[order], weights=weights[order])


KINDS = ("plain", "far", "tiny", "pixels", "close", "equal", "thin", "weighted")


@pytest.mark.parametrize("sizes", [(120, 90, 1), (12, 30, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_those_of_float64(kind, sizes):
    a, b = data(kind, 1, sizes), data(kind, 2, sizes[::-1])
    label = ad.Bures()
    for first, second in ((a, b), (a, a)):
        wide = first.to(dtype=torch.float64)
        exact = label(wide, wide if second is first else second.to(dtype=torch.float64))
        centre = first.x.mean(dim=0)
        products = (first.x - centre) @ (second.x - centre).T
        cheap = label.hinted(first, second, Hints(products=products)).double()
        traces = first.laws().covariance.traces()[:, None] + second.laws().covariance.traces()
        assert ((cheap - exact).abs() <= SINGLE_LABELS * exact + 1e-13 * traces).all()


def test_products_of_another_dataset_are_noticed():
    """They are checked, not believed."""
    a, b = data("plain", 1, (120, 90)), data("plain", 2, (80, 110))
    exact, wrong = ad.Bures()(a, b), Hints(products=torch.randn(len(a), len(b)))
    assert torch.allclose(ad.Bures().hinted(a, b, wrong), exact, rtol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "pixels", "weighted"])
def test_gradients_are_those_of_float64(kind):
    a, b = data(kind, 1, (120, 90, 3)), data(kind, 2, (80, 110, 4))
    mass = torch.rand(3, 3, generator=torch.Generator().manual_seed(3)).double()
    found = []
    for wide in (False, True):
        x = (a.x.double() if wide else a.x.clone()).requires_grad_()
        first, second = a.replace(x=x), b.to(dtype=torch.float64) if wide else b
        centre = a.x.mean(dim=0)
        products = None if wide else (a.x - centre) @ (b.x - centre).T
        hints = Hints(torch.ones(3, 3, dtype=torch.bool), products)
        (ad.Bures().hinted(first, second, hints) * mass).sum().backward()
        found.append(x.grad.double())
    assert torch.linalg.norm(found[0] - found[1]) <= 1e-4 * torch.linalg.norm(found[1])


def test_rows_of_factors_come_from_samples_as_they_say():
    sample = data("weighted", 1, (20, 9, 1), dim=6)
    laws = estimate_gaussians(sample.x, sample.y, sample.weights, 3)
    rows = sample_rows(sample.y, sample.weights, 3)
    at = 0
    for block in laws.covariance.parts():
        part = slice(at, at := at + len(block))
        x = sample.x[rows.order[part]].double()
        made = rows.scale[part, None] * (x - rows.share[part] @ x)
        assert torch.allclose(made, block, atol=1e-12)

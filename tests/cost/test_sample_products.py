"""Label distances of float32 samples, by cheaper routes where they are good enough: within what is promised."""

import pytest
import torch

import advect as ad

PROMISED = 4e-6  # of a squared label distance of float32 samples, in a distance


def data(kind, seed, sizes, dim=300):
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
    wide = [side.to(dtype=torch.float64) for side in (a, b)]
    exact = torch.as_tensor(ad.Bures()(*wide))
    traces = [side.laws().covariance.traces() for side in wide]
    scale = PROMISED * exact + 1e-13 * (traces[0][:, None] + traces[1])
    assert ((ad.Bures()(a, b).double() - exact).abs() <= scale).all()
    table = ad.otdd(a, b, solver=ad.MiniBatch(ad.ExactOT(), size=40, batches=1)).class_distances
    assert ((torch.as_tensor(table.values).square() - exact).abs() <= 2 * scale).all()


@pytest.mark.parametrize("kind", ["plain", "pixels", "weighted"])
def test_gradients_are_those_of_float64(kind):
    a, b = data(kind, 1, (120, 90, 3)), data(kind, 2, (80, 110, 4))
    epsilon = 0.1 * float(ad.Bures()(a, b).mean())
    found = []
    for dtype in (torch.float32, torch.float64):
        x = a.x.to(dtype).clone().requires_grad_()
        energy = ad.OTDD(b.to(dtype=dtype), solver=ad.Sinkhorn(epsilon, tol=1e-7))
        energy(a.replace(x=x)).backward()
        found.append(x.grad.double())
    assert torch.linalg.norm(found[0] - found[1]) <= 2e-4 * torch.linalg.norm(found[1])

"""Ordinary flows with default cost and solver: nine that were seen to rise, and five more. Small, of fixed seeds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

import advect as ad
from advect.flows.loop import FlowResult


@dataclass(frozen=True)
class Setup:
    """A flow: its datasets, made when they are asked for, and what is not left at its default."""

    make: Callable[[int], tuple[ad.LabeledDataset, ad.LabeledDataset]]
    options: dict[str, Any] = field(default_factory=dict)
    cost: ad.GroundCost | None = None
    data: bool = False  # reads files of real data

    def run(self, n: int = 120, n_steps: int = 40, **options: Any) -> FlowResult:
        source, target = self.make(n)
        options = {**self.options, "n_steps": n_steps, **options}
        return ad.flow(source, ad.OTDD(target, cost=self.cost), **options)


def _blobs(shares, means, seed, n, dim=2, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    counts = [max(3, round(share * n)) for share in shares]
    y = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    centres = torch.as_tensor(means, dtype=torch.float32)
    return ad.LabeledDataset(centres[y] + spread * torch.randn(len(y), dim, generator=generator), y)


def shares_differ(n):
    source = _blobs([0.5, 0.3, 0.2], [[0, 0], [4, 0], [0, 4]], 0, n)
    return source, _blobs([0.1, 0.3, 0.6], [[6, 6], [10, 6], [6, 10]], 1, n)


def more_classes(n):
    source = _blobs([1 / 3] * 3, [[0, 0], [4, 0], [0, 4]], 0, n)
    return source, _blobs([1 / 4] * 4, [[6, 0], [9, 0], [6, 3], [9, 3]], 1, n)


def iris(n):
    from sklearn.datasets import load_iris

    x, y = map(torch.tensor, load_iris(return_X_y=True))
    data = ad.LabeledDataset(x.float(), y)
    source, target = (
        torch.cat([(y == code).nonzero()[:count, 0] for code, count in enumerate(counts)])
        for counts in ((40, 20, 6), (8, 20, 45))
    )
    return data.subset(source), data.replace(x=data.x + 1.0).subset(target)


def images(source, target, size=None):
    names = source, target
    return lambda n: ad.harmonize(*(ad.datasets.load(name, n=n) for name in names), size=size)


def gaussians(n):
    generator = torch.Generator().manual_seed(0)
    source = ad.datasets.gaussians(n, generator=generator)
    return source, ad.datasets.gaussians(n, shift=(5.0, 0.0), rotation=0.7, generator=generator)


def moons(n):
    generator = torch.Generator().manual_seed(0)
    angle = 3.14159 * torch.rand(n, generator=generator)
    y = (torch.arange(n) % 2).long()
    x = torch.stack([angle.cos() + y, (1 - 2 * y) * angle.sin() + 0.5 * y], dim=1)
    x = x + 0.1 * torch.randn(n, 2, generator=generator)
    return ad.LabeledDataset(x, y), _blobs([0.5, 0.5], [[3, 0], [3, 3]], 1, n, spread=0.3)


def tight_to_wide(n):
    source = _blobs([0.5, 0.5], [[0, 0], [1, 0]], 0, n, spread=0.05)
    return source, _blobs([0.5, 0.5], [[0, 3], [5, 3]], 1, n, spread=2.0)


def wine(n):
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    data = ad.LabeledDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))
    rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    half = len(data) // 2
    return data.subset(rows[:half]), data.replace(x=1.3 * data.x).subset(rows[half:])


def wide_net(x):
    """A fixed random network with two layers: curved, and steep."""
    generator = torch.Generator().manual_seed(3)
    first, second = (torch.randn(a, b, generator=generator) for a, b in ((x.shape[1], 16), (16, 8)))
    return 3 * torch.tanh(x @ first.to(x)) @ second.to(x)


SETUPS: dict[str, Setup] = {
    "class shares differ": Setup(shares_differ),
    "3 to 4 classes": Setup(more_classes),
    "4 to 3 classes": Setup(lambda n: more_classes(n)[::-1]),
    "imbalanced iris": Setup(iris),
    "digits to USPS": Setup(images("digits", "usps"), data=True),
    "Euler(2.0)": Setup(gaussians, {"integrator": ad.Euler(2.0)}),
    "an Embedding, Euler(0.2)": Setup(
        gaussians, {"integrator": ad.Euler(0.2)}, ad.GroundCost(feature=ad.Embedding(wide_net))
    ),
    "label_weight 5": Setup(more_classes, cost=ad.GroundCost(label_weight=5.0)),
    "moons to blobs": Setup(moons),
    "Fashion-MNIST to MNIST": Setup(images("fashion_mnist", "mnist", 14), data=True),
    "jd-fl, shares differ": Setup(shares_differ, {"dynamics": ad.JointFixedLabels()}),
    "jd-vl, shares differ": Setup(shares_differ, {"dynamics": ad.JointVariableLabels()}),
    "tight to wide classes": Setup(tight_to_wide, {"integrator": ad.Euler(0.5)}),
    "wine, unscaled": Setup(wine),
}

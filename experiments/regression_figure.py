"""Two tables whose target differs by a monotone map, before and after, drawn into docs/figures.

python experiments/regression_figure.py"""

from __future__ import annotations

import torch
from figures import FIGURES

import advect as ad
from advect import viz

N = 120


def table(seed: int, shift: float, aim) -> ad.LabeledDataset:
    """A wave with noise, on an interval that is shifted."""
    draw = torch.Generator().manual_seed(seed)
    x = 3 * torch.rand(N, 1, generator=draw)
    height = torch.sin(2 * x[:, 0]) + x[:, 0] + 0.15 * torch.randn(N, generator=draw)
    return ad.LabeledDataset(x + shift, targets=aim(height))


def main() -> None:
    source = table(0, 0.0, lambda y: y)
    target = table(1, 2.0, lambda y: torch.exp(0.7 * y))
    both = ad.flow(
        source, ad.OTDD(target), dynamics=ad.JointTargets(), n_steps=60, integrator=ad.Euler(0.2)
    ).dataset
    features = ad.flow(source, ad.OTDD(target), n_steps=60, integrator=ad.Euler(0.2)).dataset
    frames = [source, features, both]
    titles = ["before", "features", "features and targets"]
    path = FIGURES / "regression.png"
    viz.save(viz.particles(frames, target, titles=titles), path)
    print(path)


if __name__ == "__main__":
    main()

"""Move data toward a target and away from a wall, keep one column, and write a film."""

import torch

import advect as ad
from advect import viz


class Wall(ad.Functional):
    """Quadratic penalty on the side x_0 < 2 of a wall."""

    def __call__(self, rho: ad.LabeledDataset) -> torch.Tensor:
        return (rho.weights * (2 - rho.x[:, 0]).clamp_min(0).square()).sum()


source = ad.datasets.load("toy:gaussians?n=120")
objective = ad.OTDD(source.replace(x=source.x + torch.tensor([3.0, 5.0]))) + 5 * Wall()
settings = {"dynamics": ad.FeatureDriven(columns=[0]), "integrator": ad.Euler(0.1)}
result = ad.flow(source, objective, n_steps=30, callbacks=[ad.Recorder()], **settings)
viz.animation(result, "wall.gif")
change = float((result.dataset.x[:, 1] - source.x[:, 1]).abs().max())
print(f"value {result.values[0]:.1f} to {result.values[-1]:.1f}, second column moved by {change}")

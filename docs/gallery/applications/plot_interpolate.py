"""
Halfway between two datasets
============================

``ad.interpolate`` gives the dataset that is t of the way from one to another, with soft labels
and label laws. For curricula, for augmentation, or to see what a model says on the way.
"""

# %%

import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
three = ad.datasets.gaussians(120, generator=draw)
moons = ad.datasets.moons(120, noise=0.08, generator=draw)
moons = moons.replace(x=4 * moons.x, classes=("upper", "lower"))

path = ad.interpolate(three, moons, [0, 0.5, 1])
figure = viz.particles([state.dataset for state in path], titles=["t = 0", "t = ½", "t = 1"])

# %%
# It is a geodesic: the distance to the start grows in proportion to t. And a sample halfway is of
# two classes, half of each.

exact = ad.ExactOT()
path = ad.interpolate(three, moons, [0.25, 0.5, 0.75])
whole = ad.otdd(three, moons, solver=exact).value
for state in path:
    share = ad.otdd(three, state.dataset, solver=exact).value / whole
    print(f"t = {state.t:.2f}: {share:.4f} of the distance")
half = path[1]
row = half.probabilities[0].tolist()
print("a sample halfway:", dict(zip(half.dataset.classes, (round(p, 2) for p in row), strict=True)))

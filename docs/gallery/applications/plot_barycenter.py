"""
In the middle of three datasets
===============================

``ad.barycenter`` finds the dataset that is nearest to several at once, and ``ad.triangle`` all
mixtures of three. For data to pretrain on that is near to several tasks.
"""

# %%

import torch

import advect as ad

draw = torch.Generator().manual_seed(0)
three = ad.datasets.gaussians(60, generator=draw)
moons = ad.datasets.moons(60, noise=0.08, generator=draw)
moons = moons.replace(x=4 * moons.x, classes=("upper", "lower"))
rings = ad.datasets.rings(60, generator=draw)
rings = rings.replace(x=2.5 * rings.x, classes=("inner", "outer"))

middle = ad.barycenter([three, moons, rings])
print(middle)
print(f"mean squared distance {middle.value:.2f}; nothing can be below {middle.bound:.2f}")

# %%
# Corners are the datasets, sides the paths between two, the inside mixtures of three. Colours are
# soft labels.

triangle = ad.triangle(three, moons, rings, n=3, progress=False)
figure = triangle.figure(names=("three classes", "moons", "rings"))

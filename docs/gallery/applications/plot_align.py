"""
Datasets of different dimensions
================================

``ad.align`` finds a common space for two datasets whose columns have nothing to do with each
other, by the names of classes or by geometry alone. For two encoders, two sensors, two embeddings
of different size.
"""

# %%
# Digits as 64 numbers, and other digits turned into 300 dimensions: nothing says which number was
# which pixel.

import matplotlib.pyplot as plt
import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
here, there = ad.datasets.load("digits", n=800).split(0.5, generator=draw)
frame = torch.linalg.qr(torch.randn(300, 300, generator=draw))[0][:64]
there = there.replace(x=there.x @ frame, sample_shape=(300,))

figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
for axis, way in zip(axes, ("names", "geometry"), strict=True):
    space = ad.align(here, there, by=way)
    a, b = space.apply(here), space.apply(there, side="target")
    nearest = torch.cdist(b.x, a.x).argmin(dim=1)
    right = float((a.y[nearest] == b.y).double().mean())
    print(f"by {way}: {right:.1%} have the label of their nearest neighbour of the other side")
    view = viz.pca([a], b)
    for data, marker in ((view.frames[0], "o"), (view.target, "x")):
        colours = [viz.PALETTE[code] for code in data.y]
        axis.scatter(*data.x.T, s=12, c=colours, marker=marker, linewidths=0.8, alpha=0.7)
    axis.set(title=f"by {way}: {right:.0%} agree with the nearest\nof the other side")
figure.suptitle(
    "64 dimensions (dots) and 300 dimensions (crosses) in one space, colours are digits"
)

# %%
# Geometry knows no names: it found a rotation here, because there is one. Between datasets that
# are not the same up to a rotation, do not trust it without a check.

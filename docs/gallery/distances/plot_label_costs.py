"""
Label costs
===========

The label cost defines the distance between two classes: ``Bures`` (the default), ``ExactLabelOT``,
``MeansOnly``, ``NoLabels`` and ``ByName``. This script compares them on classes that have the same
mean and different shapes.
"""

# %%
# Three classes: a ring and two ellipses. The second dataset has the same classes in another order,
# and only one name is the same.

import matplotlib.pyplot as plt
import torch

import advect as ad

draw = torch.Generator().manual_seed(0)
angle = 2 * torch.pi * torch.rand(100, generator=draw)
ring = torch.stack([angle.cos(), angle.sin()], dim=1) * 1.6
flat = torch.randn(100, 2, generator=draw) * torch.tensor([2.0, 0.4])
shapes = {"ring": ring, "flat": flat, "tall": flat.flip(1)}


def dataset(order, names):
    x = torch.cat([shapes[shape] + 0.1 * torch.randn(100, 2, generator=draw) for shape in order])
    return ad.LabeledDataset(x, [name for name in names for _ in range(100)], classes=names)


source = dataset(["ring", "flat", "tall"], ["ring", "flat", "tall"])
target = dataset(["tall", "ring", "flat"], ["tall", "o", "–"])

# %%
# The distance between classes of the same shape should be smaller than between classes of different
# shapes.

costs = {
    "MeansOnly()": ad.MeansOnly(),
    "Bures(diagonal=True)": ad.Bures(diagonal=True),
    "Bures()": ad.Bures(),
    "ExactLabelOT()": ad.ExactLabelOT(),
    "ByName()": ad.ByName(),
    "ByName(plus=Bures())": ad.ByName(plus=ad.Bures()),
}
pairs = (("ring", "o"), ("flat", "–"), ("tall", "tall"))
same, different = [], []
for name, label in costs.items():
    distance = ad.otdd(source, target, cost=ad.GroundCost(label=label), solver=ad.ExactOT())
    table = distance.class_distances
    same.append(sum(table[pair] for pair in pairs) / 3)
    different.append((table.values.sum() - 3 * same[-1]) / 6)
    print(f"{name:22} same shape {same[-1]:.2f}, different shapes {different[-1]:.2f}")
features_only = ad.GroundCost(label=ad.NoLabels())
print(f"distance without labels: {ad.otdd(source, target, cost=features_only).value:.2f}")

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
places = torch.arange(len(costs))
axis.barh(places - 0.2, same, 0.38, label="same shape")
axis.barh(places + 0.2, different, 0.38, label="different shapes")
axis.set(title="Mean distance between classes", yticks=places, yticklabels=list(costs))
axis.invert_yaxis()
axis.legend()

# %%
# ``MeansOnly`` hardly distinguishes these classes. ``Bures`` distinguishes them by their covariances and
# ``ExactLabelOT`` by their samples. ``ByName`` depends on the names only, of which two differ.

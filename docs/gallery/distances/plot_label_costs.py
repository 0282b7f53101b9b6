"""
What a class is: seven label costs
==================================

``Bures``, its diagonal form, ``ExactLabelOT``, ``MeansOnly``, ``NoLabels`` and ``ByName`` on one
pair of datasets. Look here when you wonder which one to take: they differ in what they see of a
class.
"""

# %%
# Three classes with one mean. Two of them are ellipses that lie across each other, the third is a
# ring. In the second dataset the classes come in another order, under other names but for one.

import matplotlib.pyplot as plt
import torch

import advect as ad

draw = torch.Generator().manual_seed(0)
angle = 2 * torch.pi * torch.rand(150, generator=draw)
ring = torch.stack([angle.cos(), angle.sin()], dim=1) * 1.6
flat = torch.randn(150, 2, generator=draw) * torch.tensor([2.0, 0.4])
shapes = {"ring": ring, "flat": flat, "tall": flat.flip(1)}


def dataset(order, names):
    x = torch.cat([shapes[shape] + 0.1 * torch.randn(150, 2, generator=draw) for shape in order])
    return ad.LabeledDataset(x, [name for name in names for _ in range(150)], classes=names)


source = dataset(["ring", "flat", "tall"], ["ring", "flat", "tall"])
target = dataset(["tall", "ring", "flat"], ["tall", "o", "–"])

# %%
# Seven costs, the distances between classes that each sees, and the distance that follows.

costs = {
    "Bures()": ad.Bures(),
    "Bures(diagonal=True)": ad.Bures(diagonal=True),
    "ExactLabelOT()": ad.ExactLabelOT(),
    "MeansOnly()": ad.MeansOnly(),
    "NoLabels()": ad.NoLabels(),
    "ByName()": ad.ByName(),
    "ByName(plus=Bures())": ad.ByName(plus=ad.Bures()),
}
figure, axes = plt.subplots(2, 4, figsize=(11, 6.6), layout="constrained")
figure.get_layout_engine().set(hspace=0.08)
for axis, (name, label) in zip(axes.flat[1:], costs.items(), strict=True):
    distance = ad.otdd(source, target, cost=ad.GroundCost(label=label), solver=ad.ExactOT())
    seen = name != "NoLabels()"
    table = distance.class_distances.values if seen else torch.zeros(3, 3).numpy()
    axis.imshow(table, cmap="Blues", vmin=0, vmax=3)
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            axis.text(
                j, i, f"{value:.1f}", ha="center", va="center", color="w" if value > 2 else "k"
            )
    axis.set(
        xticks=range(3), yticks=range(3), xticklabels=target.classes, yticklabels=source.classes
    )
    axis.set_title(f"{name}\nOTDD {distance.value:.2f}")
    print(f"{name:22} OTDD {distance.value:.3f}")
for position, name in enumerate(source.classes):
    axes.flat[0].scatter(*source.of_class(name).x.T, s=4, label=name, color=f"C{position}")
axes.flat[0].set(title="the classes", aspect="equal")
axes.flat[0].legend(markerscale=3, loc="upper right")
figure.suptitle(
    "Distances between classes as each label cost sees them (rows: source, columns: target)"
)

# %%
# Means see nothing here. Gaussians tell the ellipses apart, and the ring from both by its
# covariance; its hole only ``ExactLabelOT`` sees, which is dearer. ``ByName`` knows that "tall"
# is "tall" and nothing else.

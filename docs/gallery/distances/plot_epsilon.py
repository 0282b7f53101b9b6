"""
What epsilon does
=================

The same pair of datasets at several values of epsilon, the regularisation of ``Sinkhorn``. Small
ones pair sample with sample and take longer; large ones blur the plan. The default is 1 % of the
mean cost, ``Relative(0.01)``.
"""

# %%

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

import advect as ad
from advect.viz.theme import PALETTE

source = ad.datasets.load("toy:moons?n=120")
target = ad.datasets.load("toy:rings?n=120&seed=1")
target = target.replace(x=target.x + 4)
for share in (0.001, 0.01, 0.1, 1.0):
    distance = ad.otdd(source, target, solver=ad.Sinkhorn(epsilon=ad.Relative(share)))
    cross = distance.divergence.cross
    print(
        f"epsilon {share:7.1%} of the mean cost: OTDD {distance.value:.4f}, {cross.n_iter} iterations"
    )

# %%
# The debiased distance changes little, the plan much. Lines join samples that are paired; crosses
# are where each sample would go, the mean of what it is paired with. With a large epsilon they
# leave the rings and gather in the middle.

plans = {
    share: ad.otdd(source, target, solver=ad.Sinkhorn(epsilon=ad.Relative(share))).plan()
    for share in (0.001, 0.03, 0.3)
}
figure, axes = plt.subplots(1, 3, figsize=(10.5, 4), layout="constrained", sharey=True)
for axis, (share, plan) in zip(axes, plans.items(), strict=True):
    strength = plan.numpy() * len(source)  # 1 where a sample goes whole to another
    i, j = (strength > 0.01).nonzero()
    lines = np.stack([source.x.numpy()[i], target.x.numpy()[j]], axis=1)
    colours = np.full((len(i), 4), 0.45)
    colours[:, 3] = np.minimum(1, strength[i, j])
    axis.add_collection(LineCollection(lines, colors=colours, linewidths=0.6))
    for data in (source, target):
        axis.scatter(*data.x.T, c=[PALETTE[code] for code in data.y], s=9)
    goes = (plan / plan.sum(1, keepdim=True)).to(target.x.dtype) @ target.x
    axis.scatter(*goes.T, c="k", marker="x", s=16, linewidths=0.9, zorder=3)
    axis.set(title=f"epsilon {share:.1%} of the mean cost", aspect="equal")
figure.suptitle("The plan from two moons (below) to two rings; crosses: where samples would go")

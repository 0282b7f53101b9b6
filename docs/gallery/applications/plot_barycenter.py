"""
Barycenters of datasets
=======================

A dataset between several others minimizes a weighted sum of distances to them, so a flow of that sum
finds it. Use it for data that is close to several tasks at once. The weights trace a triangle
between three datasets.
"""

# %%
# Three Gaussian classes, two moons and two rings. The flow starts at the Gaussian classes.

import matplotlib.pyplot as plt

import advect as ad

three = ad.datasets.load("toy:gaussians?n=45")
moons = ad.datasets.load("toy:moons?n=45&noise=0.08")
moons = moons.replace(x=4 * moons.x, classes=("upper", "lower"))
rings = ad.datasets.load("toy:rings?n=45")
rings = rings.replace(x=2.5 * rings.x, classes=("inner", "outer"))

# %%
# The objective is half the weighted mean of the squared distances. Labels stay those of the start.

corners = [(1, 0, 0), (0.5, 0.5, 0), (0, 1, 0), (0.5, 0, 0.5), (1 / 3, 1 / 3, 1 / 3), (0, 0, 1)]
figure, axes = plt.subplots(2, 3, figsize=(10, 6.6), layout="constrained")
for axis, weights in zip(axes.flat, corners, strict=True):
    pairs = zip(weights, (three, moons, rings), strict=True)
    objective = sum((w * ad.OTDD(data) for w, data in pairs if w > 0), start=0.0 * ad.OTDD(three))
    result = ad.flow(three, objective, integrator=ad.Euler(0.5), n_steps=6)
    axis.scatter(*result.dataset.x.T, c=result.dataset.y, cmap="tab10", vmax=9, s=14)
    axis.set_title("Gaussians {:.2g}, moons {:.2g}, rings {:.2g}".format(*weights), fontsize=10)
    print(f"{weights}: objective {result.values[0]:.3f} → {result.values[-1]:.3f}")

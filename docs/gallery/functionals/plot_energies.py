"""
Potential, interaction and internal energies
============================================

``Potential(V)`` moves samples by their position and label, ``Interaction(W)`` by their differences, and
``Internal(power)`` by their density. Add one of them to a distance to shape a dataset.
"""

# %%
# Each energy is decreased by a flow from the same three classes.

import matplotlib.pyplot as plt

import advect as ad
from advect.viz.theme import PALETTE

source = ad.datasets.load("toy:gaussians?n=150&separation=2")
energies = {
    "norm": ad.Potential(ad.norm()),  # to the origin
    "ball": ad.Potential(ad.ball([0.0, 0.0], 2.0)),  # into a ball
    "collapse": ad.Potential(ad.collapse(1)),  # onto a line
    "affine_norm": ad.Potential(ad.affine_norm([[1.0, -1.0], [0.0, 0.0]])),  # onto x = y
    "hinge": ad.Potential(ad.hinge([1.0, 0.0], positive=(1,))),  # linearly separable
    "custom potential": ad.Potential(lambda x, y: (x[:, 0] - 4 * y).square()),
    "attraction": ad.Interaction(ad.attraction()),  # classes contract
    "repulsion": ad.Interaction(ad.repulsion(length=2.0)),  # classes separate
    "spreading": ad.Interaction(ad.spreading()),  # classes separate without bound
    "entropy": ad.Internal(1.0),  # heat equation
    "porous medium": ad.Internal(2.0),
    "attraction + repulsion": ad.Interaction(ad.attraction())
    + 20 * ad.Interaction(ad.repulsion(length=2.0)),
}
states = {}
for name, energy in energies.items():
    steps = 4 if name == "spreading" else 20
    result = ad.flow(source, energy, integrator=ad.Euler(0.2), n_steps=steps)
    states[name] = result.dataset
    print(f"{name:24} {result.values[0]:8.3f} → {result.values[-1]:8.3f}")

# %%
# A sum contracts classes and keeps them apart. The terms are recorded by name.

print({name: round(values[-1], 3) for name, values in result.terms.items()})
figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True)
titles = {"before": source, "attraction + repulsion": states["attraction + repulsion"]}
for axis, (title, data) in zip(axes, titles.items(), strict=True):
    axis.scatter(*data.x.T, s=12, c=[PALETTE[code] for code in data.y])
    axis.set(title=title, aspect="equal")

"""
Potentials: five shapes for a dataset
=====================================

``Potential(V)`` moves each sample down a function of its place and label. Use one beside a
distance to shape the result, or alone, as here: to shrink, to bound, to flatten, to set classes
apart.
"""

# %%

import matplotlib.pyplot as plt
import torch

import advect as ad
from advect.viz.theme import PALETTE

source = ad.datasets.load("toy:gaussians?n=180&shift=1,1")
potentials = {
    "norm: to the origin": ad.norm(),
    "ball: into a disc": ad.ball([0.0, 0.0], 2.0),
    "collapse: onto a line": ad.collapse(1),
    "affine_norm: onto x = y": ad.affine_norm([[1.0, -1.0], [0.0, 0.0]]),
    "hinge: class 1 to the left": ad.hinge([1.0, 0.0], margin=2.0, positive=(1,)),
}
moved = {}
for name, potential in potentials.items():
    result = ad.flow(source, ad.Potential(potential), integrator=ad.Euler(0.1), n_steps=40)
    moved[name] = result.dataset
    print(f"{name:36} {result.values[0]:.2f} → {result.values[-1]:.2f}")

# %%
# One of your own is a function of x and y. This one pulls each class to its own corner.

corners = torch.tensor([[4.0, 4.0], [-4.0, 4.0], [0.0, -4.0]])
own = ad.Potential(lambda x, y: (x - corners[y]).square().sum(1) / 2)
moved["yours: a corner for each"] = ad.flow(source, own, n_steps=8).dataset

figure, axes = plt.subplots(2, 4, figsize=(12, 6), layout="constrained")
states = {"before": source, **moved}
for axis, (name, data) in zip(axes.flat, states.items(), strict=False):
    axis.scatter(*data.x.T, s=7, c=[PALETTE[code] for code in data.y])
    axis.set(title=name, aspect="equal", xlim=(-6, 7), ylim=(-6, 7))
axes.flat[-1].axis("off")

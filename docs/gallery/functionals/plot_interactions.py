"""
Interactions: classes that contract, part, or fly apart
=======================================================

``Interaction(W)`` is an energy of pairs of samples. Add ``repulsion`` or ``attraction`` to a
distance to keep classes apart that would otherwise mix; ``spreading`` grows without end, and is
for a few steps.
"""

# %%
# Three classes that overlap. The accuracy of a linear model says how separable they are after each flow.

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression

import advect as ad
from advect.viz.theme import PALETTE

source = ad.datasets.load("toy:gaussians?n=210&separation=1.5")
energies = {
    "attraction": ad.Interaction(ad.attraction()),
    "repulsion": ad.Interaction(ad.repulsion(length=2.0)),
    "spreading": ad.Interaction(ad.spreading()),
    "both": ad.Interaction(ad.attraction()) + 20 * ad.Interaction(ad.repulsion(length=2.0)),
    # W of your own: a function of differences and of whether labels agree
    "your own": ad.Interaction(lambda d, same: (~same) / (0.3 + d.square().sum(-1))),
}
steps = {"attraction": 25, "repulsion": 60, "spreading": 4, "both": 25, "your own": 60}
states = {"before": source}
for name, energy in energies.items():
    states[name] = ad.flow(source, energy, integrator=ad.Euler(0.2), n_steps=steps[name]).dataset

# %%

figure, axes = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
for axis, (name, data) in zip(axes.flat, states.items(), strict=True):
    right = LogisticRegression().fit(data.x, data.y).score(data.x, data.y)
    axis.scatter(*data.x.T, s=8, c=[PALETTE[code] for code in data.y])
    axis.set(title=f"{name}: {right:.0%} separable", aspect="equal")
    print(f"{name:12} a linear model: {right:.1%}")

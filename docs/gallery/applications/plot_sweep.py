"""
A sweep over settings
=====================

``ad.sweep`` calls a function with every combination of parameters, keeps what it gives on disk,
and goes on after a crash. For choosing a step size and a label weight, on validation data and not
by eye.
"""

# %%
# Digits flow to MNIST. The question is how many samples keep their digit by a nearest-neighbour
# vote among *other* images of MNIST.

import tempfile

import matplotlib.pyplot as plt
import numpy as np
import torch

import advect as ad

digits, mnist = ad.harmonize(
    ad.datasets.load("digits", n=100, balanced=True),
    ad.datasets.load("mnist", n=400, balanced=True),
    size=10,
)
target, validation = mnist.split(0.25, generator=torch.Generator().manual_seed(0))


def trial(label_weight, step_size):
    cost = ad.GroundCost(label=ad.ByName(plus=ad.Bures()), label_weight=label_weight)
    result = ad.flow(digits, ad.OTDD(target, cost=cost), integrator=ad.Euler(step_size), n_steps=6)
    gaps = np.linalg.norm(result.dataset.x.numpy()[:, None] - validation.x.numpy(), axis=2)
    votes = validation.y.numpy()[gaps.argmin(1)]
    return {"kept": float((votes == digits.y.numpy()).mean()), "value": result.values[-1]}


grid = {"label_weight": [0.0, 0.1, 1.0, 10.0], "step_size": [0.05, 0.2, 0.5]}
runs = ad.sweep(trial, grid, store=tempfile.mkdtemp())
best = runs.best("kept", largest=True)
print("best:", best.parameters, best.result)

# %%

table = runs.to_pandas().pivot(index="label_weight", columns="step_size", values="kept")
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
for (i, j), value in np.ndenumerate(table.to_numpy()):
    axis.text(j, i, f"{value:.0%}", ha="center", va="center", color="w" if value > 0.6 else "k")
axis.set_xticks(range(3), table.columns)
axis.set_yticks(range(4), table.index)
axis.set(
    title="Share of digits classified correctly after 6 steps",
    xlabel="step size",
    ylabel="label weight",
)

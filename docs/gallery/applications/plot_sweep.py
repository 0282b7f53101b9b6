"""
A parameter sweep
=================

Run a function for every combination of parameters with joblib. Use it to choose a step size and a
label weight on validation data. ``joblib.Memory`` keeps finished runs on disk, so that a second call
continues where the first one stopped.
"""

# Digits flow to MNIST. The score is the share of samples whose nearest neighbor among *other* MNIST
# images has the same digit.

from itertools import product

import matplotlib.pyplot as plt
import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.neighbors import KNeighborsClassifier

import advect as ad

digits, mnist = ad.harmonize(
    ad.datasets.load("digits", n=100, balanced=True),
    ad.datasets.load("mnist", n=400, balanced=True),
    size=10,
)
target, validation = mnist.split(0.25, generator=torch.Generator().manual_seed(0))
judge = KNeighborsClassifier(1).fit(validation.x, validation.y)


def trial(label_weight, step_size):
    cost = ad.GroundCost(label=ad.ByName(plus=ad.Bures()), label_weight=label_weight)
    result = ad.flow(digits, ad.OTDD(target, cost=cost), integrator=ad.Euler(step_size), n_steps=6)
    return judge.score(result.dataset.x, digits.y)


label_weights, step_sizes = [0.0, 0.1, 1.0, 10.0], [0.05, 0.2, 0.5]
grid = list(product(label_weights, step_sizes))
scores = np.reshape(
    Parallel(n_jobs=2, prefer="threads")(delayed(trial)(*point) for point in grid), (4, 3)
)
print("best label weight and step size:", grid[scores.argmax()], f"with {scores.max():.0%}")

# %%

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for weight, row in zip(label_weights, scores, strict=True):
    axis.plot(step_sizes, row, "o-", label=f"label weight {weight:g}")
axis.set(title="Correct digits after 6 steps", xlabel="step size", ylabel="share", ylim=(0, 1))
axis.legend()

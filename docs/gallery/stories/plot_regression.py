"""
Regression targets
==================

``TargetValues`` compares samples by a continuous target, and ``JointTargets`` also moves the target. Here the
features and the outcome of one clinic are on another scale than those of a second one.
"""

# %%
# The diabetes data in two halves. In the second half the outcome is rescaled and one feature is shifted.

import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

import advect as ad
from advect import viz

table = load_diabetes()
x = torch.tensor(table.data / table.data.std(0), dtype=torch.float32)
y = torch.tensor((table.target - table.target.mean()) / table.target.std(), dtype=torch.float32)
names = {"columns": table.feature_names, "target_columns": ["progression"]}
source = ad.LabeledDataset(x[:220], targets=y[:220], **names)
bmi = torch.eye(10)[2]
target = ad.LabeledDataset(x[220:] + 2 * bmi, targets=1.5 * y[220:] + 3, **names)

print(f"OTDD with targets: {ad.otdd(source, target).value:.3f}")

# %%
# A ridge regression that is trained on the moved data and evaluated on the second clinic.

options = {"integrator": ad.Euler(0.2), "n_steps": 15}
moved = ad.flow(source, ad.OTDD(target), dynamics=ad.JointTargets(), **options).dataset
only_x = ad.flow(source, ad.OTDD(target), **options).dataset
for name, data in {"not moved": source, "x moved": only_x, "x and y moved": moved}.items():
    fit = Ridge(10.0).fit(data.x, data.targets.flatten())
    print(f"{name:14} R² {fit.score(target.x, target.targets.flatten()):.2f}")
figure = viz.particles([source, moved], target, titles=["before", "after"], feature="bmi")

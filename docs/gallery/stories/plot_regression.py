"""
Labels that are numbers
=======================

``TargetValues`` compares samples by a continuous target, ``JointTargets`` moves it too. For
regression: a table of one clinic carried to another where both features and outcome
are on another scale.
"""

# %%
# Diabetes, cut in two; in the second half the outcome is on another scale and one feature is
# shifted.

import torch
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

import advect as ad
from advect import viz

table = load_diabetes()
x = torch.tensor(table.data / table.data.std(0), dtype=torch.float32)
y = torch.tensor((table.target - table.target.mean()) / table.target.std(), dtype=torch.float32)
names = {"columns": table.feature_names, "target_columns": ["progression"]}
here = ad.LabeledDataset(x[:220], targets=y[:220], **names)
bmi = torch.eye(10)[2]
there = ad.LabeledDataset(x[220:] + 2 * bmi, targets=1.5 * y[220:] + 3, **names)

print(f"OTDD with targets: {ad.otdd(here, there).value:.3f}")

# %%
# The flow of features and outcome, and a ridge regression on what it made, tried on the other
# clinic's rows.

result = ad.flow(
    here,
    ad.OTDD(there),
    dynamics=ad.JointTargets(),
    integrator=ad.Euler(0.2),
    n_steps=20,
    callbacks=[ad.Recorder(every=10)],
)
only_x = ad.flow(here, ad.OTDD(there), integrator=ad.Euler(0.2), n_steps=20).dataset
for name, data in {"as it is": here, "x and y moved": result.dataset, "x moved": only_x}.items():
    fit = Ridge(10.0).fit(data.x, data.targets.flatten())
    print(f"trained on ours, {name:14} R² there {fit.score(there.x, there.targets.flatten()):.2f}")
figure = viz.particles(result, there, feature="bmi")

"""
How a covariance moves
======================

In joint dynamics the law of a class is an ellipse that moves by itself. ``laws="bures"`` takes it
along Wasserstein geodesics, ``"euclidean"`` adds matrices and repairs them, ``"factored"`` moves
factors, ``"diagonal"`` keeps axes. Take the default, unless d × d
matrices are too large: then factors.
"""

# %%
# One class that must turn and stretch.

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import Ellipse

import advect as ad

draw = torch.Generator().manual_seed(0)
cloud = torch.randn(150, 2, generator=draw) * torch.tensor([3.0, 0.5])
source = ad.LabeledDataset(cloud, ["a"] * 150)
turn = torch.tensor([[0.3, -0.95], [0.95, 0.3]])
target = ad.LabeledDataset(cloud @ turn.T + torch.tensor([10.0, 0.0]), ["b"] * 150)
motions = ("bures", "euclidean", "factored", "diagonal")
figure, axes = plt.subplots(2, 2, figsize=(10, 6), layout="constrained", sharex=True, sharey=True)
for axis, name in zip(axes.flat, motions, strict=True):
    diagonal = name == "diagonal"
    result = ad.flow(
        source,
        ad.OTDD(target, cost=ad.GroundCost(label=ad.Bures(diagonal=diagonal))),
        dynamics=ad.JointFixedLabels(laws=name),
        integrator=ad.Euler(0.1),
        n_steps=30,
        callbacks=[ad.Recorder(every=6)],
    )
    for frame in result.trajectory:
        data = frame.dataset
        axis.scatter(*data.x.T, s=3, color="C0", alpha=0.25)
        variances, directions = np.linalg.eigh(data.law.covariance.dense()[0].double().numpy())
        angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
        width, height = 4 * np.sqrt(np.maximum(variances[::-1], 0))
        place = data.law.means[0].tolist()
        axis.add_patch(Ellipse(place, width, height, angle=angle, fill=False, color="C1", lw=1.5))
    axis.set(title=f"{name}: value {result.values[-1]:.3f}", aspect="equal")
    print(f"{name:16} value {result.values[0]:.1f} → {result.values[-1]:.3f}")
figure.suptitle("Samples, and the law that moves beside them (two deviations)")

# %%
# The diagonal motion cannot turn: it squeezes one axis and stretches the other, and under a
# diagonal cost that is all there is to do.

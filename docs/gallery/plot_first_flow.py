"""
A first flow
============

Three classes flow to three others, each class as a whole. This is the shortest script: two
datasets, a flow, a figure.
"""

# %%
# Two labeled datasets in the plane, the second shifted and rotated.
import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(150, generator=draw)
target = ad.datasets.gaussians(150, shift=(8.0, 2.0), rotation=0.8, generator=draw)

# %%
# The flow decreases the distance between them. What is not given is chosen from the data, and
# ``ad.suggest`` shows the choices. ``Recorder`` keeps every step for the figure.
print(ad.suggest(source, target))
result = ad.flow(source, target, n_steps=20, callbacks=[ad.Recorder()])
print(result)

# %%
# Dots are samples, hollow marks the target; colours are classes.
figure = viz.particles(
    [result.trajectory[step] for step in (0, 2, 20)], target, trails=result.trajectory
)

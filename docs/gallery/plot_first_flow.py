"""
A first flow
============

Three classes move to three other classes. This is the shortest script: it needs two datasets
and a flow.
"""

# %%
# Two labeled datasets in the plane. The second one is shifted and rotated.
import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(150, generator=draw)
target = ad.datasets.gaussians(150, shift=(8.0, 2.0), rotation=0.8, generator=draw)

# %%
# The flow decreases the distance between them. Settings that are not given are chosen from the
# data; ``ad.suggest`` shows the choices. ``Recorder`` stores the steps for the figure.
print(ad.suggest(source, target))
result = ad.flow(source, target, n_steps=20, callbacks=[ad.Recorder()])
print(result)

# %%
# Dots are samples and hollow marks are the target. Colors are classes, lines are paths.
figure = viz.particles(
    [result.trajectory[step] for step in (0, 20)], target, trails=result.trajectory
)

"""
A first flow
============

Three classes move to three other classes. This is the shortest script: it needs two datasets, a
functional and a flow.
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
# The flow decreases the distance to the target. ``Recorder`` stores the steps for the figure.
result = ad.flow(
    source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=20, callbacks=[ad.Recorder()]
)
print(result)

# %%
# Dots are samples and hollow marks are the target. Colors are classes, lines are paths.
figure = viz.particles(
    [result.trajectory[step] for step in (0, 20)], target, trails=result.trajectory
)

"""
A first flow
============

Three classes flow to three others, each sample to where its class is wanted. The shortest script
there is: two datasets, a functional, a flow, a picture.
"""

# %%
# Two labeled datasets in the plane, the second moved and turned.
import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(150, generator=draw)
target = ad.datasets.gaussians(150, shift=(8.0, 2.0), rotation=0.8, generator=draw)

# %%
# The flow decreases the distance between them; the recorder keeps every step for the figure.
result = ad.flow(
    source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=20, callbacks=[ad.Recorder()]
)
print(result)

# %%
figure = viz.particles(result.trajectory, target)

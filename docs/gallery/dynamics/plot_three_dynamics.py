"""
Dynamics of features and labels
===============================

``FeatureDriven`` (fd) moves features; label laws follow. ``JointFixedLabels`` (jd-fl) moves features
and one law for each class. ``JointVariableLabels`` (jd-vl) moves one law for each particle and clusters
the laws, so that the number of classes can change. Use fd unless it has to change.
"""

# %%
# A flow from three classes to four.

import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(99, 3, separation=12.0, spread=3.0, generator=draw)
target = ad.datasets.gaussians(
    100, 4, separation=15.0, spread=3.0, shift=(48.0, 10.0), rotation=0.6, generator=draw
)
dynamics = {
    "fd": ad.FeatureDriven(),
    "jd-fl": ad.JointFixedLabels(),
    "jd-vl": ad.JointVariableLabels("dbscan?eps=6"),
}
ends = {}
for name, kind in dynamics.items():
    result = ad.flow(source, ad.OTDD(target), dynamics=kind, integrator=ad.Adam(2.0), n_steps=45)
    ends[name] = result.dataset
    used = sum(count > 0 for count in result.dataset.counts.values())
    print(f"{name:6} value {result.values[0]:.0f} → {result.values[-1]:.2f}, {used} classes")

# %%
# With fixed labels, one class has to cover two classes of the target. Ellipses are label laws.

shown = ("fd", "jd-vl")
figure = viz.particles([ends[name] for name in shown], target, titles=shown)

"""
Three dynamics: what may move
=============================

``FeatureDriven`` (fd) moves features, and label laws follow. ``JointFixedLabels`` (jd-fl) moves
features and one law for each class. ``JointVariableLabels`` (jd-vl) gives each particle its own
law and reads labels off by clustering, so that classes can be born. Take fd unless classes must
change in number.
"""

# %%
# Three classes to four.

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
results = {}
for name, kind in dynamics.items():
    results[name] = ad.flow(
        source,
        ad.OTDD(target),
        dynamics=kind,
        integrator=ad.Adam(2.0),
        n_steps=45,
        callbacks=[ad.Recorder(every=15)],
    )
    end = results[name]
    used = sum(count > 0 for count in end.dataset.counts.values())
    print(f"{name:6} value {end.values[0]:.0f} → {end.values[-1]:.2f}, {used} classes at the end")

# %%
# With fixed labels one class must be in two places at once. Ellipses are label laws.

figure = viz.particles(results, target, columns=4)

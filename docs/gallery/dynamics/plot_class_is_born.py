"""
A class is born
===============

Under ``JointVariableLabels`` labels are clusters of (feature, law) pairs. This entry counts the
classes over time for three clusterers: one that is told the number, two that find it. Look at the
counts before you trust the labels.
"""

# %%

import matplotlib.pyplot as plt
import torch
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(99, 3, separation=12.0, spread=3.0, generator=draw)
target = ad.datasets.gaussians(
    100, 4, separation=15.0, spread=3.0, shift=(48.0, 10.0), rotation=0.6, generator=draw
)
clusterers = {
    "DBSCAN(6)": DBSCAN(eps=6.0, min_samples=4),
    "HDBSCAN(8)": HDBSCAN(min_cluster_size=8),
    "KMeans(4)": KMeans(4),
}
results = {}
for name, clusterer in clusterers.items():
    results[name] = ad.flow(
        source,
        ad.OTDD(target),
        dynamics=ad.JointVariableLabels(clusterer),
        integrator=ad.Adam(2.0),
        n_steps=45,
        callbacks=[ad.Recorder(every=1)],
    )
    sizes = sorted(results[name].dataset.counts.values(), reverse=True)
    print(f"{name:12} sizes of classes at the end {sizes}; the target has 25 of each")

# %%

figure = viz.curves(results["DBSCAN(6)"])

# %%
# The number of classes that have samples, by clusterer.

other, axis = plt.subplots(figsize=(6.5, 3.5), layout="constrained")
for name, result in results.items():
    counts = [sum(c > 0 for c in frame.dataset.counts.values()) for frame in result.trajectory]
    axis.step([frame.index for frame in result.trajectory], counts, label=name, where="post")
axis.axhline(4, color="0.7", linestyle="--", label="classes of the target")
axis.set(title="Classes over the flow", xlabel="step", ylabel="classes", yticks=range(3, 7))
axis.legend()

"""
Four maps for samples that the flow never saw
=============================================

A flow moves its own particles. ``NearestMap``, ``EntropicMap``, ``NeuralMap`` and
``FlowMatchingMap`` carry new samples the same way. Use one to bring test data along; this entry
shows what each does beyond the particles.
"""

# %%
# Three classes flow to three moved ones; fresh samples of the same law are then carried by each
# map.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import advect as ad
from advect.viz.theme import PALETTE

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(240, generator=draw)
target = ad.datasets.gaussians(240, shift=(9.0, 2.0), rotation=0.7, generator=draw)
result = ad.flow(source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=20)
fresh = ad.datasets.gaussians(300, generator=draw)  # of the same law as the source

maps = {
    "nearest": ad.maps.NearestMap(k=5),
    "entropic": ad.maps.EntropicMap(),
    "neural": ad.maps.NeuralMap(epochs=30, restarts=1, progress=False),
    "flow matching": ad.maps.FlowMatchingMap(updates=400, width=128, progress=False),
}
moved = {}
for name, carry in maps.items():
    moved[name] = carry.fit(result).transform(fresh)
    print(f"{name:14} OTDD to the target {ad.otdd(moved[name], target).value:.2f}")
print(f"{'not moved':14} OTDD to the target {ad.otdd(fresh, target).value:.2f}")

# %%
# Maps are saved as plain tensors, and nothing in such a file is run.

path = maps["entropic"].save(Path(tempfile.mkdtemp()) / "carry.safetensors")
again = ad.maps.load(path).transform(fresh.x)
print("the same after saving:", torch.equal(again, maps["entropic"].transform(fresh.x)))

figure, axes = plt.subplots(1, 5, figsize=(15, 3), layout="constrained", sharex=True, sharey=True)
for axis, (name, data) in zip(axes.flat, {"fresh samples": fresh, **moved}.items(), strict=True):
    axis.scatter(*target.x.T, s=12, facecolors="none", edgecolors="0.7", linewidths=0.6)
    axis.scatter(*data.x.T, s=6, c=[PALETTE[code] for code in data.y])
    axis.set(title=f"{name}: {ad.otdd(data, target).value:.2f} to the target")

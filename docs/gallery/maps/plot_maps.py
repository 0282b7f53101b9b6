"""
Maps for new samples
====================

A flow moves its own samples. ``NearestMap``, ``EntropicMap``, ``NeuralMap`` and ``FlowMatchingMap`` move
new samples in the same way, for example a test set.
"""

# %%
# Maps are fitted on the first and last states of a flow, and applied to new samples of the source.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import advect as ad

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(240, generator=draw)
target = ad.datasets.gaussians(240, shift=(9.0, 2.0), rotation=0.7, generator=draw)
result = ad.flow(source, ad.OTDD(target), integrator=ad.Euler(0.2), n_steps=15)
fresh = ad.datasets.gaussians(240, generator=draw)  # from the distribution of the source

maps = {
    "NearestMap": ad.maps.NearestMap(k=5),
    "EntropicMap": ad.maps.EntropicMap(),
    "NeuralMap": ad.maps.NeuralMap(epochs=20, restarts=1, progress=False),
    "FlowMatchingMap": ad.maps.FlowMatchingMap(updates=200, width=64, progress=False),
}
values = {"not moved": ad.otdd(fresh, target).value}
for name, fitted in maps.items():
    values[name] = ad.otdd(fitted.fit(result).transform(fresh), target).value
for name, value in values.items():
    print(f"{name:16} OTDD to the target {value:.2f}")

# %%
# Maps are saved as tensors, without code.

path = maps["EntropicMap"].save(Path(tempfile.mkdtemp()) / "map.safetensors")
loaded = ad.maps.load(path).transform(fresh.x)
print("identical after loading:", torch.equal(loaded, maps["EntropicMap"].transform(fresh.x)))

figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.bar_label(axis.barh(list(values), list(values.values())), fmt="{:.2f}", padding=3)
axis.set(title="Distance of new samples to the target", xlabel="OTDD")
axis.margins(x=0.15)
axis.invert_yaxis()

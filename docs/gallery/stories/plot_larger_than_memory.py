"""
Data that does not fit in memory
================================

``ClassStatistics`` gathers label laws in batches from a file, so that a sample of some hundred
rows carries the laws of millions; ``memory_limit`` keeps the matrices of a distance within
bounds. For data on disk and a laptop.
"""

# %%
# A file of 200 000 rows, read in batches. The laws are those of all rows, to rounding.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import advect as ad

rng = np.random.default_rng(0)
y = rng.integers(0, 4, 200_000)
x = (rng.normal(size=(200_000, 8)) + 2 * y[:, None]).astype(np.float32)
file = Path(tempfile.mkdtemp()) / "large.npz"
np.savez(file, x=x, y=y)

laws = ad.ClassStatistics.from_source(file)
print(laws, laws.counts)
del x, y  # from here on nothing holds the data

# %%
# Two samples of this file are the same data, so that their distance should be near 0. Label laws
# that are estimated from few rows add to it; those that are carried from all rows add less.

found = {"laws of the sample": [], "laws of all rows": [], "no labels": []}
sizes, blind = (40, 100, 300, 1000), ad.GroundCost(label=ad.NoLabels())
for n in sizes:
    pair = [ad.datasets.load(file, n=n, seed=seed) for seed in (0, 1)]
    whole = [
        ad.LabeledDataset(part.x, part.labels, classes=laws.classes, law=laws.to_gaussians())
        for part in pair
    ]
    found["laws of the sample"].append(ad.otdd(*pair).value)
    found["laws of all rows"].append(ad.otdd(*whole).value)
    found["no labels"].append(ad.otdd(*pair, cost=blind).value)

# %%
# The same distance with a bound for its matrices.

free, bounded = (ad.otdd(*whole, memory_limit=limit) for limit in (None, "4MB"))
print(f"OTDD {free.value:.6f}, within 4 MB {bounded.value:.6f}")
figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
for name, values in found.items():
    axis.plot(sizes, values, "o--" if name == "no labels" else "o-", label=name)
axis.set(title="OTDD between two samples of one file", xlabel="rows in each sample", ylabel="OTDD")
axis.set(xscale="log", ylim=(0, None))
axis.set_xticks(sizes, sizes)
axis.minorticks_off()
axis.legend()

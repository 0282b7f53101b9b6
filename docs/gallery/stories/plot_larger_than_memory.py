"""
Data that does not fit in memory
================================

``ClassStatistics`` gathers label laws in batches from a file, so that a sample of some hundred rows carries the laws of millions; ``memory_limit`` keeps the matrices of a distance within bounds. For data on disk
and a laptop.
"""

# %%
# A file of 200 000 rows, read in batches. The laws are those of all rows, to rounding.

import matplotlib.pyplot as plt
import numpy as np

import advect as ad

rng = np.random.default_rng(0)
y = rng.integers(0, 4, 200_000)
x = (rng.normal(size=(200_000, 8)) + 2 * y[:, None]).astype(np.float32)
np.savez("large.npz", x=x, y=y)

laws = ad.ClassStatistics.from_source("large.npz", batch=8192)
print(laws, laws.counts)
del x, y  # from here on nothing holds the data

# %%
# How far are label laws of a small sample from those of all rows, and those that it carries with it?

truth = laws.to_gaussians()
sizes, own = (40, 100, 300, 1000), []
for n in sizes:
    part = ad.datasets.load("large.npz", n=n)
    own.append(float(ad.bures(part.moments(), truth).diagonal().clamp(min=0).sqrt().mean()))
    print(f"{n:5} rows: their own laws are {own[-1]:.3f} off")
part = ad.LabeledDataset(part.x, part.labels, classes=laws.classes, law=truth)

# %%
# The same distance with a bound for its matrices.

other = ad.datasets.load("large.npz", n=1000, seed=1)
free, bounded = (ad.otdd(part, other, memory_limit=limit) for limit in (None, "4MB"))
print(f"OTDD {free.value:.6f}, within 4 MB {bounded.value:.6f}")
figure, axis = plt.subplots(figsize=(6.5, 4), layout="constrained")
axis.loglog(sizes, own, "o-", label="estimated from the sample")
axis.axhline(1e-3, color="C1", label="carried from all rows: no error")
axis.set(title="Error of label laws (W₂ to those of all rows)", xlabel="rows in the sample", ylabel="W₂")
axis.set_xticks(sizes, sizes)
axis.minorticks_off()
axis.legend()

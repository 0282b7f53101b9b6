"""
Sliced distances
================

``sliced_otdd`` and ``SlicedOTDD`` project features and label laws to random lines, where optimal
transport is sorting. Use them for many datasets or many samples.
"""

# %%
# The sliced distance for a growing number of lines, ten draws each. Its expectation is a lower bound of
# the exact distance.

import matplotlib.pyplot as plt
import numpy as np
import torch

import advect as ad

source = ad.datasets.load("toy:gaussians?n=400")
target = ad.datasets.load("toy:gaussians?n=400&classes=4&shift=3,0&rotation=0.7&seed=1")
exact = ad.otdd(source, target, solver=ad.ExactOT()).value
lines = (10, 30, 100, 300)


def sliced(seed, n):
    draw = torch.Generator().manual_seed(seed)
    return ad.sliced_otdd(source, target, n, generator=draw).value


draws = np.array([[sliced(seed, n) for n in lines] for seed in range(10)])
print(f"exact {exact:.3f}; {lines[-1]} lines {draws[:, -1].mean():.3f} ± {draws[:, -1].std():.3f}")

# %%
# A flow along the sliced distance. A step takes O(n log n) time and needs no n × m matrix.

result = ad.flow(source, ad.SlicedOTDD(target, 50), integrator=ad.Euler(0.3), n_steps=15)
rest = ad.otdd(result.dataset, target).value
print(f"distance to the target {exact:.2f} → {rest:.2f} after {result.n_steps} steps")

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.errorbar(lines, draws.mean(0), draws.std(0), fmt="o-", capsize=3, label="sliced, ten draws")
axis.axhline(exact, color="k", linestyle="--", label="exact OTDD")
axis.set(title="Sliced distance by the number of lines", xlabel="lines", ylabel="distance")
axis.set_xscale("log")
axis.legend()

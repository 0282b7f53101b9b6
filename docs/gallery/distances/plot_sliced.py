"""
A cheap distance by slices
==========================

``sliced_otdd`` projects features and label laws to random lines, where transport is sorting. For
many datasets or many samples, where the exact distance takes too long: how noisy is it, and does
it say the same?
"""

# %%
# The value at a growing number of lines, ten draws each, beside the exact distance. In expectation
# it is a lower bound; with few lines a draw may be above it.

import matplotlib.pyplot as plt
import numpy as np
import torch

import advect as ad

source = ad.datasets.load("toy:gaussians?n=400")
target = ad.datasets.load("toy:gaussians?n=400&classes=4&shift=3,0&rotation=0.7&seed=1")
exact = ad.otdd(source, target, solver=ad.ExactOT()).value
lines = (10, 30, 100, 300, 1000)
draws = np.array(
    [
        [
            ad.sliced_otdd(source, target, n, generator=torch.Generator().manual_seed(seed)).value
            for n in lines
        ]
        for seed in range(10)
    ]
)
print(f"exact {exact:.3f}; {lines[-1]} slices {draws[:, -1].mean():.3f} ± {draws[:, -1].std():.3f}")

# %%
# Does it rank datasets as the exact distance does? All pairs of eight toy datasets: by both.

toys = [
    ad.datasets.load(f"toy:{kind}?n=200&seed={seed}")
    for kind in ("gaussians", "moons", "rings", "gaussians")
    for seed in (1, 2)
]
toys = [data.replace(x=data.x * (1 + 0.4 * k)) for k, data in enumerate(toys)]
draw = torch.Generator().manual_seed(0)
pairs = [(a, b) for i, a in enumerate(toys) for b in toys[i + 1 :]]
both = np.array(
    [[ad.otdd(a, b).value, ad.sliced_otdd(a, b, 100, generator=draw).value] for a, b in pairs]
)
ranks = both.argsort(0).argsort(0)
agree = np.corrcoef(ranks.T)[0, 1]
print(f"{len(pairs)} pairs, rank correlation {agree:.3f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.errorbar(lines, draws.mean(0), draws.std(0), fmt="o-", capsize=3, label="sliced, ten draws")
left.axhline(exact, color="k", linestyle="--", label="exact OTDD")
left.set(xscale="log", title="more lines, less noise", xlabel="lines", ylabel="distance")
left.legend()
right.scatter(*both.T, s=25)
right.set(title=f"{len(pairs)} pairs, rank correlation {agree:.2f}", xlabel="OTDD", ylabel="sliced")

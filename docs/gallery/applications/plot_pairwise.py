"""
Many datasets on one map
========================

``ad.pairwise`` takes the distance of every two datasets and ``viz.pairwise`` draws them. For
choosing data to pretrain on, or for seeing what a collection consists of; with a ``store`` it
goes on where it was stopped.
"""

# %%
# Toy datasets by reference, and some that are the same up to noise. ``n_jobs`` spreads pairs over
# processes or, as here, threads.

import tempfile

import joblib

import advect as ad
from advect import viz

sets = {
    "moons": "toy:moons?n=120&noise=0.05",
    "moons, noisy": "toy:moons?n=120&noise=0.2&seed=1",
    "moons, again": "toy:moons?n=120&noise=0.05&seed=2",
    "two rings": "toy:rings?n=120&seed=3",
    "three rings": "toy:rings?n=120&classes=3&seed=4",
    "2 gaussians": "toy:gaussians?n=120&classes=2&seed=5",
    "3 gaussians": "toy:gaussians?n=120&classes=3&seed=6",
    "5 gaussians": "toy:gaussians?n=120&classes=5&seed=7",
}
scaled = {}
for name, reference in sets.items():
    data = ad.datasets.load(reference)
    scaled[name] = data.replace(x=(data.x - data.x.mean(0)) / data.x.std())

with joblib.parallel_config("threading", n_jobs=2):
    found = ad.pairwise(scaled, store=tempfile.mkdtemp(), progress=False)
print(found.nearest("moons")[:3])

# %%
# How much of a difference is chance? The standard error is over other draws of as many samples of each class.

halves = ad.otdd(scaled["moons"], scaled["moons, again"])
error = halves.standard_error()
print(f"moons to moons of another seed: {halves.value:.3f} ± {error:.3f}")
figure = viz.pairwise(found)

"""
Distances between many datasets
===============================

``ad.pairwise`` computes the distances between all pairs of several datasets. Use it to choose data for
pretraining. With a ``store``, an interrupted computation continues where it stopped.
"""

# %%
# Synthetic datasets by reference, some of which differ by noise only. ``n_jobs`` sets the number of
# parallel jobs.

import tempfile

import joblib

import advect as ad
from advect import viz

references = {
    "moons": "toy:moons?n=120&noise=0.05",
    "moons, noisy": "toy:moons?n=120&noise=0.2&seed=1",
    "moons, other seed": "toy:moons?n=120&noise=0.05&seed=2",
    "2 rings": "toy:rings?n=120&seed=3",
    "3 rings": "toy:rings?n=120&classes=3&seed=4",
    "2 Gaussians": "toy:gaussians?n=120&classes=2&seed=5",
    "3 Gaussians": "toy:gaussians?n=120&classes=3&seed=6",
}
scaled = {}
for name, reference in references.items():
    data = ad.datasets.load(reference)
    scaled[name] = data.replace(x=(data.x - data.x.mean(0)) / data.x.std())

with joblib.parallel_config("threading", n_jobs=2):
    result = ad.pairwise(scaled, store=tempfile.mkdtemp(), progress=False)
print(result.nearest("moons")[:3])

# %%
# The standard error estimates how much a distance varies with the samples.

distance = ad.otdd(scaled["moons"], scaled["2 rings"])
print(f"moons to rings: {distance.value:.3f} ± {distance.standard_error():.3f}")
figure = viz.pairwise(result)

"""
Two folders of images
=====================

One folder for each class on each side: how far are they, and what does the one look like as the
other? The whole way from PNG files to PNG files. For your own image folders change two paths.
"""

# %%
# Yours are there already: ``folder/cat/1.png``, ``folder/dog/2.jpg``. Here two are written first.

import tempfile
from pathlib import Path

import advect as ad
from advect import viz

here = Path(tempfile.mkdtemp())  # in earnest: a folder of yours
ad.datasets.load("digits", n=150, balanced=True).save(here / "ours")
ad.datasets.load("mnist", n=150, balanced=True).save(here / "theirs")

ours, theirs = (ad.datasets.load(f"folder:{here / name}") for name in ("ours", "theirs"))
space = ad.FeatureSpace.fit(ours, theirs, size=16)  # one size, one number of colours
a, b = space.apply(ours), space.apply(theirs, side="target")
cost = ad.GroundCost(label=ad.ByName(plus=ad.Bures()))  # folder names mean the same here
print(f"{len(a)} images {ours.sample_shape}, {len(b)} images {theirs.sample_shape}")
print(f"OTDD {ad.otdd(a, b, cost=cost).value:.2f}")

# %%

inside = ad.FeatureDriven(bounds=(0, 1))  # images stay images
result = ad.flow(
    a,
    ad.OTDD(b, cost=cost),
    dynamics=inside,
    integrator=ad.Euler(0.5),
    n_steps=10,
    callbacks=[ad.Recorder()],
)
result.dataset.save(here / "moved")
files = sum(1 for _ in (here / "moved").rglob("*.png"))
print(
    f"OTDD after the flow {ad.otdd(result.dataset, b, cost=cost).value:.2f}, {files} files written"
)
figure = viz.image_grid(result, rows=6, columns=6)

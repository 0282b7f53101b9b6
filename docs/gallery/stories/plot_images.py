"""
Two folders of images
=====================

One folder for each class on each side: how far are they, and what does the one look like as the
other? For your own image folders change two paths.
"""

# %%
# Yours are there already: ``folder/cat/1.png``, ``folder/dog/2.jpg``. Here two are written first.

import tempfile
from pathlib import Path

from PIL import Image

import advect as ad
from advect import viz

here = Path(tempfile.mkdtemp())  # in earnest: a folder of yours
for side, name in (("ours", "digits"), ("theirs", "mnist")):
    data = ad.datasets.load(name, n=150, balanced=True)
    for k, (pixels, label) in enumerate(zip(data.samples.numpy(), data.labels, strict=True)):
        folder = here / side / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * pixels).astype("uint8")).save(folder / f"{k}.png")

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
result.dataset.save(here / "moved.npz")
print(f"OTDD after the flow {ad.otdd(result.dataset, b, cost=cost).value:.2f}")
figure = viz.image_grid(result, rows=6, columns=6)

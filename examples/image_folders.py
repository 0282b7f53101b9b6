"""Two folders of images, one folder for each class: how far they are, and one made like the other."""

import tempfile
from pathlib import Path

import advect as ad
from advect import viz

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
folders = Path(tempfile.mkdtemp())
# yours are there already: folder/cat/1.png, folder/dog/2.jpg, …
ad.datasets.load("digits", n=200, balanced=True).save(folders / "ours")
ad.datasets.load("mnist", n=200, balanced=True).save(folders / "theirs")

ours, theirs = (ad.datasets.load(f"folder:{folders}/{name}") for name in ("ours", "theirs"))
space = ad.FeatureSpace.fit(ours, theirs)  # one size, one number of colours
a, b = space.apply(ours), space.apply(theirs, side="target")

# class names are the names of folders, and mean the same here
cost = ad.GroundCost(label=ad.ByName(plus=ad.Bures()))
distance = ad.otdd(a, b, cost=cost)
print(
    f"{len(a)} images {ours.sample_shape} to {len(b)} images {theirs.sample_shape}: {distance.value:.2f}"
)

inside = ad.FeatureDriven(bounds=(0, 1))  # images stay images
result = ad.flow(a, ad.OTDD(b, cost=cost), dynamics=inside, integrator=ad.Euler(0.5), n_steps=12)
print(f"after the flow: {ad.otdd(result.dataset, b, cost=cost).value:.2f}")
result.dataset.save(folders / "moved")
print(f"written to {folders / 'moved'}: {sum(1 for _ in folders.rglob('moved/*/*.png'))} files")
viz.save(viz.image_grid(result), out / "image_folders.png")

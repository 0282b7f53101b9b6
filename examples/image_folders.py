"""Two folders of images, with a rotated photo, a transparent one and a damaged file, compared by class."""

from pathlib import Path

import numpy as np
from PIL import Image

import advect as ad

rng = np.random.default_rng(0)
for place, light in (("ours", 0), ("theirs", 80)):
    for kind, rows in (("sky", slice(0, 8)), ("sea", slice(8, 16))):
        folder = Path(place, kind)
        folder.mkdir(parents=True, exist_ok=True)
        for k in range(30):
            pixels = rng.integers(0, 60, (16, 16, 3)).astype(np.uint8) + np.uint8(light)
            pixels[rows] += np.uint8(100)
            Image.fromarray(pixels).save(folder / f"{k}.png")
exif = Image.Exif()
exif[0x0112] = 3  # the camera was upside down
Image.open("ours/sky/0.png").rotate(180).save("ours/sky/phone.jpg", exif=exif)
Image.open("ours/sky/1.png").convert("RGBA").save("ours/sky/transparent.png")
Path("ours/sea/broken.png").write_bytes(b"\x89PNG")

ours, theirs = (ad.datasets.load(f"folder:{x}?channels=rgb&on_error=skip") for x in ("ours", "theirs"))
distance = ad.otdd(ours, theirs, cost=ad.GroundCost(label=ad.ByName()))
print(f"{len(ours)} images, distance {distance.value:.1f}")
result = ad.flow(ours, theirs)
print(f"distance after the flow {ad.otdd(result.dataset, theirs).value:.1f}")

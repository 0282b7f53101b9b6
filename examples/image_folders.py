"""Folders of images with a rotated photo, a transparent image and a damaged file, compared by class."""

from pathlib import Path

import numpy as np
from PIL import Image

import advect as ad

rng = np.random.default_rng(0)
for place, light in (("ours", 0), ("theirs", 80)):
    for kind, first in (("sky", 0), ("sea", 8)):
        folder = Path(place, kind)
        folder.mkdir(parents=True, exist_ok=True)
        for k in range(30):
            pixels = rng.integers(light, light + 60, (16, 16, 3)).astype(np.uint8)
            pixels[first : first + 8] += np.uint8(100)
            Image.fromarray(pixels).save(folder / f"{k}.png")
(exif := Image.Exif())[0x0112] = 3  # the camera was upside down
Image.open("ours/sky/0.png").rotate(180).save("ours/sky/phone.jpg", exif=exif)
Image.open("ours/sky/1.png").convert("RGBA").save("ours/sky/transparent.png")
Path("ours/sea/broken.png").write_bytes(b"no image")
a, b = (ad.datasets.load(f"folder:{x}?channels=rgb&on_error=skip") for x in ("ours", "theirs"))
print(f"{len(a)} images, distance {ad.otdd(a, b).value:.1f}")
print(f"distance after the flow {ad.otdd(ad.flow(a, b).dataset, b).value:.1f}")

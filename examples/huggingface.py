"""Images of two Hugging Face datasets; the second has labels for one sample in ten."""

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import advect as ad

digits = load_digits()
names = [str(k) for k in range(10)]
kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
images = [Image.fromarray((15 * image).astype(np.uint8)) for image in digits.images[:800]]
labels = [int(k) if row < 440 else -1 for row, k in enumerate(digits.target[:800])]
sets = []
for part in (slice(0, 400), slice(400, 800)):
    columns = {"image": images[part], "label": labels[part]}
    rows = datasets.Dataset.from_dict(columns, features=kinds)
    pairs = ((np.array(row["image"]), row["label"]) for row in rows)
    sets.append(ad.LabeledDataset.from_torch(pairs, classes=names))
filled = ad.fill_labels(sets[1])
right = np.mean(np.array(filled.labels) == digits.target[400:800].astype(str))
print(f"{right:.0%} of the labels are right, distance {ad.otdd(sets[0], filled).value:.1f}")

"""Images of a Hugging Face dataset, compared with a second one whose labels are partly missing."""

import datasets
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import advect as ad

digits = load_digits()
images = [Image.fromarray((15 * image).astype(np.uint8)) for image in digits.images]
names = [str(k) for k in range(10)]
kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=names)})
rows = {"image": images[:400], "label": digits.target[:400].tolist()}
few = {"image": images[400:800], "label": [k if i < 40 else -1 for i, k in enumerate(digits.target[400:800])]}

first = datasets.Dataset.from_dict(rows, features=kinds)
second = datasets.Dataset.from_dict(few, features=kinds)
source, target = (
    ad.LabeledDataset.from_torch(((np.array(row["image"]), row["label"]) for row in data), classes=names)
    for data in (first, second)
)
filled = ad.fill_labels(target)
right = np.mean([a == b for a, b in zip(filled.labels, map(str, digits.target[400:800]))])
print(f"{right:.0%} of the labels are right, distance {ad.otdd(source, filled).value:.1f}")

"""
Finding label errors
====================

``ad.audit`` finds samples with wrong labels, outliers and near-duplicates. Use it before training on data
with unreliable labels, and inspect the samples before removing them.
"""

# %%
# Digits with twenty wrong labels, ten noise images and ten copies.

import matplotlib.pyplot as plt
import numpy as np

import advect as ad

digits = ad.datasets.load("digits", n=500)
rng = np.random.default_rng(0)
rows = rng.permutation(500)
flipped, noisy, copied, originals = rows[:20], rows[20:30], rows[30:40], rows[40:50]
images, labels = digits.samples.numpy().copy(), digits.labels
for row in flipped:
    labels[row] = (labels[row] + rng.integers(1, 10)) % 10
images[noisy] = rng.permuted(images[noisy].reshape(10, -1), axis=1).reshape(10, 8, 8)
images[copied] = images[originals]
for copy, original in zip(copied, originals, strict=True):
    labels[copy] = labels[original]

found = ad.audit(ad.LabeledDataset(images, labels))
print(found)

# %%
# The share of these samples among the highest scores.

caught = {
    "wrong labels": len(set(found.worst(20, by="disagreement")) & set(flipped)) / 20,
    "noise": len(set(found.worst(10, by="misfit")) & set(noisy)) / 10,
    "copies": len(set(found.worst(20, by="twin_distance")) & {*copied, *originals}) / 20,
}
print({name: f"{share:.0%}" for name, share in caught.items()})
figure, axes = plt.subplots(1, 4, figsize=(7, 2.4), layout="constrained")
for axis, row in zip(axes, found.worst(4, by="disagreement"), strict=True):
    axis.imshow(images[row], cmap="gray_r")
    axis.set(title=f"{labels[row]}, likely {found.proposed[row]}", xticks=[], yticks=[])
figure.suptitle("Suspected label errors")

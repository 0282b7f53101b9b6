"""
Which samples are wrong, odd, or copies?
========================================

``ad.audit`` looks at every sample and says what speaks against it. Do it before you train on data
that someone else has labeled; look at what it finds before you throw anything away.
"""

# %%
# Digits, twenty of which got a wrong label, ten of which are noise, and ten of which are copies.

import matplotlib.pyplot as plt
import numpy as np

import advect as ad

digits = ad.datasets.load("digits", n=500)
rng = np.random.default_rng(0)
rows = rng.permutation(500)
flipped, noisy, copied = rows[:20], rows[20:30], rows[30:40]
images, labels = digits.samples.numpy().copy(), digits.labels
for row in flipped:
    labels[row] = (labels[row] + rng.integers(1, 10)) % 10
images[noisy] = rng.permuted(images[noisy].reshape(10, -1), axis=1).reshape(10, 8, 8)
images[copied] = images[rows[40:50]]
for copy, original in zip(copied, rows[40:50], strict=True):
    labels[copy] = labels[original]

found = ad.audit(ad.LabeledDataset(images, labels))
print(found)

# %%
# How many of those does it find among as many of the worst?

caught = {
    "wrong labels": len(set(found.worst(20, by="disagreement")) & set(flipped)) / 20,
    "noise": len(set(found.worst(10, by="misfit")) & set(noisy)) / 10,
    "copies": len(set(found.worst(20, by="twin_distance")) & {*copied, *rows[40:50]}) / 20,
}
print({name: f"{share:.0%}" for name, share in caught.items()})
figure, axes = plt.subplots(2, 8, figsize=(11, 3.4), layout="constrained")
for axis, row in zip(axes[0], found.worst(8, by="disagreement"), strict=True):
    axis.imshow(images[row], cmap="gray_r")
    axis.set_title(f"labeled {labels[row]},\nlooks like {found.proposed[row]}", fontsize=8)
for axis, row in zip(axes[1], found.worst(8, by="misfit"), strict=True):
    axis.imshow(images[row], cmap="gray_r")
    axis.set_title(f"misfit {found.misfit[row]:.1f}", fontsize=8)
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
figure.suptitle("Labels in doubt (above), and samples that fit no class (below)")

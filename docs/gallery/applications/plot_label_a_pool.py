"""
Label a pool from a few samples
===============================

``ad.apps.label`` gives every sample of a pool a label and how sure it is, from a few labeled
ones; the graph of the pool does the work. Then it names the samples that are worth labeling next.
"""

# %%
# Three labeled digits of each class, and nine hundred without a label.

import matplotlib.pyplot as plt
import numpy as np
import torch

import advect as ad

few, digits = ad.datasets.load("digits", n=930, balanced=True).split(
    30 / 930, generator=torch.Generator().manual_seed(0)
)
pool = ad.LabeledDataset(digits.samples)  # labels are kept aside, for scores

made = ad.apps.label(pool, few)
right = (made.dataset.y == digits.y).numpy()
print(made)
low, high = made.calibration.interval
print(f"right: {right.mean():.1%} of {len(right)}; it expects {low:.0%} to {high:.0%}")
sure = made.dataset.subset(made.confidence >= 0.9)
wrong = len(sure) - int(right[made.probabilities.max(1) >= 0.9].sum())
print(
    f"{len(sure)} labels are at least 90 % sure, {wrong} of them wrong; ask next about samples {made.unsure(5)}"
)

# %%
# Among the less sure labels a larger share is wrong. Most labels are sure, though, and here so are
# more than half of the wrong ones. On the right: the images in most doubt.

certain = made.probabilities.max(1)
figure, axes = plt.subplot_mosaic("AABC;AADE", figsize=(9.5, 4.4), layout="constrained")
axes["A"].hist(
    [certain[right], certain[~right]],
    bins=np.linspace(certain.min(), 1, 16),
    log=True,
    label=["right", "wrong"],
    color=["C0", "C3"],
)
axes["A"].set(title="How sure labels are", xlabel="confidence", ylabel="samples")
axes["A"].legend(loc="upper left")
for key, row in zip("BCDE", made.unsure(4), strict=True):
    axes[key].imshow(digits.samples[row], cmap="gray_r")
    axes[key].set(xticks=[], yticks=[])
    axes[key].set_title(f"says {made.dataset.labels[row]}, is {digits.labels[row]}", fontsize=9)

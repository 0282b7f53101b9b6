"""
Semi-supervised labeling
========================

``ad.apps.label`` labels a pool of samples from a few labeled ones, with a calibrated probability for each
label. It also selects the samples to label next.
"""

# %%
# Three labeled digits of each class, and six hundred without a label.

import matplotlib.pyplot as plt
import numpy as np
import torch

import advect as ad

few, digits = ad.datasets.load("digits", n=630, balanced=True).split(
    30 / 630, generator=torch.Generator().manual_seed(0)
)
pool = ad.LabeledDataset(digits.samples)  # the true labels are used for evaluation only

labeled = ad.apps.label(pool, few)
right = (labeled.dataset.y == digits.y).numpy()
print(labeled)
low, high = labeled.calibration.interval
print(f"accuracy {right.mean():.1%}; estimated without true labels: {low:.0%} to {high:.0%}")
print("label next:", labeled.unsure(5))

# %%
# Uncertain labels are wrong more often.

confidence = labeled.confidence
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.hist(
    [confidence[right], confidence[~right]],
    bins=np.linspace(confidence.min(), 1, 16),
    log=True,
    label=["correct", "wrong"],
    color=["C0", "C3"],
)
axis.set(title="Confidence of labels", xlabel="confidence", ylabel="samples")
axis.legend(loc="upper left")

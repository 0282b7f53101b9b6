"""
A frozen model on other data
============================

``ad.apps.repurpose`` moves data to where a model was trained, instead of the model to the data.
For a black box that you may ask but not train; it says when asking directly, or training a model
of your own, does better.
"""

# %%
# A classifier of MNIST, frozen, is to read the digits of scikit-learn.

import matplotlib.pyplot as plt
import torch
from sklearn.neural_network import MLPClassifier

import advect as ad

digits, mnist = ad.harmonize(ad.datasets.load("digits"), ad.datasets.load("mnist", n=2000), size=14)
model = MLPClassifier(64, early_stopping=True, random_state=0).fit(mnist.x, mnist.labels)
draw = torch.Generator().manual_seed(0)
seen, held = digits.sample(600, balanced=True, generator=draw).split(1 / 3, generator=draw)

# names mean the same in both here, so they may count
found = ad.apps.repurpose(
    lambda images: model.predict_proba(images.flatten(1)),  # images in, probabilities out
    mnist.sample(300, balanced=True, generator=draw),
    seen,
    n_steps=12,
    bounds=(0, 1),
    label=ad.ByName(),
    posterior="mean",
)

# %%
# Held-out digits, which the flow never saw and whose labels nobody used.

direct = model.score(held.x, held.labels)
carried = sum(a == b for a, b in zip(found.predict(held.x), held.labels, strict=True)) / len(held)
print(f"accuracy on held-out digits: {direct:.1%} as they are, {carried:.1%} carried")
print(found.comparison)

# %%
# One of each digit, before (above) and after the flow (below).

figure, axes = plt.subplots(2, 10, figsize=(11, 2.6), layout="constrained")
for digit in range(10):
    row = int((seen.y == digit).nonzero()[0])
    for axis, data in zip(axes[:, digit], (seen, found.flowed), strict=True):
        axis.imshow(data.samples[row], cmap="gray", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
figure.suptitle(f"Accuracy on held-out digits: {direct:.0%} as they are, {carried:.0%} carried")

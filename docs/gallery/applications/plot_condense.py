"""
A few samples for many
======================

``ad.apps.condense`` distils a labeled dataset into some synthetic samples of each class by a
flow. For a training set that must be small; k-means of each class is a strong rival, and the
entry says so.
"""

# %%
# Digits, three samples for each class; a nearest-neighbour classifier then predicts the others.

import matplotlib.pyplot as plt
import torch

import advect as ad

data, test = ad.datasets.load("digits", n=1200).split(
    0.5, generator=torch.Generator().manual_seed(0)
)
few = ad.apps.condense(data, per_class=3, bounds=(0, 1), progress=False)
print(few)
scores = few.evaluate(test)
print({name: f"{share:.1%}" for name, share in scores.items()})

# %%

figure, axes = plt.subplots(3, 10, figsize=(10, 3.4), layout="constrained")
for column in range(10):
    for axis, image in zip(axes[:, column], few.dataset.of_class(column).samples, strict=True):
        axis.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
figure.suptitle("Thirty synthetic digits for 600")

# %%
# Beside k-means, real samples near it, random samples, and all of the data. In pixels of so few
# digits k-means of each class, which it starts from, is as good: the flow hardly changes it.

other, axis = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
axis.barh(list(scores), list(scores.values()))
axis.invert_yaxis()
axis.set(title="Test accuracy, trained on …", xlim=(0, 1))

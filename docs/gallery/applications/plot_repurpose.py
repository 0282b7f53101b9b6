"""
Using a frozen model on other data
==================================

``ad.apps.repurpose`` moves data to the training data of a model, and leaves the model unchanged. Use it
for a model that can be queried but not trained. ``comparison`` says whether another method is better.
"""

# %%
# A frozen classifier of MNIST is applied to the digits of scikit-learn.

import matplotlib.pyplot as plt
import torch
from sklearn.neural_network import MLPClassifier

import advect as ad

digits, mnist = ad.harmonize(ad.datasets.load("digits"), ad.datasets.load("mnist", n=1500), size=14)
model = MLPClassifier(64, early_stopping=True, random_state=0).fit(mnist.x, mnist.labels)
draw = torch.Generator().manual_seed(0)
train, test = digits.sample(600, balanced=True, generator=draw).split(1 / 3, generator=draw)

result = ad.apps.repurpose(
    lambda images: model.predict_proba(images.flatten(1)),  # from images to probabilities
    mnist.sample(300, balanced=True, generator=draw),
    train,
    n_steps=10,
    bounds=(0, 1),
    label=ad.ByName(),  # equal names have the same meaning
    posterior="mean",
)

# %%
# Accuracy on digits that were not used, without and with the flow.

direct = model.score(test.x, test.labels)
predictions = result.predict(test.x)
moved = sum(a == b for a, b in zip(predictions, test.labels, strict=True)) / len(test)
print(f"accuracy on held-out digits: {direct:.1%} without the flow, {moved:.1%} with it")
print(result.comparison)

# %%
# Four digits before (above) and after the flow (below).

figure, axes = plt.subplots(2, 4, figsize=(6, 3.4), layout="constrained")
for digit in range(4):
    row = int((train.y == digit).nonzero()[0])
    for axis, data in zip(axes[:, digit], (train, result.flowed), strict=True):
        axis.imshow(data.samples[row], cmap="gray", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
figure.suptitle(f"Held-out accuracy: {direct:.0%} → {moved:.0%}")

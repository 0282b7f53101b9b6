"""
A frozen model reads other data
===============================

``ad.apps.repurpose`` moves data to where a model was trained, instead of the model to the data.
For a black box that you may ask but not train; it says when asking directly, or training a model
of your own, does better.
"""

# %%
# A classifier of MNIST, frozen, is to read the digits of scikit-learn.

import torch
from sklearn.neural_network import MLPClassifier

import advect as ad
from advect import viz

digits, mnist = ad.harmonize(ad.datasets.load("digits"), ad.datasets.load("mnist", n=2000), size=14)
model = MLPClassifier(64, early_stopping=True, random_state=0).fit(mnist.x, mnist.labels)
seen, held = digits.sample(600, balanced=True).split(
    1 / 3, generator=torch.Generator().manual_seed(0)
)

# names mean the same in both here, so they may count
options = ad.apps.RepurposeOptions(n_steps=12, every=3, bounds=(0, 1), label=ad.ByName())
found = ad.apps.repurpose(
    lambda images: model.predict_proba(images.flatten(1)),  # images in, probabilities out
    mnist.sample(300, balanced=True),
    seen,
    options,
    posterior="auto",
)

# %%
# Held-out digits, which the flow never saw and whose labels nobody used.

direct = model.score(held.x, held.labels)
carried = sum(a == b for a, b in zip(found.predict(held.x), held.labels, strict=True)) / len(held)
print(f"held-out digits read right: {direct:.1%} as they are, {carried:.1%} carried")
print(found.recommendation)
figure = viz.image_grid(found.result, rows=6)

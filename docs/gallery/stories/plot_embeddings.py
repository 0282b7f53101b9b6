"""
Embeddings after the network was trained again
==============================================

A classifier sits on the embeddings of a network. The network is trained again, its embeddings
turn, and the classifier reads nothing any more. A flow carries new embeddings to where the old
ones were; the classifier stays.
"""

# %%
# Stand-in: digits as rows of 64 numbers, turned at random and moved.

import matplotlib.pyplot as plt
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

import advect as ad
from advect.viz.theme import PALETTE

digits = ad.datasets.load("digits")
x = digits.x - digits.x.mean(0)
old = ad.LabeledDataset(x[:900], digits.y[:900])
turn = 0.12 * torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
turn = torch.linalg.matrix_exp((turn - turn.T) / 2)
new = ad.LabeledDataset(x[900:] @ turn + 0.3, digits.y[900:])
model = LogisticRegression(max_iter=500).fit(old.x, old.y)  # stays as it is
seen, held = new.split(0.5, generator=torch.Generator().manual_seed(1))

# %%
# Labels of ``seen`` are known, those of ``held`` are for the score. ``posterior="mean"``
# guesses the label of a new sample with classifiers while it is carried.

some = old.sample(450, generator=torch.Generator().manual_seed(2))
found = ad.apps.repurpose(model.predict_proba, some, seen, n_steps=15, posterior="mean")
before = model.score(held.x, held.y)
after = sum(a == b for a, b in zip(found.predict(held.x), held.labels, strict=True)) / len(held)
print(f"accuracy on held-out embeddings: {before:.1%} as they are, {after:.1%} carried")
print(found.comparison)

figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
carried = held.replace(x=found.map.transform(held.x))  # by features alone
for axis, (name, data) in zip(axes, {"as they are": held, "carried": carried}.items(), strict=True):
    view = PCA(2).fit(old.x)
    axis.scatter(*view.transform(old.x).T, s=5, color="0.8")
    axis.scatter(*view.transform(data.x).T, s=8, c=[PALETTE[code] for code in data.y])
    right = model.score(data.x, data.y)
    axis.set(title=f"held-out embeddings, {name}: accuracy {right:.0%}", xticks=[], yticks=[])
figure.suptitle("Colours are digits, old embeddings are grey (principal components)")

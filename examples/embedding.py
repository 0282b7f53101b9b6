"""Rows of 64 numbers, such as a network's embedding, carried to where a classifier was trained.

The classifier stays as it is; samples that the flow never saw follow by its map."""

from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression

import advect as ad
from advect import viz

out = Path("out/examples")
out.mkdir(parents=True, exist_ok=True)
digits = ad.datasets.load("digits")
x = digits.x - digits.x.mean(0)
old = ad.LabeledDataset(x[:900], digits.y[:900])
turn = 0.12 * torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
turn = torch.linalg.matrix_exp((turn - turn.T) / 2)  # the network was trained again
new = ad.LabeledDataset(x[900:] @ turn + 0.3, digits.y[900:])
model = LogisticRegression(max_iter=500).fit(old.x, old.y)

seen, held = new.split(0.5, generator=torch.Generator().manual_seed(1))
found = ad.apps.repurpose(model.predict_proba, old, seen, n_steps=20, posterior="mean")

before = model.score(held.x, held.y)
after = sum(a == b for a, b in zip(found.predict(held.x), held.labels, strict=True)) / len(held)
print(f"held-out embeddings read right: {before:.1%} as they are, {after:.1%} carried")
print(found.comparison)
viz.save(viz.class_table(found.matching.coupling), out / "embedding.png")

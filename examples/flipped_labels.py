"""Three in a hundred labels are wrong: list the samples whose label does not fit."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

import advect as ad

x, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
flipped = rng.random(len(y)) < 0.03
labels = np.where(flipped, (y + rng.integers(1, 10, len(y))) % 10, y)

found = ad.audit(ad.LabeledDataset(x, labels))
table = found.to_pandas()
print(table.head())
precision = average_precision_score(flipped, table["disagreement"])
print(f"average precision {precision:.2f}")

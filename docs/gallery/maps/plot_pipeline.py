"""
A flow as a step of a scikit-learn pipeline
===========================================

``DatasetTransport`` has ``fit`` and ``transform``: a classifier that was trained on one
laboratory's table is applied to another's. For domain adaptation with tools that you have already.
"""

# %%
# Breast cancer data, the second half measured with another instrument: some columns are stretched
# and shifted.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import advect as ad

x, y = load_breast_cancer(return_X_y=True)
theirs, ours, y_theirs, y_ours = train_test_split(x, y, test_size=0.5, random_state=0)
stretch = np.random.default_rng(0).uniform(0.6, 1.6, x.shape[1])
ours = ours * stretch + 0.5 * x.std(0)
seen, held, y_seen, y_held = train_test_split(ours, y_ours, test_size=0.5, random_state=1)

scale = StandardScaler().fit(theirs)
model = LogisticRegression(max_iter=500).fit(scale.transform(theirs), y_theirs)  # stays as it is

# %%
# The pipeline brings our samples into their units, then along the flow that took ``seen`` to
# ``theirs``. Labels of ``seen`` are used to fit; ``held`` comes without any.

carry = ad.DatasetTransport(n_steps=20, label_weight=5.0)
carry.fit(scale.transform(seen), y_seen, scale.transform(theirs), y_theirs)
reads = make_pipeline(scale, carry, model)  # every step is fitted already

own = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(seen, y_seen)
scores = {
    "their model,\nas it is": model.score(scale.transform(held), y_held),
    "their model,\nour mean and deviation": model.score(
        StandardScaler().fit(seen).transform(held), y_held
    ),
    "their model,\nthrough the flow": np.mean(reads.predict(held) == y_held),
    "our own model,\nfrom our labels": own.score(held, y_held),
}
for name, score in scores.items():
    print(f"{name.replace(chr(10), ' '):36} {score:.1%} of {len(held)} correct")
figure, axis = plt.subplots(figsize=(7.5, 4), layout="constrained")
bars = axis.bar(list(scores), list(scores.values()), color=["0.6", "0.6", "C0", "0.6"])
axis.bar_label(bars, fmt="{:.1%}")
axis.set(title="Accuracy on held-out samples", ylim=(0, 1.1))

# %%
# Where each column only has another unit, standardizing our own columns does as well, and is
# simpler. The flow is for changes that are not one number for each column.

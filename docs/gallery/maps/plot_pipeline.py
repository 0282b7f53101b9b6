"""
Domain adaptation in a scikit-learn pipeline
============================================

``DatasetTransport`` is a transformer with ``fit`` and ``transform``. Here it maps the measurements of one
laboratory to those of another, so that an existing classifier can be applied.
"""

# %%
# Breast cancer data. The second half is measured with another instrument: each column is scaled and
# shifted.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import advect as ad

x, y = load_breast_cancer(return_X_y=True)
xa, xb, ya, yb = train_test_split(x, y, test_size=0.5, random_state=0)
xb = xb * np.random.default_rng(0).uniform(0.6, 1.6, x.shape[1]) + 0.5 * x.std(0)
train, test, y_train, y_test = train_test_split(xb, yb, test_size=0.5, random_state=1)

scale = StandardScaler().fit(xa)
model = LogisticRegression(max_iter=500).fit(scale.transform(xa), ya)  # the classifier of A

# %%
# The transformer is fitted on labeled samples of B and A. The test samples have no labels.

adapt = ad.DatasetTransport(n_steps=20, label_weight=5.0)
adapt.fit(scale.transform(train), y_train, scale.transform(xa), ya)
pipeline = make_pipeline(scale, adapt, model)  # all steps are fitted

retrained = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(train, y_train)
standardized = StandardScaler().fit(train).transform(test)
scores = {
    "not adapted": model.score(scale.transform(test), y_test),
    "standardized": model.score(standardized, y_test),
    "adapted by a flow": np.mean(pipeline.predict(test) == y_test),
    "trained on B": retrained.score(test, y_test),
}
for name, score in scores.items():
    print(f"{name:20} {score:.1%} of {len(test)} correct")
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.bar_label(axis.bar(list(scores), list(scores.values())), fmt="{:.1%}")
axis.set(title="Accuracy of the classifier of A on samples of B", ylim=(0, 1.1))

# %%
# If columns only differ in scale and offset, as here, standardizing each dataset is simpler and as
# accurate. Use a flow for changes that are not of this form.

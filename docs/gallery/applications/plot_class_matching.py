"""
A model's answers in other names
================================

``ClassMatching`` turns the answers of a model into another label set, by where classes lie. For a
model whose classes are not yours: more of them, fewer, or under other names.
"""

# %%
# A model knows the digits as "a" … "j"; our data calls them by number. Names say nothing, so
# places must.

import numpy as np
from sklearn.linear_model import LogisticRegression

import advect as ad
from advect import viz

digits = ad.datasets.load("digits", n=1000)
theirs = digits.subset(range(500)).replace(classes=tuple("abcdefghij"))
ours = digits.subset(range(500, 1000))
model = LogisticRegression(max_iter=300).fit(theirs.x, theirs.labels)

matching = ad.ClassMatching.between(ours, theirs)
answers = matching.predict(model.predict_proba(ours.x))
right = np.mean([a == b for a, b in zip(answers, ours.labels, strict=True)])
print(matching.hard)
print(f"right in our names: {right:.1%}")

# %%
# Fewer classes than the model has: its probabilities are summed.

parity = ad.LabeledDataset(ours.samples, ["odd" if name % 2 else "even" for name in ours.labels])
two = ad.ClassMatching.between(parity, theirs)
said = two.predict(model.predict_proba(ours.x))
share = np.mean([a == b for a, b in zip(said, parity.labels, strict=True)])
print(f"odd or even: {share:.1%}")
figure = viz.class_table(two, title="Which of their classes are odd, which even")

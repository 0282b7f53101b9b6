"""
Class distances and class matching
==================================

``ad.otdd`` gives the distance of two labeled datasets, the distances between their classes, and a
matching of the classes. Compute it before a flow, to see whether the datasets are similar.
"""

# %%
# Digits of 8 × 8 pixels and MNIST, resized to one size. The classes of the second dataset are
# renamed, so only the images relate them.

import advect as ad
from advect import viz

digits, mnist = (ad.datasets.load(name, n=400, balanced=True) for name in ("digits", "mnist"))
source, target = ad.harmonize(digits, mnist, size=14)
words = "zero one two three four five six seven eight nine"
target = target.replace(classes=tuple(words.split()))

distance = ad.otdd(source, target)
print(distance)

# %%
# Each class is represented by a Gaussian with the mean and covariance of its samples.

figure = viz.class_table(distance, title="W₂ between classes")

# %%
# The matching is an optimal transport plan between classes. Some digits are matched with another
# digit, because the two datasets are scanned differently. Use ``ad.ByName()`` if equal names have
# the same meaning.

matched = ad.ClassMatching(distance.class_matching).hard
right = sum(source.classes.index(a) == target.classes.index(b) for a, b in matched.items())
print(f"{right} of 10 classes are matched with the same digit")

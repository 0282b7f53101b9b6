"""
Which class corresponds to which
================================

Two labeled datasets, one number, and a table of distances from each class of one to each class of
the other. Do this first, before you move anything: it says whether the datasets have anything to
do with each other.
"""

# %%
# Digits of 8 × 8 pixels beside MNIST, brought to one size. The second dataset is given other
# names, so that nothing but the images can say what belongs together.

import advect as ad
from advect import viz

digits, mnist = (ad.datasets.load(name, n=500, balanced=True) for name in ("digits", "mnist"))
source, target = ad.harmonize(digits, mnist, size=14)
words = "zero one two three four five six seven eight nine"
target = target.replace(classes=tuple(words.split()))

distance = ad.otdd(source, target)
print(distance)
print(distance.class_matching)  # how much mass of each class goes to which

# %%
# Each label stands for the law of its samples: a class is near to another if its images lie
# alike. The default takes Gaussian laws with full covariances. How much weight these laws have
# beside the pixels is ``label_weight``.

figure = viz.class_table(distance, title="W₂ between the laws of classes")

# %%
# How many digits find their own name? The two are cut and drawn differently, so that some do not:
# pixels say no more than that. Where equal names mean the same, ``ad.ByName()`` makes them count.

matched = ad.ClassMatching(distance.class_matching).hard
right = sum(source.classes.index(a) == target.classes.index(b) for a, b in matched.items())
print(f"{right} of 10 classes are matched with their namesakes")
for a, b in matched.items():
    if source.classes.index(a) != target.classes.index(b):
        print(f"  {a} lies nearest to what is called {b}")

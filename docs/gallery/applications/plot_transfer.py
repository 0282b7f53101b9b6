"""
Three labeled samples of each class, and a dataset of other classes
===================================================================

``ad.apps.transfer`` makes a training set for a task with few labels out of plenty of other data, and chooses on held-out labels whether to use it at all. For
few-shot problems with a related dataset at hand, best in features of a network.
"""

# %%
# Plenty of digits 0 to 4; of 5 to 9 there are three each. How their classes *vary* can be borrowed, though the classes are others.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import advect as ad

digits = ad.datasets.load("digits")
source = digits.subset(digits.y < 5).balanced()
source = ad.LabeledDataset(source.x, source.labels)  # five classes, the others unheard of
target = digits.subset(digits.y >= 5)
target = ad.LabeledDataset(target.x, target.labels)


def score(data, test):
    weights = (data.weights * len(data)).numpy()
    return LogisticRegression(max_iter=200).fit(data.x, data.y, weights).score(test.x, test.y)


# %%
# Six draws of the few, each tried on all others.

found = {"the few alone": [], "what is recommended": []}
for seed in range(6):
    few = target.sample(15, balanced=True, generator=torch.Generator().manual_seed(seed))
    made = ad.apps.transfer(source, few, options=ad.apps.TransferOptions(n=300, n_steps=8))
    found["the few alone"].append(score(few, target))
    found["what is recommended"].append(score(made.recommended, target))
    print(f"draw {seed}: {made.choice.way}, {found['the few alone'][-1]:.1%} → {found['what is recommended'][-1]:.1%}")
gain = np.subtract(*reversed(list(found.values())))
print(f"gain {100 * gain.mean():+.1f} points on average, {100 * gain.min():+.1f} at worst")

figure, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
for pair in zip(*found.values(), strict=True):
    axis.plot(list(found), pair, "o-", color="C0", alpha=0.6)
axis.plot(list(found), [np.mean(column) for column in found.values()], "ks--", label="mean")
axis.set(title="Digits 5 to 9 read right, three labels of each\n(a line is one draw)", xlim=(-0.3, 1.3))
axis.legend()

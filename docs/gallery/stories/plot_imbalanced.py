"""
Class imbalance
===============

Balanced transport moves all mass, so samples of a class that is too frequent become another class.
``ad.class_shares`` estimates the class proportions of a target without labels and reweights the source.
"""

# %%
# Even digits are ten times as frequent as odd ones in the source. The target has equal proportions and no
# labels.

import matplotlib.pyplot as plt
import numpy as np
import torch

import advect as ad

some, rest = ad.datasets.load("digits").split(0.5, generator=torch.Generator().manual_seed(0))
rare = (some.y % 2 == 1) & (torch.arange(len(some)) % 10 != 0)
source = some.subset(~rare)
target = ad.LabeledDataset(rest.samples)

found = ad.class_shares(source, target)
error = found.standard_error(generator=torch.Generator().manual_seed(0))
print(found)

# %%
# The share of the mass that keeps its class in the transport to labeled data.

goal = rest.sample(300, generator=torch.Generator().manual_seed(1))
cost = ad.GroundCost(label=ad.ByName(plus=ad.Bures()))
for name, data in {"source": source, "reweighted": found.reweighted()}.items():
    share = float(ad.otdd(data, goal, cost=cost).class_coupling.values.trace())
    print(f"{name:12} {share:.1%} of the mass keeps its class")

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
places = np.arange(10)
axis.bar(places - 0.27, source.class_mass, 0.27, label="source", color="0.8")
axis.bar(places, found.shares, 0.27, yerr=error, label="target, estimated", color="C0")
axis.bar(places + 0.27, rest.class_mass, 0.27, label="target, true", color="0.4")
axis.set(title="Class proportions", xlabel="digit", xticks=places, ylim=(0, 0.26))
axis.legend(ncols=3)

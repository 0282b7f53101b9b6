"""
Classes that come in other shares
=================================

Transport moves all mass, so that a class of which there is too much must become something else.
``ad.class_shares`` estimates the shares from a target without labels, and reweights. For training
data that was collected otherwise than what you meet.
"""

# %%
# Even digits are ten times as frequent in the source; the target has all alike, and no labels.

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
# A flow to labeled data: how much mass changes its class, by the weights that samples start with?

goal = rest.sample(300, generator=torch.Generator().manual_seed(1))
cost = ad.GroundCost(label=ad.ByName(plus=ad.Bures()))
ways = {"as it is": source, "reweighted": found.reweighted(), "balanced": source.balanced()}
kept = {
    name: float(ad.otdd(data, goal, cost=cost).class_coupling.values.trace())
    for name, data in ways.items()
}
for name, share in kept.items():
    print(f"{name:12} {share:.1%} of the mass keeps its class")

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
places = np.arange(10)
left.bar(places - 0.27, source.class_mass, 0.27, label="source", color="0.8")
left.bar(places, found.shares, 0.27, yerr=error, label="estimated for the target", color="C0")
left.bar(places + 0.27, rest.class_mass, 0.27, label="true, never seen", color="0.4")
left.set(title="shares of classes", xlabel="digit", xticks=places, ylim=(0, 0.26))
left.legend()
right.bar_label(right.bar(list(kept), list(kept.values())), fmt="{:.0%}")
right.set(title="mass that keeps its class on the way to the target", ylim=(0, 1.1))

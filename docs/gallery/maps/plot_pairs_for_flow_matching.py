"""
Pairs for flow matching that respect labels
===========================================

``PairSampler`` pairs mini-batches by optimal transport under a cost that knows labels, in the
place of torchcfm's sampler. For training a generative model from one labeled dataset to another,
without mixing classes on the way.
"""

# %%
# Three classes and three others, turned: plain transport sends most of a class to a wrong one.

import matplotlib.pyplot as plt
import torch

import advect as ad
from advect.viz.theme import PALETTE

draw = torch.Generator().manual_seed(0)
source = ad.datasets.gaussians(600, generator=draw)
target = ad.datasets.gaussians(600, shift=(10.0, 0.0), rotation=1.3, generator=draw)

knows = ad.PairSampler(source, target, generator=draw)  # labels decide
blind = ad.PairSampler(source, target, label_weight=0.0, generator=draw)

figure, axes = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained", sharey=True)
for axis, (name, sampler) in zip(axes, {"blind": blind, "by labels": knows}.items(), strict=True):
    batch = next(sampler.batches(128))
    mixed = sampler.mixed(batch.y0, batch.y1)
    for begin, end, code in zip(batch.x0, batch.x1, batch.y0, strict=True):
        pair = torch.stack([begin, end]).T
        axis.plot(*pair, color=PALETTE[int(code)], linewidth=0.5, alpha=0.6)
    axis.scatter(*batch.x0.T, s=9, c=[PALETTE[code] for code in batch.y0])
    axis.scatter(*batch.x1.T, s=9, c=[PALETTE[code] for code in batch.y1])
    axis.set(title=f"{name}: {float(mixed):.0%} of the pairs mix classes")
    print(f"{name:10} {float(mixed):.1%} of the pairs mix classes")

# %%
# A map can be trained on the pairs at once, without a flow before it.

carry = ad.maps.FlowMatchingMap(updates=300, width=128, progress=False).fit(knows)
fresh = ad.datasets.gaussians(200, generator=draw)
before, after = (ad.otdd(data, target).value for data in (fresh, carry.transform(fresh)))
print(f"fresh samples: OTDD to the target {before:.2f} → {after:.2f}")

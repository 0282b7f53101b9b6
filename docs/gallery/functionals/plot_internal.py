"""
Internal energy: spreading like heat, or like water in sand
===========================================================

``Internal(power)`` is ∫ f(ρ) of the density itself. Power 1 is the entropy, whose flow is the
heat equation; power 2 the porous medium, which spreads with an edge. Use a little of it where a
flow would let samples collapse onto each other.
"""

# %%
# One cloud and its spread over time, beside what theory says. The heat equation: variance grows
# as 2t in each direction.

import matplotlib.pyplot as plt
import torch

import advect as ad
from advect.viz.theme import PALETTE

draw = torch.Generator().manual_seed(0)
cloud = ad.LabeledDataset(0.5 * torch.randn(300, 2, generator=draw), ["a"] * 300)
flows = {
    power: ad.flow(
        cloud,
        ad.Internal(power, bandwidth=0.25),
        integrator=ad.Euler(0.05),
        n_steps=30,
        callbacks=[ad.Recorder(every=1)],
    )
    for power in (1.0, 2.0)
}
variance = {
    power: [float(frame.dataset.x.var(0).mean()) for frame in result.trajectory]
    for power, result in flows.items()
}
print({power: f"{v[0]:.2f} → {v[-1]:.2f}" for power, v in variance.items()})

# %%
# Beside a distance it keeps samples from collapsing: eighty samples to eight targets.

few = ad.LabeledDataset(3 * torch.randn(8, 2, generator=draw), ["b"] * 8)
start = ad.LabeledDataset(torch.randn(80, 2, generator=draw), ["a"] * 80)
alone = ad.flow(start, ad.OTDD(few), integrator=ad.Euler(0.3), n_steps=25).dataset
spread = ad.flow(
    start, ad.OTDD(few) + 2 * ad.Internal(bandwidth=0.5, by_class=True), n_steps=60
).dataset

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
times = torch.arange(31) * 0.05
for power, curve in variance.items():
    left.plot(times, curve, label=f"Internal({power:g})")
left.plot(times, variance[1.0][0] + 2 * times, "k--", label="heat equation: + 2t")
left.set(title="variance of a cloud", xlabel="flow time")
left.legend()
for axis, data, title in ((middle, alone, "OTDD alone"), (right, spread, "OTDD + 2 Internal")):
    axis.scatter(*data.x.T, s=14, color=PALETTE[0], label="80 samples")
    axis.scatter(*few.x.T, s=60, marker="x", color="k", label="8 targets")
    axis.set(title=title, aspect="equal")
right.legend(loc="lower right")

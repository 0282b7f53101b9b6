"""
Mass that is left behind
========================

``Sinkhorn(reach=…)`` does not carry what is too far: unbalanced transport. For data with samples
that have no counterpart, such as outliers or a class that the other side lacks.
"""

# %%
# Two classes on each side, and forty samples of a third kind that the target does not have.

import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
target = ad.datasets.gaussians(160, 2, separation=6.0, shift=(3.0, 0.0), generator=draw)
clean = ad.datasets.gaussians(160, 2, separation=6.0, generator=draw)
odd = torch.randn(40, 2, generator=draw) + torch.tensor([0.0, 14.0])
source = ad.LabeledDataset(
    torch.cat([clean.x, odd]), [*clean.labels, *["odd"] * 40], classes=[*clean.classes, "odd"]
)

# %%
# A flow of both kinds. Without a reach the odd ones must become something, and push others out of
# their place. With one they stay behind, and spread: the debiased energy pushes apart what it
# does not carry.

results = {}
for name, solver in {"all mass moves": ad.Sinkhorn(), "reach 4": ad.Sinkhorn(reach=4.0)}.items():
    distance = ad.otdd(source, target, solver=solver)
    results[name] = ad.flow(
        source, ad.OTDD(target, solver=solver), integrator=ad.Euler(0.3), n_steps=15
    ).dataset
    print(f"{name}: OTDD {distance.value:.2f}, mass left behind {distance.mass_left:.1%}")
print(distance.left_in_source)

figure = viz.particles(
    [source, *results.values()], target, titles=["before", *results], ellipses=False
)

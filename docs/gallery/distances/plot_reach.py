"""
Unbalanced transport
====================

``Sinkhorn(reach=…)`` does not transport mass over distances far above the reach. Use it for samples
without a counterpart, such as outliers or a class that the other dataset does not have.
"""

# %%
# Two classes in both datasets, and forty source samples of a third class.

import torch

import advect as ad
from advect import viz

draw = torch.Generator().manual_seed(0)
target = ad.datasets.gaussians(120, 2, separation=6.0, shift=(3.0, 0.0), generator=draw)
clean = ad.datasets.gaussians(120, 2, separation=6.0, generator=draw)
extra = torch.randn(40, 2, generator=draw) + torch.tensor([0.0, 14.0])
source = ad.LabeledDataset(
    torch.cat([clean.x, extra]), [*clean.labels, *["extra"] * 40], classes=[*clean.classes, "extra"]
)

# %%
# With balanced transport the third class moves to the target and displaces other samples. With a
# reach it stays.

results = {}
for name, solver in {"balanced": ad.Sinkhorn(), "reach 4": ad.Sinkhorn(reach=4.0)}.items():
    distance = ad.otdd(source, target, solver=solver)
    results[name] = ad.flow(
        source, ad.OTDD(target, solver=solver), integrator=ad.Euler(0.3), n_steps=12
    ).dataset
    print(
        f"{name}: OTDD {distance.value:.2f}, {distance.mass_left:.1%} of the mass not transported"
    )
print(distance.left_in_source)

figure = viz.particles(list(results.values()), target, titles=list(results), ellipses=False)

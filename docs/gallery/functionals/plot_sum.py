"""
A sum of functionals
====================

A distance plus a potential plus an interaction, F = T + V + W: each term by its weight, and each
recorded by its name. For shaping: toward the target, but within bounds and with classes apart.
"""

# %%

import advect as ad
from advect import viz

source = ad.datasets.load("toy:gaussians?n=150")
target = ad.datasets.load("toy:gaussians?n=150&shift=9,0&separation=1.2&seed=1")
objective = (
    ad.OTDD(target)
    + 8 * ad.Potential(ad.ball([9.0, 0.0], 2.5))  # stay in a disc
    + 60 * ad.Interaction(ad.repulsion(length=1.0))  # and away from other classes
)
options = {"integrator": ad.Euler(0.1), "n_steps": 40, "callbacks": [ad.Recorder(every=20)]}
shaped = ad.flow(source, objective, **options)
plain = ad.flow(source, ad.OTDD(target), **options)
print(objective)
print({name: f"{values[0]:.2f} → {values[-1]:.2f}" for name, values in shaped.terms.items()})

# %%
# What it costs: the shaped dataset ends further from the target. That is the price, and the terms
# say it.

for name, result in {"distance alone": plain, "sum": shaped}.items():
    print(f"{name}: OTDD to the target {ad.otdd(result.dataset, target).value:.3f}")
figure = viz.particles({"OTDD": plain, "OTDD + V + W": shaped}, target, columns=3)

# %%

curves = viz.curves(shaped)

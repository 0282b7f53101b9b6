"""
Digits flow to MNIST
====================

Images of one dataset become images of another, each with its label. This is the shortest flow
there is: harmonize, ``ad.flow``, look.
"""

# %%

import advect as ad
from advect import viz

digits, mnist = (ad.datasets.load(name, n=200, balanced=True) for name in ("digits", "mnist"))
source, target = ad.harmonize(digits, mnist, size=16)  # one size, values 0 to 1

result = ad.flow(
    source,
    ad.OTDD(target),
    dynamics=ad.FeatureDriven(bounds=(0.0, 1.0)),  # pixels stay pixels
    integrator=ad.Euler(0.2),
    n_steps=15,
    callbacks=[ad.Recorder()],
)
print(result)
print("distance", ad.otdd(source, target).value, "→", ad.otdd(result.dataset, target).value)

# %%
# A row is one sample over time. Classes go where their images lie nearest, whatever they are
# called.

figure = viz.image_grid(result, rows=8, columns=10)

# %%
# The objective falls at every step, because steps that would raise it are taken back and halved.

curves = viz.curves(result)

"""
Digits to MNIST
===============

Images of one dataset move to another dataset and keep their labels. The steps are: bring both
datasets to one size, run ``ad.flow``, and draw the images.
"""

# %%

import advect as ad
from advect import viz

digits, mnist = (ad.datasets.load(name, n=200, balanced=True) for name in ("digits", "mnist"))
source, target = ad.harmonize(digits, mnist, size=16)  # one size, values from 0 to 1

# %%
# ``ad.suggest`` chooses settings from the data, each with a reason.

print(ad.suggest(source, target))

# %%
# The settings of this flow are given explicitly.

result = ad.flow(
    source,
    ad.OTDD(target),
    dynamics=ad.FeatureDriven(bounds=(0.0, 1.0)),  # pixels stay in this range
    integrator=ad.Euler(0.2),
    n_steps=15,
    callbacks=[ad.Recorder()],
)
print(result)
before, after = (ad.otdd(data, target).value for data in (source, result.dataset))
print(f"distance to MNIST {before:.2f} → {after:.2f}")

# %%
# Each row shows one sample over time. Classes are matched by their images and not by their names.

figure = viz.image_grid(result, rows=4, columns=6)

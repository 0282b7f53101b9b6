"""
Integrators
===========

``Euler``, ``Heun``, ``Momentum``, ``Adam`` and ``EulerMaruyama`` on one functional.
``Euler`` with its step control is enough for most flows to a dataset.
"""

# %%
# One particle in a long valley, which is steep in one direction and flat in the other. Steps are not
# controlled, to show the integrators themselves.

import matplotlib.pyplot as plt
import torch

import advect as ad

data = ad.LabeledDataset([[4.0, 1.6]], ["a"])
valley = ad.Potential(lambda x, y: 0.05 * x[:, 0].square() + 2 * x[:, 1].square())
schemes = {
    "Euler(0.45)": ad.Euler(0.45),
    "Heun(0.45)": ad.Heun(0.45),
    "Momentum(0.1)": ad.Momentum(0.1),
    "Adam(0.3)": ad.Adam(0.3),
    "EulerMaruyama(0.1, 0.1)": ad.EulerMaruyama(0.1, temperature=0.1),
}
results = {
    name: ad.flow(
        data,
        valley,
        integrator=scheme,
        control=ad.FixedSteps(),
        n_steps=40,
        generator=torch.Generator().manual_seed(0),
    )
    for name, scheme in schemes.items()
}

# %%
# ``EulerMaruyama`` adds noise: it samples from a distribution around the minimum.

figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
for name, result in results.items():
    axis.semilogy(result.values, label=name)
    print(f"{name:24} value {result.values[0]:.2f} → {result.values[-1]:.2g}")
axis.set(title="Value of the functional", xlabel="step", ylim=(1e-4, 10))
axis.legend(ncols=2)

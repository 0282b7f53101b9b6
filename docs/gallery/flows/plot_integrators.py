"""
Integrators on one landscape
============================

``Euler``, ``Momentum``, ``Adam``, ``Adagrad``, ``Heun`` and ``EulerMaruyama`` go down the same
functional from the same place. Look here for what they do differently. For most flows to a dataset
``Euler`` with its step control is enough.
"""

# %%
# A long valley, steep across and flat along, and two particles in it. Steps are not controlled
# here, so that each scheme is seen as it is.

import matplotlib.pyplot as plt
import torch

import advect as ad

data = ad.LabeledDataset([[4.0, 1.6], [-4.0, -1.2]], ["a", "b"])
valley = ad.Potential(lambda x, y: 0.05 * x[:, 0].square() + 2 * x[:, 1].square())
schemes = {
    "Euler(0.45)": ad.Euler(0.45),
    "Momentum(0.1)": ad.Momentum(0.1),
    "Adam(0.3)": ad.Adam(0.3),
    "Heun(0.45)": ad.Heun(0.45),
    "EulerMaruyama(0.1, 0.1)": ad.EulerMaruyama(0.1, temperature=0.1),
    "Adagrad(0.5)": ad.Adagrad(0.5),
}
results = {
    name: ad.flow(
        data,
        valley,
        integrator=scheme,
        control=ad.FixedSteps(),
        n_steps=40,
        callbacks=[ad.Recorder()],
        generator=torch.Generator().manual_seed(0),
    )
    for name, scheme in schemes.items()
}

# %%
# Euler swings across the valley, at the edge of what is stable. Momentum runs through the end and
# comes back. Adam moves all coordinates at one pace. Heun follows the path of the flow more
# closely for two evaluations a step. Euler–Maruyama samples from the valley instead of ending in it.

figure, axes = plt.subplots(2, 4, figsize=(12, 6.8), layout="constrained")
across, along = torch.meshgrid(
    torch.linspace(-2.2, 2.2, 80), torch.linspace(-5, 5, 80), indexing="ij"
)
height = (0.05 * along.square() + 2 * across.square()).sqrt()
for axis, (name, result) in zip(axes.flat, results.items(), strict=False):
    axis.contour(along, across, height, levels=10, colors="0.8", linewidths=0.6)
    path = torch.stack([frame.dataset.x for frame in result.trajectory])
    for particle in (0, 1):
        axis.plot(*path[:, particle].T, ".-", markersize=4, linewidth=0.9)
    axis.set(title=name, xticks=[], yticks=[])
    axes.flat[-1].semilogy(result.values, label=name)
    print(f"{name:24} value {result.values[0]:.2f} → {result.values[-1]:.2g}")
axes.flat[-1].set(title="value", xlabel="step", ylim=(1e-4, 10))
figure.legend(*axes.flat[-1].get_legend_handles_labels(), loc="outside lower center", ncols=4)

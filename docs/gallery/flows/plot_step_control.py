"""
Step control, early stopping and checkpoints
============================================

``Backtracking`` reduces a step that raises the value. ``Decay`` is a step-size schedule. ``StopWhen``
stops a flow early. ``Checkpoint`` stores the state, so that an interrupted flow can be resumed.
"""

# %%
# The step size is too large here. With fixed steps the value grows, with backtracking it falls.

import tempfile

import matplotlib.pyplot as plt
import torch

import advect as ad

source = ad.datasets.load("toy:gaussians?n=100")
target = ad.datasets.load("toy:gaussians?n=100&classes=4&shift=6,2&seed=1")
settings = {
    "Euler(1.1), fixed steps": (ad.Euler(1.1), ad.FixedSteps()),
    "Euler(1.1), backtracking": (ad.Euler(1.1), ad.Backtracking()),
    "Euler(Decay(1.1, 3)), fixed steps": (ad.Euler(ad.Decay(1.1, half_life=3)), ad.FixedSteps()),
}
results = {}
for name, (integrator, control) in settings.items():
    results[name] = ad.flow(
        source,
        ad.OTDD(target),
        integrator=integrator,
        control=control,
        n_steps=25,
        callbacks=[ad.StopWhen(tol=1e-3)],
    )
    print(f"{name:34} {results[name].status:10} {results[name].values[-1]:.4f}")

# %%
# A resumed flow gives the same numbers as an uninterrupted one, bit for bit.

run = tempfile.mkdtemp()
half = ad.flow(source, ad.OTDD(target), n_steps=5, callbacks=[ad.Checkpoint(run, every=5)])
whole = ad.flow(source, ad.OTDD(target), n_steps=10)
resumed = ad.flow(source, ad.OTDD(target), n_steps=10, resume=run)
print("identical:", torch.equal(whole.dataset.x, resumed.dataset.x))

# %%
# ``ad.iterate`` gives the evaluated states one at a time.

for step in ad.iterate(source, ad.OTDD(target), integrator=ad.Euler(0.2)):
    if step.value < 10:
        break
print(f"value {step.value:.2f} after {step.index} steps")

figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, result in results.items():
    axis.semilogy(result.values, "o-", markersize=3, label=name)
axis.set(title="Objective by step control", xlabel="step", ylabel="½ OTDD²")
axis.legend()

"""
Step control, stopping and resuming
===================================

``Backtracking`` takes back a step that raises the value and tries a smaller one; ``Decay`` makes
steps smaller by plan; ``StopWhen`` ends a flow that has done enough; ``Checkpoint`` lets one go
on after a crash. For flows that take long.
"""

# %%
# A step size that is too large for Gaussian classes: with fixed steps the value swings, with the
# default it falls.

import tempfile

import matplotlib.pyplot as plt
import torch

import advect as ad

source = ad.datasets.load("toy:gaussians?n=150")
target = ad.datasets.load("toy:gaussians?n=150&classes=4&shift=6,2&seed=1")
ways = {
    "Euler(1.1), fixed steps": (ad.Euler(1.1), ad.FixedSteps()),
    "Euler(1.1), backtracking": (ad.Euler(1.1), ad.Backtracking()),
    "Euler(0.1)": (ad.Euler(0.1), None),
    "Euler, halved every 3 steps": (ad.Euler(ad.Decay(1.1, half_life=3)), ad.FixedSteps()),
}
options = {"n_steps": 40, "callbacks": [ad.StopWhen(tol=1e-3)]}
results = {}
for name, (integrator, control) in ways.items():
    results[name] = ad.flow(
        source, ad.OTDD(target), integrator=integrator, control=control, **options
    )
    print(f"{name:28} {results[name].status:10} {results[name].values[-1]:.4f}")

# %%
# A flow that is interrupted goes on to the same numbers, bit for bit.

run = tempfile.mkdtemp()  # in earnest: a folder of yours
half = ad.flow(source, ad.OTDD(target), n_steps=10, callbacks=[ad.Checkpoint(run, every=5)])
whole = ad.flow(source, ad.OTDD(target), n_steps=20)
resumed = ad.flow(source, ad.OTDD(target), n_steps=20, resume=run)
print("the same to the last bit:", torch.equal(whole.dataset.x, resumed.dataset.x))

# %%
# Or walk by hand, one evaluated state after the other.

for step in ad.iterate(source, ad.OTDD(target), integrator=ad.Euler(0.2)):
    if step.value < 6:
        break
print(f"by hand: {step.index} steps to a value of {step.value:.2f}")

figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, result in results.items():
    axis.semilogy(result.values, "o-", markersize=3, label=f"{name}: {result.status}")
axis.set(
    title="The energy to the target, by step control",
    xlabel="step",
    ylabel="½ OTDD²",
    xlim=(-1, 25),
    ylim=(3, 1000),
)
axis.legend()

"""Stop a flow half-way, copy its directory, resume the copy, and compare it with an uninterrupted run."""

import shutil

import torch

import advect as ad

source = ad.datasets.load("toy:gaussians?n=100&classes=2")
objective = ad.OTDD(ad.datasets.load("toy:rings?n=100&classes=2"))
parts = {"integrator": ad.Euler(0.2), "n_steps": 20}
whole = ad.flow(source, objective, **parts)

callbacks = [ad.Checkpoint("run"), lambda step: step.index == 9]
ad.flow(source, objective, callbacks=callbacks, **parts)
shutil.copytree("run", "elsewhere", dirs_exist_ok=True)
resumed = ad.flow(source, objective, resume="elsewhere", **parts)

same = torch.equal(whole.dataset.x, resumed.dataset.x) and whole.values == resumed.values
print(f"{resumed.n_steps} steps, bit for bit the same: {same}")

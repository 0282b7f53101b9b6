"""Stop a flow half-way, copy its directory, resume the copy, and compare it with an uninterrupted run."""

import shutil

import torch

import advect as ad

source, target = (ad.datasets.load(f"toy:{kind}?n=100&classes=2") for kind in ("gaussians", "rings"))
parts = {"integrator": ad.Euler(0.2)}
whole = ad.flow(source, ad.OTDD(target), n_steps=20, **parts)

ad.flow(source, ad.OTDD(target), n_steps=20, callbacks=[ad.Checkpoint("run"), lambda step: step.index == 9], **parts)
shutil.copytree("run", "elsewhere", dirs_exist_ok=True)
resumed = ad.flow(source, ad.OTDD(target), n_steps=20, resume="elsewhere", **parts)

same = torch.equal(whole.dataset.x, resumed.dataset.x) and whole.values == resumed.values
print(f"{resumed.n_steps} steps, bit for bit the same: {same}")

"""
Transport solvers
=================

``Sinkhorn`` (the default), ``ExactOT`` and ``MiniBatch`` on datasets of growing size. Use this to
choose a solver when a distance takes too long.
"""

# %%
# Gaussian classes in the plane. Times are processor times.

import time

import matplotlib.pyplot as plt

import advect as ad

solvers = {
    "ExactOT()": ad.ExactOT(),
    "Sinkhorn()": ad.Sinkhorn(),
    "Sinkhorn(memory_limit='8MB')": ad.Sinkhorn(memory_limit="8MB"),
    "MiniBatch(size=200)": ad.MiniBatch(size=200),
}
sizes = (200, 400, 800, 1200)
moons = ad.datasets.load("toy:moons?n=50")
for solver in solvers.values():
    ad.otdd(moons, moons, solver=solver)  # the first call imports libraries
seconds, values = ({name: [] for name in solvers} for _ in range(2))
for n in sizes:
    source = ad.datasets.load(f"toy:gaussians?n={n}&seed=1")
    target = ad.datasets.load(f"toy:gaussians?n={n}&classes=4&shift=5,1&seed=2")
    for name, solver in solvers.items():
        begin = time.process_time()
        distance = ad.otdd(source, target, solver=solver)
        seconds[name].append(time.process_time() - begin)
        values[name].append(distance.value)

# %%
# ``MiniBatch`` is linear in the number of samples. Its value has an upward bias.

exact = values["ExactOT()"][-1]
for name in solvers:
    print(f"{name:30} {values[name][-1]:.4f}, {values[name][-1] / exact - 1:+.2%} of exact")
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for name in solvers:
    axis.loglog(sizes, seconds[name], "o-", label=name)
axis.set(title="Processor seconds of a distance", xlabel="samples of each dataset")
axis.set_xticks(sizes, sizes)
axis.minorticks_off()
axis.grid(alpha=0.3)
axis.legend()

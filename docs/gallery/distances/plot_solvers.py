"""
Three solvers, their values and their price
===========================================

``Sinkhorn``, ``ExactOT`` and ``MiniBatch`` on one pair of datasets of
growing size. For when a distance takes too long: what is each of them worth, and what does it
leave open?
"""

# %%
# Gaussian classes in the plane, three and four of them. Time is that of the processor.

import time

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator

import advect as ad

solvers = {
    "ExactOT()": ad.ExactOT(),
    "Sinkhorn()": ad.Sinkhorn(),
    "Sinkhorn, blocks within 8 MB": ad.Sinkhorn(memory_limit="8MB"),
    "MiniBatch(size=200)": ad.MiniBatch(size=200),
}
sizes = (200, 400, 800, 1600)
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
# Each says how far it may be off. ``MiniBatch`` is a mean over parts, which are a little further
# from each other than the whole.

exact = values["ExactOT()"][-1]
for name in solvers:
    print(f"{name:30} {values[name][-1]:.4f}, {values[name][-1] / exact - 1:+.2%} of exact")
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
for name in solvers:
    left.loglog(sizes, seconds[name], "o-", label=name)
    right.semilogx(
        sizes, [v / e for v, e in zip(values[name], values["ExactOT()"], strict=True)], "o-"
    )
left.set(title="CPU seconds", xlabel="samples on each side")
right.set(title="value ÷ exact value", xlabel="samples on each side")
for axis in (left, right):
    axis.set_xticks(sizes, sizes)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
left.yaxis.set_major_formatter("{x:g}")
left.legend(fontsize=8)

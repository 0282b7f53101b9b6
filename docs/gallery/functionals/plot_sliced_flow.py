"""
A flow by slices
================

``SlicedOTDD`` drives a flow by sorting along random lines: n log n for each step and no n × m
matrix. For many samples, where a step of ``OTDD`` takes too long or does not fit; the lines are
drawn anew at each step.
"""

# %%
# The same flow by both, for a growing number of samples. Seconds are of the processor, for
# fifteen steps of the same size.

import time

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator

import advect as ad
from advect.viz.theme import PALETTE

sizes, seconds, ends = (300, 600, 1200), {}, {}
moons = ad.datasets.load("toy:moons?n=50")
for first in (ad.OTDD(moons), ad.SlicedOTDD(moons, 50)):
    ad.flow(moons, first, n_steps=1)  # the first call loads what it needs
for n in sizes:
    source = ad.datasets.load(f"toy:gaussians?n={n}&classes=4&spread=0.7")
    target = ad.datasets.load(f"toy:gaussians?n={n}&classes=4&shift=12,4&rotation=0.5&seed=1")
    goals = {"OTDD": ad.OTDD(target), "SlicedOTDD, 50 lines": ad.SlicedOTDD(target, 50)}
    for name, goal in goals.items():
        begin = time.process_time()
        result = ad.flow(source, goal, integrator=ad.Euler(0.3), n_steps=15)
        seconds.setdefault(name, []).append(time.process_time() - begin)
        ends[name] = result.dataset
for name, end in ends.items():
    rest = ad.otdd(end, target).value / ad.otdd(source, target).value
    print(f"{name:22} {seconds[name][-1]:.1f} s for {n} samples, {rest:.1%} of the distance left")

# %%
# Both arrive, and slices pay more the more samples there are. For a few hundred take ``OTDD``,
# which is exact and can say whether it has converged.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
for name, times in seconds.items():
    left.loglog(sizes, times, "o-", label=name)
left.set(title="CPU seconds of 15 steps", xlabel="samples on each side")
left.set_xticks(sizes, sizes)
left.minorticks_off()
left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
left.yaxis.set_major_formatter("{x:g}")
left.legend()
for axis, (name, end) in zip((middle, right), ends.items(), strict=True):
    axis.scatter(*target.x[::7].T, s=16, facecolors="none", edgecolors="0.6", linewidths=0.6)
    axis.scatter(*end.x[::7].T, s=6, c=[PALETTE[code] for code in end.y[::7]])
    axis.set(title=f"{name}, end (circles: target)", aspect="equal")

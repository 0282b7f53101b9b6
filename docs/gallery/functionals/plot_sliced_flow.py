"""
A flow by slices
================

``SlicedOTDD`` drives a flow by sorting along random lines: n log n for each step and no n × m matrix. For many samples, at some cost in accuracy; the
lines are drawn anew at each step.
"""

# %%
# A thousand samples to a thousand others. Seconds are of the processor, for steps of the same size.

import time

import advect as ad
from advect import viz

source = ad.datasets.load("toy:gaussians?n=1000&classes=4")
target = ad.datasets.load("toy:rings?n=1000&classes=4&seed=1")
target = target.replace(x=1.5 * target.x + 7)
flows = {}
for name, goal in {
    "OTDD": ad.OTDD(target),
    "SlicedOTDD, 60 lines": ad.SlicedOTDD(target, 60),
    "SlicedOTDD, moments": ad.SlicedOTDD(target, 60, projection="moments"),
}.items():
    begin = time.process_time()
    integrator = ad.Adam(0.3) if "moments" in name else ad.Euler(0.3)
    flows[name] = ad.flow(source, goal, integrator=integrator, n_steps=25)
    seconds = time.process_time() - begin
    left = ad.otdd(flows[name].dataset, target).value
    print(f"{name:22} {seconds:.1f} s, OTDD to the target at the end {left:.3f}")

# %%
figure = viz.particles(
    [source, *(result.dataset for result in flows.values())],
    target,
    titles=["before", *flows],
    ellipses=False,
)

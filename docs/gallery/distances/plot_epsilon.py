"""
Entropic regularisation
=======================

``Sinkhorn(epsilon=…)`` sets the strength of the regularisation. A small epsilon gives a sharp plan
and takes more iterations, a large one gives a blurred plan. The default is 1 % of the mean cost,
``Relative(0.01)``.
"""

# %%

import matplotlib.pyplot as plt

import advect as ad

source = ad.datasets.load("toy:moons?n=120")
target = ad.datasets.load("toy:rings?n=120&seed=1")
images = {}
for share in (0.001, 0.03, 0.3):
    distance = ad.otdd(source, target, solver=ad.Sinkhorn(epsilon=ad.Relative(share)))
    plan, cross = distance.plan().to(target.x.dtype), distance.divergence.cross
    images[share] = (plan / plan.sum(1, keepdim=True)) @ target.x
    print(
        f"epsilon {share:.1%} of the mean cost: OTDD {distance.value:.4f}, {cross.n_iter} iterations"
    )

# %%
# The debiased distance changes little. The image of a sample is the mean of the target samples that
# it is coupled with. With a large epsilon, these means move to the center of the target.

figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
axis.scatter(*target.x.T, s=40, facecolors="none", edgecolors="0.7", label="target")
for share, image in images.items():
    axis.scatter(*image.T, s=14, label=f"images, epsilon {share:.1%}")
axis.set(title="Images of samples under the plan", aspect="equal")
axis.legend(loc="upper right")

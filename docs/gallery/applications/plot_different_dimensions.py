"""
Datasets of different dimensions
================================

Two datasets whose columns have nothing in common can be aligned by their geometry: POT's fused
Gromov–Wasserstein transport couples samples, and a rotation onto the coupled samples gives one space. Use it
when neither ``ad.harmonize`` nor a common network applies, and check the result: if the
two geometries differ, the alignment is wrong without a sign of it.
"""

# %%
# Digits as 64 numbers, and other digits rotated into 300 dimensions.

import matplotlib.pyplot as plt
import numpy as np
import ot
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

import advect as ad

here, there = ad.datasets.load("digits", n=800).split(
    0.5, generator=torch.Generator().manual_seed(0)
)
rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(300, 300)))[0][:64]
a, b = (PCA(30).fit_transform(x) for x in (here.x.numpy(), there.x.numpy() @ rotation))

# %%
# The coupling compares distances within each dataset; shared class names enter as a linear cost.

names = (here.y[:, None] != there.y[None, :]).double().numpy()
plan = ot.fused_gromov_wasserstein(names, ot.dist(a, a), ot.dist(b, b), alpha=0.5)
u, _, vt = np.linalg.svd(a.T @ plan @ b)
source = here.replace(x=torch.tensor(a @ u @ vt), sample_shape=(30,))
target = there.replace(x=torch.tensor(b), sample_shape=(30,))
right = KNeighborsClassifier(1).fit(source.x, source.y).score(target.x, target.y)
print(f"{right:.1%} of the target have the label of their nearest source sample")
print(f"distance in the common space: {ad.otdd(source, target).value:.3f}")
figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
for data, marker in ((source, "o"), (target, "x")):
    axis.scatter(data.x[:, 0], data.x[:, 1], c=data.y, cmap="tab10", marker=marker, s=14)
axis.set_title("64 dimensions (dots) and 300 dimensions (crosses) in one space")

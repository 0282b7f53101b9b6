"""
No labels: clusters stand in
============================

``ad.pseudo_labels`` clusters data that has no labels, so that distances and flows between classes
work. Here five clusterers are scored on digits whose labels are kept aside; where some labels are
known, they are spread to the rest.
"""

# %%

import matplotlib.pyplot as plt
from sklearn.cluster import HDBSCAN, AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

import advect as ad

digits = ad.datasets.load("digits", n=700)
data = ad.LabeledDataset(digits.samples)  # what there would be without labels
clusterers = {
    "spectral": "spectral",
    "Ward": AgglomerativeClustering(10),
    "GaussianMixture": GaussianMixture(10, covariance_type="diag"),
    "kmeans": "kmeans",
    "HDBSCAN": HDBSCAN(min_cluster_size=10),
}
scores = {}
for name, clusterer in clusterers.items():
    number = None if name == "HDBSCAN" else 10
    found = ad.pseudo_labels(data, clusterer, n_clusters=number)
    scores[name] = (adjusted_rand_score(digits.labels, found.codes), found.n_clusters)
    print(f"{name:16} {found.n_clusters} clusters, adjusted Rand index {scores[name][0]:.2f}")

# %%
# Some labels known: the rest is filled in along the graph of neighbours.

partly = ad.LabeledDataset(
    digits.samples,
    [n if i % 20 == 0 else None for i, n in enumerate(digits.labels)],
    classes=range(10),
)
filled = ad.fill_labels(partly)
print(f"one label of twenty known: {float((filled.y == digits.y).double().mean()):.1%} right")
figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
bars = axis.barh(
    [f"{name}, {k}" for name, (_, k) in scores.items()], [s for s, _ in scores.values()]
)
axis.bar_label(bars, fmt="{:.2f}", padding=3)
axis.set(title="Adjusted Rand index of clusters and digits\n(clusterer, clusters)", xlim=(0, 1))
axis.invert_yaxis()

"""Which clusterer gives the best pseudo-labels (paper, section 5.3, where k-means is used).

Clusters training images of USPS, KMNIST, Fashion-MNIST and EMNIST letters into as many clusters as
there are classes, on pixels and on 50 principal components. The labels are used for the scores
alone: accuracy under the best one-to-one naming of clusters."""

from __future__ import annotations

from typing import Any

from naming import clustering_accuracy
from sklearn.cluster import AgglomerativeClustering

import advect as ad

NAME = "clusterers"
SETS = {
    "usps": "USPS",
    "kmnist": "KMNIST",
    "fashion_mnist": "Fashion-MNIST",
    "emnist_letters": "EMNIST letters",
}
SAMPLES, DRAWS = 2000, 5
COMPONENTS = 50
RECOMMENDED = "spectral, PCA"  # the default of pseudo_labels, chosen on these sets
BASELINE = "k-means, pixels"  # as in the paper
COLUMNS = ["spectral, PCA", "spectral, pixels", "Ward, PCA", "Ward, pixels", "k-means, pixels"]


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{shown}, draw {1000 + draw}": {"name": name, "seed": 1000 + draw}
        for name, shown in SETS.items()
        for draw in range(DRAWS)
    }


def run(name: str, seed: int) -> dict[str, Any]:
    data = ad.datasets.load(name, n=SAMPLES, seed=seed)
    ward = AgglomerativeClustering(len(data.classes))
    clusterers = {"spectral": "spectral", "Ward": ward, "k-means": "kmeans"}
    accuracies = {}
    for column in COLUMNS:
        method, space = column.split(", ")
        embedding = COMPONENTS if space == "PCA" else None
        found = ad.pseudo_labels(data, clusterers[method], target=data, embedding=embedding)
        accuracies[column] = clustering_accuracy(found.y.numpy(), data.labels)
    return {"accuracies": accuracies}

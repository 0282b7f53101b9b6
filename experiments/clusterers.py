"""Which clusterer gives the best pseudo-labels (paper, section 5.3, where k-means is used).

    ADVECT_DATA=path/to/data python experiments/clusterers.py [--quick] [--seed 0] [--out out]

Clusters 5000 training images of USPS, KMNIST, Fashion-MNIST and EMNIST letters into as many
clusters as there are classes, with every clusterer, on pixels and on 50 principal components. The
labels are used for the scores alone: accuracy under the best one-to-one naming of clusters, and
purity."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import advect as ad

SETS = ("usps", "kmnist", "fashion_mnist", "emnist_letters")
CLUSTERERS = {
    "k-means": ad.KMeans(),
    "Ward": ad.Ward(),
    "spectral": ad.Spectral(),
    "mixture, tied": ad.GaussianMixture(covariance="tied"),
    "HDBSCAN": ad.HDBSCAN(min_samples=5),
}
EMBEDDINGS = {"pixels": None, "PCA 50": 50}


def scores(data: ad.LabeledDataset, clusterer: object, embedding: int | None) -> dict[str, float]:
    start = time.perf_counter()
    finds_number = isinstance(clusterer, ad.HDBSCAN)
    try:
        found = ad.pseudo_labels(
            data, clusterer, target=None if finds_number else data, embedding=embedding
        )
    except ad.InputError:
        if not finds_number:
            raise
        return {
            "accuracy": 0.0,
            "purity": 0.0,
            "clusters": 0,
            "seconds": time.perf_counter() - start,
        }  # noise alone
    return {
        "accuracy": ad.classes.clustering_accuracy(found, data),
        "purity": ad.classes.purity(found, data),
        "clusters": found.n_clusters,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="500 samples")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the draw of samples; scores differ between draws"
    )
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    n = 500 if options.quick else 5000

    report: dict[str, dict[str, dict[str, float]]] = {}
    print(
        f"{n} samples; accuracy / purity in %, seconds\n{'':24}"
        + "".join(f"{name:>22}" for name in SETS)
    )
    data = {name: ad.datasets.load(name, n=n, seed=options.seed) for name in SETS}
    for name, clusterer in CLUSTERERS.items():
        for space, embedding in EMBEDDINGS.items():
            if name.startswith("mixture") and embedding is None:
                continue  # covariances of 784² numbers
            row = {each: scores(data[each], clusterer, embedding) for each in SETS}
            report[f"{name}, {space}"] = row
            cells = (
                f"{100 * c['accuracy']:.1f} / {100 * c['purity']:.1f}, {c['seconds']:.1f} s"
                for c in row.values()
            )
            print(f"{f'{name}, {space}':24}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "clusterers.json"
    path.write_text(json.dumps({"samples": n, "seed": options.seed, "scores": report}, indent=2))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()

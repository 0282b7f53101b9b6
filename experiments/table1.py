"""One frozen MNIST model for USPS, KMNIST, Fashion-MNIST and EMNIST letters (paper, table 1).

    ADVECT_DATA=path/to/data python experiments/table1.py [--quick] [--sets usps kmnist …] [--out
    out]

before        the model on the images as they are, its answers read through the class matching
supervised    the data flows to MNIST with its labels, which are those it is scored on: the paper's number
held out      other images whose labels nobody used, carried by the map; beside it a nearest neighbour and a LeNet-5 trained on
              the same labeled samples
unsupervised  the same flow with clusters for labels, scored by the best renaming of clusters; beside it the accuracy of the
              clusters themselves, which is the ceiling, and the share of it that survives the flow

A set that is done is not done again: delete its part of the JSON file to repeat it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from lenet import predictions, train
from results import Results
from sklearn.neighbors import KNeighborsClassifier

import advect as ad
from advect.classes import clustering_accuracy

PAPER = {  # before, supervised, unsupervised
    "usps": (77.1, 99.1, 66.4),
    "kmnist": (5.05, 99.2, 59.2),
    "fashion_mnist": (8.22, 99.1, 54.9),
    "emnist_letters": (3.62, 36.7, 20.7),
}


OPTIONS = ad.apps.RepurposeOptions(bounds=(0.0, 1.0), n_steps=12, step_size=0.4, every=12)


def supervised(
    data: ad.LabeledDataset,
    test: ad.LabeledDataset,
    model: torch.nn.Module,
    mnist: ad.LabeledDataset,
) -> dict:
    flowed = ad.apps.repurpose(model, mnist, data, OPTIONS)
    held_out = np.mean([a == b for a, b in zip(flowed.predict(test), test.labels, strict=True)])
    return {
        "samples": len(data),
        "before": 100 * flowed.accuracies[0][1],
        "supervised": 100 * (flowed.accuracy or 0.0),
        "test samples": len(test),
        "held out": 100 * float(held_out),
    }


def direct(data: ad.LabeledDataset, test: ad.LabeledDataset, epochs: int) -> dict:
    """What the same labeled samples give without a flow."""
    nearest = KNeighborsClassifier(1).fit(data.x.numpy(), data.y.numpy())
    own = train(data, epochs=epochs)
    return {
        "nearest neighbour": 100 * float(nearest.score(test.x.numpy(), test.y.numpy())),
        "LeNet-5": 100 * float((predictions(own, test.samples) == test.y).double().mean()),
    }


def unsupervised(
    data: ad.LabeledDataset, model: torch.nn.Module, mnist: ad.LabeledDataset, clusters: int
) -> dict:
    pseudo = ad.pseudo_labels(data, n_clusters=clusters)
    blind = ad.apps.repurpose(model, mnist, pseudo.dataset, OPTIONS)
    truth = data.y.numpy()
    ceiling = clustering_accuracy(pseudo.codes, truth)
    found = clustering_accuracy(np.array(blind.predictions), truth)
    return {
        "clusters asked for": clusters,
        "unsupervised": 100 * found,
        "clusters": 100 * ceiling,
        "survives": 100 * found / ceiling,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="500 samples, 3 epochs")
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--sets", nargs="+", default=list(PAPER), choices=list(PAPER))
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    n, epochs = (500, 3) if options.quick else (options.samples, 20)
    results = Results(options.out / f"table1-{n}.json")
    mnist = ad.datasets.load("mnist")
    model = train(mnist, epochs=epochs)
    mnist = mnist.sample(n, balanced=True, generator=torch.Generator().manual_seed(0))
    for name in options.sets:
        data, reference = ad.harmonize(ad.datasets.load(name, max_samples=n), mnist, size=28)
        test, _ = ad.harmonize(ad.datasets.load(name, split="test"), mnist, size=28)
        row = {
            **results.once(f"{name}, supervised", supervised, data, test, model, reference),
            **results.once(f"{name}, without a flow", direct, data, test, epochs),
            **results.once(
                f"{name}, unsupervised",
                unsupervised,
                data,
                model,
                reference,
                len(reference.classes),
            ),
        }
        ours = ", ".join(f"{key} {value:.1f}" for key, value in row.items())
        print(
            f"{name}: {ours}\n    paper: before {PAPER[name][0]}, supervised {PAPER[name][1]}, "
            f"unsupervised {PAPER[name][2]}"
        )
    print(f"wrote {results.path}")


if __name__ == "__main__":
    main()

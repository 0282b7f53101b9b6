"""A few labels and a pool: ``ad.apps.label`` beside other ways to label 2,000 samples from 1, 5 or 10
of each class.

A cell is one draw of shots and pool from the training images of one dataset; accuracies are those of
the labels that the pool's samples got. Baselines are given pixels and the same oriented gradients.
Draws with seeds below 100 come from other rows of the training images than those from 1000 on:
settings were chosen on them. ``test`` holds accuracies on fresh test images, of a logistic regression
trained on the labels that were given."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from lenet import train
from torch import Tensor, nn

import advect as ad
from advect.apps.label import LabeledPool
from advect.apps.training import joined
from advect.classes.embedding import points_of

NAME = "labels"
RECOMMENDED = "label"  # the column named in advance
DATASETS = ("mnist", "usps", "kmnist", "fashion_mnist")
SHOTS = (1, 5, 10)
SEEDS = tuple(range(1000, 1010))
POOL, TEST = 2000, 1000
FINAL_PART = 0.6  # of the training images, the first; settings were chosen on the others
ELSEWHERE = dict.fromkeys(DATASETS, "mnist") | {"mnist": "emnist_letters"}  # the network's
EPOCHS = 6
# The best of small grids on the validation part, by the mean over the four datasets at 5 labels a
# class, seeds 0 and 1: n_neighbors 5, 10, 20; gamma 5, 20, 80; alpha 0.2, 0.8, 0.95; threshold 0.6,
# 0.75, 0.9.
SPREADING_KNN: dict[str, Any] = {
    "pixels": {"n_neighbors": 20, "alpha": 0.95},
    "gradients": {"n_neighbors": 20, "alpha": 0.8},
}
SPREADING_RBF: dict[str, Any] = {
    "pixels": {"gamma": 20.0, "alpha": 0.95},
    "gradients": {"gamma": 20.0, "alpha": 0.95},
}
SELF_TRAINING_THRESHOLD = 0.6


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{dataset}, {shots} a class, draw {seed}": {
            "dataset": dataset,
            "shots": shots,
            "seed": seed,
        }
        for seed in SEEDS
        for dataset in DATASETS
        for shots in SHOTS
    }


def run(dataset: str, shots: int, seed: int) -> dict[str, Any]:
    """Accuracies of the labels of one pool, and how far ``label`` said they could be believed."""
    few, pool, truth = drawn(dataset, shots, seed)
    made = ad.apps.label(pool, few, progress=False)
    network = ad.apps.label(pool, few, embedding=body(ELSEWHERE[dataset]), progress=False)
    pixels = ad.apps.label(pool, few, embedding=50, progress=False)
    codes = {"label": made, "label, pixels": pixels, "label, a network's features": network}
    found = {name: one.dataset.y.numpy() for name, one in codes.items()}
    before = joined([few, pool])
    found["fill_labels, pixels"] = ad.fill_labels(before, embedding=50).y.numpy()[len(few) :]
    points = {"pixels": scaled(before, 50), "gradients": scaled(before, "gradients")}
    for where, rows in points.items():
        for name, answers in baselines(rows, few.y.numpy(), where).items():
            found[f"{name}, {where}"] = answers
    right = made.dataset.y.numpy() == truth
    return {
        "accuracies": {name: float((codes == truth).mean()) for name, codes in found.items()},
        "expected": made.accuracy,
        "interval": made.calibration.interval,
        "mean confidence": float(made.confidence.mean()),
        "calibration error": calibration_error(made.confidence, right),
        "sure": {
            "share": float((made.confidence >= 0.9).mean()),
            "accuracy": float(right[made.confidence >= 0.9].mean()) if sure_any(made) else None,
        },
        "way": str(made.method),
        "test": on_test(dataset, seed, few, made, truth),
    }


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Σ n |accuracy − confidence| / Σ n over ten bins of equally many samples."""
    bins = np.array_split(np.argsort(confidence, kind="stable"), 10)
    gaps = [len(rows) * abs(right[rows].mean() - confidence[rows].mean()) for rows in bins]
    return float(sum(gaps) / len(confidence))


def sure_any(made: LabeledPool) -> bool:
    return bool((made.confidence >= 0.9).any())


def drawn(
    dataset: str, shots: int, seed: int
) -> tuple[ad.LabeledDataset, ad.LabeledDataset, np.ndarray]:
    """Shots, a pool without labels, and its labels, from one part of the training images."""
    data = images(dataset, "train")
    border, generator = int(FINAL_PART * len(data)), np.random.default_rng(seed)
    part = np.arange(border) if seed >= 1000 else np.arange(border, len(data))
    order = generator.permutation(part)
    y = data.y.numpy()
    chosen = np.concatenate([order[y[order] == code][:shots] for code in range(len(data.classes))])
    rest = order[~np.isin(order, chosen)][:POOL]
    return data.subset(chosen), data.subset(rest).replace(y=torch.full((len(rest),), -1)), y[rest]


@cache
def images(dataset: str, split: str) -> ad.LabeledDataset:
    return ad.datasets.load(f"{dataset}?split={split}")


def scaled(data: ad.LabeledDataset, embedding: Any) -> np.ndarray:
    """Points of mean squared norm 1, so that one gamma and one penalty suit all datasets."""
    points = points_of(data, embedding, 0)
    points = points - points.mean(axis=0)
    return points / np.sqrt(np.square(points).sum(axis=1).mean())


def baselines(points: np.ndarray, shots: np.ndarray, where: str) -> dict[str, np.ndarray]:
    """What others say about all rows but the first, which are the shots."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

    m = len(shots)
    partly = np.concatenate([shots, np.full(len(points) - m, -1)])
    nearest = KNeighborsClassifier(1).fit(points[:m], shots)
    alone = regression().fit(points[:m], shots)
    taught = SelfTrainingClassifier(regression(), threshold=SELF_TRAINING_THRESHOLD)
    knn = LabelSpreading(kernel="knn", max_iter=1000, **SPREADING_KNN[where])
    rbf = LabelSpreading(kernel="rbf", max_iter=1000, **SPREADING_RBF[where])
    return {
        "nearest shot": nearest.predict(points[m:]),
        "logistic regression": alone.predict(points[m:]),
        "label spreading (knn)": knn.fit(points, partly).transduction_[m:],
        "label spreading (rbf)": rbf.fit(points, partly).transduction_[m:],
        "self-training": taught.fit(points, partly).predict(points[m:]),
    }


def regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=10.0, max_iter=300)


def on_test(
    dataset: str, seed: int, few: ad.LabeledDataset, made: LabeledPool, truth: np.ndarray
) -> dict[str, float]:
    """Accuracy on fresh images of a logistic regression in gradients, trained on labels that were
    given, on the shots alone, on the truth.
    """
    held = images(dataset, "train" if seed < 1000 else "test")
    if seed < 1000:  # rows that no pool of the validation part can hold
        held = held.subset(slice(0, int(FINAL_PART * len(held))))
    held = held.subset(np.random.default_rng(seed).permutation(len(held))[:TEST])
    parts = [few.x, made.dataset.x, held.x]
    joined = made.dataset.replace(
        x=torch.cat(parts),
        y=torch.cat([few.y, made.dataset.y, held.y]),
        weights=torch.ones(sum(map(len, parts)), dtype=torch.float64),
    )
    rows = np.split(scaled(joined, "gradients"), np.cumsum([len(part) for part in parts])[:-1])
    both = np.concatenate(rows[:2])
    labels = {
        "shots": (rows[0], few.y.numpy()),
        "label": (both, np.concatenate([few.y, made.dataset.y])),
        "truth": (both, np.concatenate([few.y, truth])),
    }
    answers = held.y.numpy()
    return {
        name: float((regression().fit(*of).predict(rows[2]) == answers).mean())
        for name, of in labels.items()
    }


class Resized(nn.Module):
    """The first layers of a network of 28 × 28 images, for square images of any size."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, samples: Tensor) -> Tensor:
        planes = nn.functional.interpolate(
            samples[:, None], size=(28, 28), mode="bilinear", align_corners=False
        )
        return self.layers(planes[:, 0])


@cache
def body(dataset: str) -> nn.Module:
    """The 120 features of a LeNet-5 that was trained on another dataset."""
    model = train(images(dataset, "train"), epochs=EPOCHS)
    return Resized(nn.Sequential(*list(model.children())[:9]))

"""Bad samples put into good data: ``ad.audit`` beside what people use today.

A cell is one draw of one kind of damage at one share of the samples of one dataset. ``accuracies`` are
areas under the ROC curve of the column that is for this kind of damage, ``precision`` the share of bad
samples among as many as are bad, the worst first. Columns were named, and k and the constants of the
library chosen, on other datasets (USPS, EMNIST letters, digits, iris, a mixture of Gaussians), but for
one: that the variance within classes is taken over all samples was also decided by how many clean
MNIST images of 28 × 28 pixels are called odd. C was not tuned.
Every way is given the same points: pixels of 14 × 14 images, standardized columns of tables. "reference"
says that a way was given clean samples beside; the others have the damaged data alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

import advect as ad

NAME = "audit"
RECOMMENDED = "audit"  # the column named in advance
BASELINE = "k-NN"
COLUMNS = (
    *("audit", "k-NN", "logistic regression", "isolation forest"),
    *("audit, reference", "k-NN, reference", "LAVA, reference"),
)
IMAGES, TABLES = ("mnist", "fashion_mnist", "kmnist"), ("wine", "breast_cancer")
KINDS = ("flipped labels", "flipped by class", "noise", "other data", "duplicates")
SHARES = (1, 5, 15)  # per cent
SEEDS = (1000, 1001, 1002, 1003, 1004)
SAMPLES, REFERENCE = 300, 150  # at most; a third of small tables is reference
SIDE = 14  # pixels
OTHER = {"mnist": "kmnist", "fashion_mnist": "mnist", "kmnist": "fashion_mnist"}
IMAGE_NOISE, TABLE_NOISE = 0.3, 1.0  # of the range of brightness, of the deviation of a column
JITTER = 0.01  # of a copy, as a share of the same
NEIGHBORS = 10
PENALTY = 0.1  # C of the logistic regression, on points of unit variance
FOLDS = 5
OURS = {
    "flipped labels": "disagreement",
    "flipped by class": "disagreement",
    "noise": "misfit",
    "other data": "suspicion",
    "duplicates": "twin_distance",
}
RULES = {"noise": "odd", "other data": "suspects", "duplicates": "copies"}  # else: wrong


def cells() -> dict[str, dict[str, Any]]:
    found = {}
    for seed in SEEDS:
        for dataset in IMAGES + TABLES:
            for kind in KINDS:
                for share in SHARES:
                    name = f"{dataset}, {kind}, {share} %, draw {seed}"
                    found[name] = {"dataset": dataset, "kind": kind, "share": share, "seed": seed}
            name = f"{dataset}, nothing, 0 %, draw {seed}"
            found[name] = {"dataset": dataset, "kind": "nothing", "share": 0, "seed": seed}
    return found


def run(dataset: str, kind: str, share: int, seed: int) -> dict[str, Any]:
    x, y, clean, bad = damaged(dataset, kind, share, seed)
    data, reference = ad.LabeledDataset(x, y), ad.LabeledDataset(*clean)
    found = {
        "audit": ad.audit(data, progress=False),
        "audit, reference": ad.audit(data, reference, progress=False),
    }
    flagged = {name: kinds_of(one) for name, one in found.items()}
    if kind == "nothing":
        return {"accuracies": {}, "flagged": flagged}
    column = OURS[kind]
    scores = {name: np.nan_to_num(getattr(one, column)) for name, one in found.items()}
    if kind == "duplicates":
        scores = {name: -values for name, values in scores.items()}
    points = alike(np.concatenate([x.reshape(len(x), -1), clean[0].reshape(len(clean[0]), -1)]))
    scores |= baselines(*np.split(points, [len(x)]), y, clean[1], kind)
    ruled = getattr(found["audit"], RULES.get(kind, "wrong"))
    hit = int(bad[ruled].sum())
    return {
        "accuracies": {name: area(bad, values) for name, values in scores.items()},
        "precision": {name: precision(bad, values) for name, values in scores.items()},
        "rule": {
            "flagged": len(ruled),
            "precision": hit / len(ruled) if len(ruled) else None,
            "recall": hit / int(bad.sum()) if kind != "duplicates" else 2 * hit / int(bad.sum()),
        },
        "flagged": flagged,
    }


def kinds_of(found: ad.Audit) -> dict[str, float]:
    kinds = ("wrong", "odd", "copies", "suspects")
    return {name: len(getattr(found, name)) / len(found) for name in kinds}


def area(bad: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(bad, scores))


def precision(bad: np.ndarray, scores: np.ndarray) -> float:
    """Ties count by their share."""
    order = np.lexsort((np.random.default_rng(0).random(len(scores)), -scores))
    return float(bad[order[: bad.sum()]].mean())


# data


@cache
def whole(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    if dataset in TABLES:
        from sklearn import datasets

        return getattr(datasets, f"load_{dataset}")(return_X_y=True)
    data = ad.datasets.load(f"{dataset}?split=train")
    data = data.subset(np.random.default_rng(0).permutation(len(data))[:5000])
    planes = data.samples.float() / float(data.x.max())
    small = torch.nn.functional.interpolate(planes[:, None], size=(SIDE, SIDE), mode="area")
    return small[:, 0].numpy().astype(np.float64), data.y.numpy()


def damaged(
    dataset: str, kind: str, share: int, seed: int
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Samples with damage, their labels, clean samples beside, and which samples are bad."""
    rng = np.random.default_rng([seed, KINDS.index(kind) if kind in KINDS else 9, share])
    x, y = whole(dataset)
    order = rng.permutation(len(x))
    m = min(REFERENCE, len(x) // 3)
    n = min(SAMPLES, len(x) - m)
    clean = x[order[n : n + m]], y[order[n : n + m]]
    x, y, k = x[order[:n]].copy(), y[order[:n]].copy(), int(y.max()) + 1
    count = max(1, round(n * share / 100))
    rows = rng.permutation(n)[:count]
    bad = np.zeros(n, dtype=bool)
    noise = IMAGE_NOISE if dataset in IMAGES else TABLE_NOISE * x.std(axis=0)
    match kind:
        case "flipped labels":  # any other label
            y[rows] = (y[rows] + rng.integers(1, k, size=count)) % k
        case "flipped by class":  # in half of the classes, always to the same other one
            half = rng.permutation(k)[: max(1, k // 2)]
            rows = rng.permutation(np.flatnonzero(np.isin(y, half)))[:count]
            y[rows] = (y[rows] + 1) % k
        case "noise":
            x[rows] += noise * rng.normal(size=x[rows].shape)
            x = x.clip(0, 1) if dataset in IMAGES else x
        case "other data":  # of another dataset; of a table, each value from another row
            if dataset in IMAGES:
                other = whole(OTHER[dataset])[0]
                x[rows] = other[rng.permutation(len(other))[:count]]
            else:
                x[rows] = np.stack([rng.permutation(x[:, j])[:count] for j in range(x.shape[1])], 1)
        case "duplicates":  # of others, with their label; both count as bad
            source = rng.permutation(np.setdiff1d(np.arange(n), rows))[:count]
            x[rows] = x[source] + JITTER * noise * rng.normal(size=x[rows].shape)
            y[rows] = y[source]
            bad[source] = True
        case _:
            rows = rows[:0]
    bad[rows] = True
    return x, y, clean, bad


# ways


def alike(points: np.ndarray) -> np.ndarray:
    """What every way is given: columns of unit variance on average; of tables, each of them."""
    spread = points.std(axis=0)
    if points.shape[1] == SIDE * SIDE:
        spread = np.full_like(spread, np.sqrt(np.square(spread).mean()))
    return (points - points.mean(axis=0)) / spread


def baselines(
    points: np.ndarray, clean: np.ndarray, y: np.ndarray, labels: np.ndarray, kind: str
) -> dict[str, np.ndarray]:
    """Scores of other ways; nearest neighbours by what suits the kind of damage."""
    from sklearn.ensemble import IsolationForest
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict

    model = LogisticRegression(C=PENALTY, max_iter=300)
    shares = cross_val_predict(model, points, y, cv=FOLDS, method="predict_proba")
    place = np.searchsorted(np.unique(y), y)
    forest = IsolationForest(random_state=0).fit(points)
    return {
        "k-NN": neighbours(points, y, points, y, kind, same=True),
        "logistic regression": 1 - shares[np.arange(len(y)), place],
        "isolation forest": -forest.score_samples(points),
        "k-NN, reference": neighbours(points, y, clean, labels, kind, same=False),
        "LAVA, reference": lava(points, y, clean, labels),
    }


def neighbours(
    points: np.ndarray, y: np.ndarray, others: np.ndarray, labels: np.ndarray, kind: str, same: bool
) -> np.ndarray:
    """The share of the nearest with another label, or how far the nearest are."""
    from sklearn.neighbors import NearestNeighbors

    if kind == "duplicates":
        others, same = points, True  # a copy is one of the data
    near = NearestNeighbors(n_neighbors=NEIGHBORS + same).fit(others)
    far, rows = near.kneighbors(points)
    if kind == "duplicates":
        return -far[:, 1]
    if kind == "noise":
        return far[:, -1]
    return (labels[rows[:, int(same) :]] != y[:, None]).mean(axis=1)


def lava(points: np.ndarray, y: np.ndarray, clean: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The dual potential of a sample in the joint transport to clean data, labels by their Gaussian
    laws, which ranks samples as its calibrated gradient does (Just et al., 2023).
    """
    names = range(int(max(y.max(), labels.max())) + 1)
    data = ad.LabeledDataset(points, y, classes=names)
    beside = ad.LabeledDataset(clean, labels, classes=names)
    cost = ad.GroundCost().between(data, beside).matrix()
    return ad.Sinkhorn().solve(cost, data.weights, beside.weights).potentials[0].numpy()

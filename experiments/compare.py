"""Does ``ad.compare`` notice what is wrong with generated data, by the column that should, and nothing
where nothing is wrong?

A cell is one draw of real samples and of as many others from the same source, which are damaged in one
of five ways at one of three strengths, or left as they are (a fresh real sample). Settings of ``compare``
are its defaults but for fewer draws; MNIST is compared in principal components, the table in its
standardized columns. Strengths were chosen on seeds below 100, which take other rows of MNIST's
training images than those from 1000 on: there, blur of 0.4 and 0.6 pixels and 5 and 15 % of wrong labels
were mostly not noticed by their column (single draws), and all pixels in place of components made blurred images come out
below the floor of the Fréchet distance. Beside it, with the same kind of floor: the Fréchet distance of
all classes pooled (FID in these features), and the cross-validated accuracy of a logistic regression that
is to tell synthetic from real samples (a classifier two-sample test)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import advect as ad
from advect.cost import SquaredEuclidean
from advect.questions.compare import Points, class_draws
from advect.questions.compare_result import Draws, judge

NAME = "compare"
EXPECTED = {
    "blur": "frechet",
    "label noise": "confusion",
    "dropped class": "share",
    "mode collapse": "coverage",
    "copies": "memorised",
}
STRENGTHS = {
    "blur": (0.8, 1.2, 1.8),
    "label noise": (0.1, 0.25, 0.5),
    "dropped class": (0.5, 0.8, 1.0),
    "mode collapse": (0.3, 0.6, 0.9),
    "copies": (0.05, 0.15, 0.5),
}
DATASETS = ("mnist", "breast cancer")
SAMPLES = {"mnist": 400, "breast cancer": 280}
SIDE, COMPONENTS = 14, 20  # pixels of MNIST's images; principal components, of other images
REPEATS, MOST = 8, 150  # draws, and samples of one
DRAWS = 5
FINAL_PART = 0.6  # of the training images, the first; strengths were chosen on the others


def cells() -> dict[str, dict[str, Any]]:
    """Draw by draw, so that those that are there are of all kinds."""
    found = {}
    for seed in range(1000, 1000 + DRAWS):
        for dataset in DATASETS:
            cell = {"dataset": dataset, "damage": "none", "strength": 0.0, "seed": seed}
            found[f"{dataset}, fresh, draw {seed}"] = cell
            for damage, strengths in STRENGTHS.items():
                for strength in strengths:
                    cell = {"dataset": dataset, "damage": damage, "strength": strength}
                    found[f"{dataset}, {damage} {strength}, draw {seed}"] = {**cell, "seed": seed}
    return found


def run(dataset: str, damage: str, strength: float, seed: int) -> dict[str, Any]:
    real, fresh = drawn(dataset, seed)
    rng = np.random.default_rng(seed)
    made = damaged(fresh, real, damage, strength, rng)
    cost = ad.GroundCost(
        feature=ad.Embedding(components()) if dataset == "mnist" else SquaredEuclidean()
    )
    found = ad.compare(
        made, real, cost=cost, repeats=REPEATS, max_samples=MOST, seed=seed, progress=False
    )
    columns = found.columns
    beyond = {name: name in found.beyond for name in columns}
    others = baselines(cost.feature_cost.embed(made), cost.feature_cost.embed(real), seed)
    return {
        "beyond": beyond | {name: entry.beyond for name, entry in others.items()},
        "classes beyond": {name: len(column.beyond) for name, column in columns.items()},
        "values": {name: column.overall.value for name, column in columns.items()}
        | {name: entry.value for name, entry in others.items()},
        "floors": {name: column.overall.floor for name, column in columns.items()}
        | {name: entry.floor for name, entry in others.items()},
        "rows": sum(1 + len(column.classes) for column in columns.values()),
    }


def drawn(dataset: str, seed: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """Real samples, and as many others from the same source."""
    data = source(dataset)
    part = np.arange(len(data))
    if dataset == "mnist":
        border = int(FINAL_PART * len(data))
        part = part[:border] if seed >= 1000 else part[border:]
    n = SAMPLES[dataset]
    order = np.random.default_rng(seed).permutation(part)
    return data.subset(order[:n]), data.subset(order[n : 2 * n])


@cache
def source(dataset: str) -> ad.LabeledDataset:
    if dataset == "mnist":
        images = ad.datasets.load("mnist?split=train")
        small = torch.nn.functional.avg_pool2d(images.samples[:, None], 28 // SIDE)[:, 0]
        return ad.LabeledDataset(small, images.labels)
    from sklearn.datasets import load_breast_cancer

    found: Any = load_breast_cancer()
    x = StandardScaler().fit_transform(found.data)
    return ad.LabeledDataset(x, [str(found.target_names[code]) for code in found.target])


@cache
def components() -> Callable[[torch.Tensor], torch.Tensor]:
    """Principal components of images that no draw has."""
    images = source("mnist")
    x = images.x[int(FINAL_PART * len(images)) :]
    x = x[:: max(1, len(x) // 2000)].double()
    mean = x.mean(dim=0)
    axes = torch.linalg.svd(x - mean, full_matrices=False)[2][:COMPONENTS]
    return lambda samples: ((samples.flatten(1).double() - mean) @ axes.T).to(samples)


def damaged(
    fresh: ad.LabeledDataset,
    real: ad.LabeledDataset,
    damage: str,
    strength: float,
    rng: np.random.Generator,
) -> ad.LabeledDataset:
    """The fresh samples with something wrong."""
    n, y, k = len(fresh), fresh.y.numpy().copy(), len(fresh.classes)
    match damage:
        case "blur":
            return fresh.replace(x=blurred(fresh, strength))
        case "label noise":
            rows = rng.permutation(n)[: round(strength * n)]
            y[rows] = (y[rows] + rng.integers(1, k, len(rows))) % k
            return fresh.replace(y=torch.from_numpy(y))
        case "dropped class":
            mine = rng.permutation(np.flatnonzero(y == rng.integers(k)))
            gone = mine[: round(strength * len(mine))]
            return fresh.subset(np.setdiff1d(np.arange(n), gone))
        case "mode collapse":
            return fresh.replace(x=collapsed(fresh, strength, rng))
        case "copies":
            rows, of = rng.permutation(n)[: round(strength * n)], rng.permutation(len(real))
            x, y = fresh.x.clone(), torch.from_numpy(y)
            x[rows], y[rows] = real.x[of[: len(rows)]], real.y[of[: len(rows)]]
            return fresh.replace(x=x, y=y)
    return fresh


def blurred(data: ad.LabeledDataset, strength: float) -> torch.Tensor:
    """Images by a Gaussian of so many pixels; samples of a table drawn halfway toward the mean of their
    class, times the strength.
    """
    if len(data.sample_shape) == 2:
        images = ndimage.gaussian_filter(data.samples.numpy(), (0, strength, strength))
        return torch.from_numpy(images).reshape(len(data), -1).to(data.x)
    means = data.laws().means[data.y].to(data.x)
    return data.x + strength / 2 * (means - data.x)


def collapsed(data: ad.LabeledDataset, strength: float, rng: np.random.Generator) -> torch.Tensor:
    """A share of each class is replaced by near-copies of the samples around one of it."""
    x = data.x.clone()
    spread = 0.05 * x.std()
    for code in data.y.unique().tolist():
        mine = rng.permutation(np.flatnonzero(data.y.numpy() == code))
        around = (data.x[mine] - data.x[mine[0]]).square().sum(1).argsort()
        modes = mine[around[: max(1, len(mine) // 20)].numpy()]
        rows = mine[: round(strength * len(mine))]
        noise = torch.from_numpy(rng.normal(size=(len(rows), data.dim))).to(x)
        x[rows] = data.x[rng.choice(modes, len(rows))] + spread * noise
    return x


def baselines(made: torch.Tensor, real: torch.Tensor, seed: int) -> dict[str, Any]:
    """What looks at all classes at once: with the same draws of halves, splits and bounds."""
    rng = np.random.default_rng(seed)
    clouds = [
        Points(points.double().numpy(), np.ones(len(points)) / len(points))
        for points in (made, real)
    ]
    size = min(len(made), len(real)) // 2
    values, floors = class_draws(*clouds, size, REPEATS, rng)
    pooled = Draws(values[:, :1], floors[:, :1])
    told = np.full((2, REPEATS, 1), np.nan)
    for b in range(REPEATS):
        s, r = rng.permutation(len(made))[:size], rng.permutation(len(real))
        told[0, b] = told_apart(clouds[0].values[s], clouds[1].values[r[:size]])
        told[1, b] = told_apart(clouds[1].values[r[:size]], clouds[1].values[r[size : 2 * size]])
    sizes = np.array([2 * size])
    return {
        "FID, pooled": judge(pooled, ["high"], 0.05)[0],
        "classifier": judge(Draws(*told, sizes), ["high"], 0.05)[0],
    }


def told_apart(one: np.ndarray, other: np.ndarray) -> float:
    """How often a logistic regression says from which of two samples a held-out one is."""
    x, y = np.concatenate([one, other]), np.repeat([0, 1], [len(one), len(other)])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=50))
    return float(cross_val_score(model, x, y, cv=3).mean())

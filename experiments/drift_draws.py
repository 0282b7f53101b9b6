"""Pairs of a reference and a window for ``drift_study`` and ``drift``: two draws of the same law, one
of which is then changed.

Images are at 14 × 14 pixels, as 20 principal components whose axes come from rows that are never
drawn; the table is the breast cancer set of scikit-learn, standardized. Draws with seeds below 1000
come from other rows than those from 1000 on, as far as the table has enough of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

import advect as ad

COMPONENTS = 20
AXES = 1000  # rows that principal axes are taken from
SIDE = 14


@cache
def images(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Training images at 14 × 14, and their labels."""
    data = ad.datasets.load(f"{dataset}?split=train&n=10000&seed=0")
    planes = data.samples.float()[:, None]
    small = torch.nn.functional.interpolate(planes, size=(SIDE, SIDE), mode="area")
    return small.reshape(len(data), -1).double().numpy(), data.y.numpy()


@cache
def axes(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and principal axes, of the first rows."""
    rows = images(dataset)[0][:AXES]
    return rows.mean(axis=0), np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][
        :COMPONENTS
    ]


@cache
def table() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_breast_cancer

    bunch: Any = load_breast_cancer()
    x = bunch.data
    return (x - x.mean(axis=0)) / x.std(axis=0), bunch.target


def pool(dataset: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that a draw may take: raw features and labels."""
    if dataset == "table":
        return table()
    x, y = images(dataset)
    border = AXES + int(0.6 * (len(x) - AXES))
    part = slice(border, None) if seed < 1000 else slice(AXES, border)
    return x[part], y[part]


def features(dataset: str, x: np.ndarray) -> np.ndarray:
    if dataset == "table":
        return x
    mean, along = axes(dataset)
    return (x - mean) @ along.T


def drawn(
    dataset: str, n: int, shift: str, strength: float, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(x, y) of the reference and of the window, n samples each, labels from 0."""
    rng = np.random.default_rng([seed, n])
    raw, labels = pool(dataset, seed)
    k = int(labels.max()) + 1
    a, b = rng.permutation(k)[:2]
    order = rng.permutation(len(labels))
    if shift == "new class":  # that share of the window; none of the reference
        had = order[labels[order] != a]
        first, rest = had[:n], had[n:]
        new = order[labels[order] == a][: round(strength * n)]
        second = np.concatenate([rest[: n - len(new)], new])
    elif shift == "lost class":  # that share of its samples is missing
        first, rest = order[:n], order[n:]
        gone = (labels[rest] == a) & (rng.random(len(rest)) < strength)
        second = rest[~gone][:n]
    elif shift == "shares":  # two classes by turns: one is as much rarer as the other more frequent
        first, rest = order[:n], order[n:]
        keep = np.where(
            labels[rest] == a, 1 - strength, np.where(labels[rest] == b, 1.0, 1 - strength / 2)
        )
        second = rest[rng.random(len(rest)) < keep][:n]
    else:
        first, second = order[:n], order[n : 2 * n]
    x, y = raw[second].copy(), labels[second].copy()
    if shift == "rotation":
        x = rotated(x, strength)
    elif shift == "noise":
        x = x + strength * x.std(axis=0).mean() * rng.standard_normal(x.shape)
    elif shift == "random labels":
        some = rng.random(n) < strength
        y[some] = rng.integers(0, k, some.sum())
    elif shift == "swapped pair":
        ours = np.flatnonzero(np.isin(y, [a, b]) & (rng.random(n) < strength))
        y[ours] = np.where(y[ours] == a, b, a)
    x, before = features(dataset, x), features(dataset, raw[first])
    if shift == "class mean":  # in deviations of the class, along one direction at random
        way = rng.standard_normal(x.shape[1])
        mine = before[labels[first] == a]
        spread = np.sqrt(np.square(mine - mine.mean(axis=0)).mean())
        x = np.where((y == a)[:, None], x + strength * spread * way, x)
    return (before, labels[first]), (x, y)


def rotated(x: np.ndarray, degrees: float) -> np.ndarray:
    from scipy.ndimage import rotate

    planes = x.reshape(-1, SIDE, SIDE)
    return rotate(planes, degrees, axes=(1, 2), reshape=False, order=1).reshape(len(x), -1)


def dataset_of(part: tuple[np.ndarray, np.ndarray], **options: Any) -> ad.LabeledDataset:
    return ad.LabeledDataset(part[0], part[1].tolist(), **options)

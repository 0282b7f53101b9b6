"""Which statistic sees which drift: the study that ``ad.drift`` was made after.

A cell is many pairs of a reference and a window under one change; each statistic has its p-value
from permutations of the sides. ``accuracies`` hold the share of pairs with p ≤ 0.05: power, or under
"none" the size of the test. These draws are not those of ``drift``."""

from __future__ import annotations

from typing import Any

import numpy as np
from drift_draws import drawn

from advect.questions.permutations import (
    centres,
    contrasts,
    distances,
    gaussian,
    holm,
    label_disagreement,
    label_distance,
    label_sums,
    largest,
    p_value,
    quadratic,
    strata,
)

NAME = "drift_study"
RECOMMENDED = "joint, groups of 10, aggregated"
BASELINE = "joint, MMD 1"
DATASETS = ("mnist",)
SHIFTS = {
    "none": (0.0,),
    "class mean": (0.6,),
    "random labels": (0.3,),
    "swapped pair": (0.5,),
    "shares": (0.7,),
    "rotation": (12.0,),
    "noise": (0.6,),
    "new class": (0.06,),
    "lost class": (0.7,),
}
SIZES = (200,)
RUNS = 60
PERMUTATIONS = 199
LEVEL = 0.05
SEED = 100
DIRECTIONS = 30
SLICED_PERMUTATIONS = 99
LABEL_WEIGHT = 4.0  # of class means in the sliced distance


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{dataset}, n {n}, {shift}, draw {SEED}": {
            "dataset": dataset,
            "n": n,
            "shift": shift,
            "strength": strength,
            "seed": SEED,
        }
        for dataset in DATASETS
        for n in SIZES
        for shift, strengths in SHIFTS.items()
        for strength in strengths
    }


def run(dataset: str, n: int, shift: str, strength: float, seed: int) -> dict[str, Any]:
    """The share of pairs that each statistic finds to differ."""
    found: dict[str, list[bool]] = {}
    for each in range(RUNS):
        reference, window = drawn(dataset, n, shift, strength, seed + each)
        rng = np.random.default_rng(seed + each)
        for name, p in p_values(reference, window, rng).items():
            found.setdefault(name, []).append(p <= LEVEL)
    return {"accuracies": {name: float(np.mean(seen)) for name, seen in found.items()}}


def p_values(reference: Any, window: Any, rng: np.random.Generator) -> dict[str, float]:
    x = np.concatenate([reference[0], window[0]])
    y = np.concatenate([reference[1], window[1]])
    side = np.arange(len(x)) >= len(reference[0])
    k = int(y.max()) + 1
    u = contrasts(side, PERMUTATIONS, rng)
    apart, same = distances(x), (y[:, None] == y[None, :]).astype(float)
    kernels = {f"MMD {width:g}": gaussian(apart, width) for width in (1.0, 0.5, 0.25)}
    kernels["energy"] = -apart
    found: dict[str, np.ndarray] = {}
    for name, kernel in kernels.items():
        found[f"features, {name}"] = quadratic(kernel, u)
    for name in ("MMD 1", "MMD 0.5", "MMD 0.25"):
        found[f"joint, {name}"] = quadratic(kernels[name] * same, u)
    for weight in (0.5, 2.0, 8.0):
        found[f"joint, energy, weight {weight:g}"] = quadratic(
            -np.sqrt(np.square(apart) + weight * (1 - same)), u
        )
    found["features, aggregated"] = largest(
        [found["features, energy"], found["features, MMD 0.5"], found["features, MMD 0.25"]]
    )
    found["joint, aggregated"] = largest(
        [found[f"joint, MMD {width:g}"] for width in (1, 0.5, 0.25)]
    )
    for law in ("pooled", "own"):
        few = u[:, : 1 + SLICED_PERMUTATIONS]
        found[f"joint, sliced, {law} means"] = sliced(x, y, few, LABEL_WEIGHT, law == "own", rng)
    found["class means"] = class_means(x, y, u, k)
    found["nearest neighbours disagree"] = neighbours(apart, y, u)
    p = {name: p_value(one) for name, one in found.items()}
    for size in (10, 20, 40):
        groups = strata(x, size, 0)
        within = contrasts(side, PERMUTATIONS, rng, groups)
        apart_groups = distances(centres(x, groups))
        ways = {"alone": np.eye(len(apart_groups))}
        ways |= {f"MMD {width:g}": gaussian(apart_groups, width) for width in (0.5, 0.25)}
        inside, across = (label_sums(each, y, groups, k) for each in (within, u))
        for name, kernel in ways.items():
            p[f"labels, groups of {size}, {name}"] = p_value(label_distance(*inside, kernel))
        which = np.stack(np.triu_indices(k, 1), axis=1)
        apart_labels = label_disagreement(apart, y, groups, k, which)
        for name, each, counted in (("labels", within, inside), ("joint", u, across)):
            more = np.abs(apart_labels.T @ each)
            parts = [label_distance(*counted, ways["MMD 0.5"]), more[0], largest([*more[1:]])]
            if name == "joint":
                parts += [found["joint, MMD 0.5"], found["joint, MMD 0.25"]]
            else:
                p[f"labels, groups of {size}, disagreement"] = p_value(parts[1])
                p[f"labels, groups of {size}, of a pair"] = p_value(parts[2])
            p[f"{name}, groups of {size}, aggregated"] = p_value(largest(parts))
    for name in ("energy", "MMD 0.5"):
        p[f"each class, {name}"] = each_class(kernels[name], side, y, k, rng)
    counts = np.stack([np.bincount(y[side], minlength=k), np.bincount(y[~side], minlength=k)])
    indicator = np.eye(k)[y] / np.sqrt(counts.sum(axis=0).clip(1))
    p["shares"] = p_value(np.square(indicator.T @ u).sum(axis=0))
    return p


def each_class(
    kernel: np.ndarray, side: np.ndarray, y: np.ndarray, k: int, rng: np.random.Generator
) -> float:
    """Holm's over the classes that both sides have."""
    found = []
    for code in range(k):
        rows = np.flatnonzero(y == code)
        if 0 < side[rows].sum() < len(rows):
            u = contrasts(side[rows], PERMUTATIONS, rng)
            found.append(p_value(quadratic(kernel[np.ix_(rows, rows)], u)))
    return float(np.nanmin(holm(found)))


def class_means(x: np.ndarray, y: np.ndarray, u: np.ndarray, k: int) -> np.ndarray:
    """Σ_c |Σ_i u_i x_i [y_i = c]|²: signed means, class by class."""
    x = x - x.mean(axis=0)
    each = [np.square(x[y == code].T @ u[y == code]).sum(axis=0) for code in range(k)]
    return np.sum(each, axis=0)


def neighbours(apart: np.ndarray, y: np.ndarray, u: np.ndarray, k: int = 5) -> np.ndarray:
    """Label disagreement across sides minus within, over the graph of nearest neighbours."""
    order = np.argsort(apart + np.diag(np.full(len(y), np.inf)), axis=1)[:, :k]
    graph = np.zeros_like(apart)
    np.put_along_axis(graph, order, 1.0, axis=1)
    differ = (graph + graph.T) * (1 - (y[:, None] == y[None, :]).astype(float))
    return -quadratic(differ, u)


def sliced(
    x: np.ndarray, y: np.ndarray, u: np.ndarray, weight: float, own: bool, rng: np.random.Generator
) -> np.ndarray:
    """The squared sliced distance of (x, √weight · mean of the class), the means of both sides or of
    the sample's own.
    """
    k, d = int(y.max()) + 1, x.shape[1]
    ways = rng.standard_normal((2 * d, DIRECTIONS))
    ways /= np.linalg.norm(ways, axis=0)
    indicator = np.eye(k)[y]
    centre = (indicator.T @ x) / indicator.sum(axis=0).clip(1)[:, None]
    found = np.empty(u.shape[1])
    for column in range(u.shape[1]):
        sides = []
        for mine in (u[:, column] > 0, u[:, column] < 0):
            mean = centre
            if own:
                share = indicator[mine].sum(axis=0)
                mean = (indicator[mine].T @ x[mine]) / share.clip(1)[:, None]
            rows = np.concatenate([x[mine], weight**0.5 * mean[y[mine]]], axis=1) @ ways
            sides.append(np.sort(rows, axis=0))
        found[column] = np.square(sides[0] - sides[1]).mean()
    return found

"""What ``ad.drift`` sees and what it does not, beside MMD and classifier two-sample tests.

A cell is many pairs of a reference and a window, n samples each, under one change of one strength;
``accuracies`` hold the share of pairs in which each test says drift at level 0.05. Under "none" that
is the size of the test. Settings of the library were chosen by ``drift_study``, on other rows.

MMD has a Gaussian kernel with the median distance as bandwidth; with labels, one-hot columns are
appended to features of median distance 1. A classifier two-sample test trains a logistic regression
on half of both sides to tell them apart, and permutes sides of the other half under its accuracy; with
labels it gets one-hot columns and their products with the features, which a linear model needs to see
labels that move. Neither says which class changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from drift_draws import dataset_of, drawn

import advect as ad
from advect.questions.permutations import contrasts, distances, gaussian, p_value, quadratic

NAME = "drift"
RECOMMENDED = "ad.drift"
BASELINE = "MMD, features and labels"
# strengths: the middle one at all sizes, the others at n = 200
SHIFTS = {
    "class mean": (0.3, 0.6, 0.9),  # deviations of one class along each of 20 components
    "random labels": (0.1, 0.2, 0.3),  # share of labels drawn anew
    "swapped pair": (0.25, 0.5, 1.0),  # share of the samples of two classes
    "shares": (0.4, 0.7, 0.9),  # two classes: one so much rarer, the other more frequent
    "rotation": (6.0, 12.0, 18.0),  # degrees
    "noise": (1.5, 3.0, 4.5),  # pixel noise, in mean deviations of a pixel
    "new class": (0.02, 0.05, 0.1),  # share of the window
    "lost class": (0.5, 0.75, 1.0),  # share of a class that is missing
}
TABLE = {"class mean": 0.4, "random labels": 0.2, "swapped pair": 0.2, "shares": 0.3, "noise": 0.5}
SIZES = (100, 200, 400)
NULL_RUNS, NULL_CELLS = 100, 5
RUNS = {100: 80, 200: 60, 400: 40}
PERMUTATIONS = 199
LEVEL = 0.05
SEEDS = (1000,)


def cells() -> dict[str, dict[str, Any]]:
    found = {}

    def add(dataset: str, n: int, shift: str, strength: float, runs: int, seed: int) -> None:
        found[f"{dataset}, n {n}, {shift} {strength:g}, draw {seed}"] = {
            "dataset": dataset,
            "n": n,
            "shift": shift,
            "strength": strength,
            "runs": runs,
            "seed": seed,
        }

    for k in range(NULL_CELLS):
        add("mnist", 200, "none", 0.0, NULL_RUNS, SEEDS[0] * (k + 1))
    add("table", 100, "none", 0.0, NULL_RUNS, SEEDS[0])
    for shift, strengths in SHIFTS.items():
        for strength in strengths:
            for n in SIZES if strength == strengths[1] else (200,):
                add("mnist", n, shift, strength, RUNS[n], SEEDS[0])
    for shift, strength in TABLE.items():
        add("table", 100, shift, strength, RUNS[100], SEEDS[0])
    return found


def run(dataset: str, n: int, shift: str, strength: float, runs: int, seed: int) -> dict[str, Any]:
    """Rates of rejection; those of ``ad.drift`` at the level over its tests, and of each alone."""
    seen: dict[str, list[bool]] = {}
    for each in range(runs):
        reference, window = drawn(dataset, n, shift, strength, seed + each)
        found = ad.drift(
            dataset_of(reference),
            dataset_of(window),
            level=LEVEL,
            embedding=None,
            n_permutations=PERMUTATIONS,
            seed=seed + each,
            progress=False,
        )
        answers = {"ad.drift": found.drifted}
        answers |= {test.name: test.p_value <= LEVEL for test in found.tests}
        answers["named a class"] = bool(found.changed_classes or found.changed_shares)
        rng = np.random.default_rng([seed + each, 7])
        answers |= baselines(reference, window, rng)
        for name, answer in answers.items():
            seen.setdefault(name, []).append(bool(answer))
    return {"accuracies": {name: float(np.mean(each)) for name, each in seen.items()}, "n": runs}


def baselines(reference: Any, window: Any, rng: np.random.Generator) -> dict[str, bool]:
    x = np.concatenate([reference[0], window[0]])
    y = np.concatenate([reference[1], window[1]])
    side = np.arange(len(x)) >= len(reference[0])
    scale = np.median(np.linalg.norm(x - x[rng.permutation(len(x))], axis=1))
    labels = np.eye(int(y.max()) + 1)[y]
    sets = {"features": x / scale, "features and labels": np.concatenate([x / scale, labels], 1)}
    found = {}
    for name, rows in sets.items():
        u = contrasts(side, PERMUTATIONS, rng)
        found[f"MMD, {name}"] = p_value(quadratic(gaussian(distances(rows), 1.0), u)) <= LEVEL
    products = (labels[:, :, None] * sets["features"][:, None, :]).reshape(len(x), -1)
    sets["features and labels"] = np.concatenate([sets["features and labels"], products], 1)
    for name, rows in sets.items():
        found[f"classifier, {name}"] = classifier(rows, side, rng) <= LEVEL
    return found


def classifier(rows: np.ndarray, side: np.ndarray, rng: np.random.Generator) -> float:
    """p of the held-out accuracy, by permutations of the held-out sides."""
    from sklearn.linear_model import LogisticRegression

    order = rng.permutation(len(side))
    train, held = order[: len(order) // 2], order[len(order) // 2 :]
    if side[train].all() or not side[train].any():
        return 1.0
    model = LogisticRegression(C=1.0, max_iter=200).fit(rows[train], side[train])
    said, truth = model.predict(rows[held]), side[held]
    many = rng.permuted(np.broadcast_to(truth, (PERMUTATIONS, len(truth))), axis=1)
    right = np.concatenate([[(said == truth).sum()], (said[None] == many).sum(axis=1)])
    return p_value(right.astype(float))

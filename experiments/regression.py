"""Few labeled rows of a table, many of another one: is a regressor better when the other table is
carried over first?

A draw has a source table with its targets, a few rows of the target table with theirs, and a test part
of that table. "shifted" tables differ in their features; "monotone" ones also have another target, an
increasing function of what the source's measures, which nobody knows. Regressors are ridge regression
and a random forest, in features standardized by the source. Ways to get training data: the source as
it is ("raw"), the few rows alone, both pooled, and the source after a flow to the few rows, pooled
with them: features under the values of targets ("x by values"), or features and targets ("x and y").

What is stored is R² on the test part. The epsilon of each way, and which of the flows is recommended,
were chosen on the draws of CHOICE, by the mean over tables, regressors and numbers of rows; the draws
of SEEDS are reported."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

import advect as ad

NAME = "regression"
RECOMMENDED = "x and y + few"  # chosen on the draws of CHOICE
BASELINE = "raw + few"
COLUMNS = (
    *("raw", "few", "raw + few"),
    *("x by values + few", "x and y + few"),
)
FEW, SOURCES, TESTS = (10, 30), 200, 200
TABLES = ("friedman, shifted", "friedman, monotone", "diabetes, shifted", "diabetes, monotone",
          "wine, shifted", "wine, monotone")  # fmt: skip
REGRESSORS = ("ridge", "forest")
SEEDS = tuple(range(5))
CHOICE = (100, 101)
EPSILONS = (0.01, 0.1, 0.5)  # shares of the mean cost that were tried
CHOSEN = {"x by values": 0.5, "x and y": 0.5}
STEPS, STEP_SIZE = 20, 0.2


def cells() -> dict[str, dict[str, Any]]:
    found = {
        f"{table}, {regressor}, {few} rows, draw {seed}": {
            "table": table,
            "regressor": regressor,
            "few": few,
            "seed": seed,
        }
        for seed in SEEDS
        for few in FEW
        for table in TABLES
        for regressor in REGRESSORS
    }
    return found | {
        f"choice among {few}, draw {seed}": {"few": few, "seed": seed}
        for seed in CHOICE
        for few in FEW
    }


def run(seed: int, few: int, table: str = "", regressor: str = "") -> dict[str, Any]:
    if not table:
        return choice(few, seed)
    source, some, test = drawn(table, few, seed)
    scores = {
        "raw": score(regressor, [source], test, seed),
        "few": score(regressor, [some], test, seed),
        "raw + few": score(regressor, [source, some], test, seed),
    }
    for way, epsilon in CHOSEN.items():
        moved = carried(way, source, some, epsilon)
        scores[f"{way} + few"] = score(regressor, [moved, some], test, seed)
    return {"accuracies": scores}


def choice(few: int, seed: int) -> dict[str, Any]:
    """R² of every way under every epsilon, the mean over tables and regressors."""
    found = {}
    for way in CHOSEN:
        for epsilon in EPSILONS:
            scores = []
            for table in TABLES:
                source, some, test = drawn(table, few, seed)
                moved = carried(way, source, some, epsilon)
                scores += [score(name, [moved, some], test, seed) for name in REGRESSORS]
            found[f"{way}, epsilon {epsilon:g}"] = float(np.mean(scores))
    return {"R²": found}


def carried(
    way: str, source: ad.LabeledDataset, few: ad.LabeledDataset, epsilon: float
) -> ad.LabeledDataset:
    """The source after a flow to the few."""
    solver = ad.Sinkhorn(ad.Relative(epsilon), tol=1e-3)
    energy = ad.OTDD(few, cost=ad.GroundCost(label=ad.TargetValues()), solver=solver)
    moves = ad.JointTargets() if way == "x and y" else ad.FeatureDriven()
    return ad.flow(
        source, energy, dynamics=moves, integrator=ad.Euler(STEP_SIZE), n_steps=STEPS
    ).dataset


def score(name: str, parts: list[ad.LabeledDataset], test: ad.LabeledDataset, seed: int) -> float:
    """R² of a regressor on the test part; parts count by their numbers of rows."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import RidgeCV

    made = (
        RidgeCV(np.logspace(-2, 3, 11))
        if name == "ridge"
        else RandomForestRegressor(100, random_state=seed, n_jobs=1)
    )
    x, y = (np.concatenate(each) for each in zip(*(part.numpy() for part in parts), strict=True))
    made.fit(x, y)
    return float(made.score(*test.numpy()))


@cache
def drawn(
    table: str, few: int, seed: int
) -> tuple[ad.LabeledDataset, ad.LabeledDataset, ad.LabeledDataset]:
    """Source, few and test rows, in features standardized by the source."""
    kind, _, how = table.partition(", ")
    rng = np.random.default_rng(seed)
    (x, y), (there, aim) = {"friedman": friedman, "diabetes": diabetes, "wine": wine}[kind](rng)
    aim = monotone(aim) if how == "monotone" else aim
    own = rng.permutation(len(x))[:SOURCES]
    rows = rng.permutation(len(there))
    middle, spread = x[own].mean(0), x[own].std(0)
    parts = ((x, y, own), (there, aim, rows[:few]), (there, aim, rows[max(FEW) :][:TESTS]))
    source, some, test = (
        ad.LabeledDataset(torch.from_numpy((a[some] - middle) / spread).float(), targets=b[some])
        for a, b, some in parts
    )
    return source, some, test


def monotone(y: np.ndarray) -> np.ndarray:
    """Another scale of the same thing: a square of the shares of the range, in other units."""
    share = (y - y.min()) / np.ptp(y)
    return 1000 * share**2 + 50 * share


def friedman(rng: np.random.Generator) -> Any:
    """Friedman's first function, whose features are measured on axes that are turned and shifted."""
    from sklearn.datasets import make_friedman1

    sides = [
        make_friedman1(600, n_features=6, noise=0.5, random_state=int(rng.integers(1 << 30)))
        for _ in range(2)
    ]
    (x, y), (there, aim) = sides
    turn = np.eye(6) + 0.4 * rng.normal(size=(6, 6)) / np.sqrt(6)
    return (x, y), (there @ turn + rng.normal(size=6) / 3, aim)


def diabetes(rng: np.random.Generator) -> Any:
    """How far the disease goes in a year, from one sex of the patients to the other."""
    from sklearn.datasets import load_diabetes

    bunch: Any = load_diabetes(scaled=False)
    return _sides(bunch.data, bunch.target, at=1, rng=rng)


def wine(rng: np.random.Generator) -> Any:
    """The colour of wines from what else was measured: from one cultivar to the two others."""
    from sklearn.datasets import load_wine

    bunch: Any = load_wine()
    at = bunch.feature_names.index("color_intensity")
    x, y = np.delete(bunch.data, at, axis=1), bunch.data[:, at]
    return _sides(np.column_stack([x, bunch.target > 0]), y, at=x.shape[1], rng=rng)


def _sides(x: np.ndarray, y: np.ndarray, at: int, rng: np.random.Generator) -> Any:
    """Rows with the lower and the higher values of a column, without it; the second with features of another gain
    and offset."""
    low = x[:, at] <= np.median(np.unique(x[:, at]))
    x = np.delete(x, at, axis=1)
    width = x.shape[1]
    gain, offset = 1 + 0.3 * rng.normal(size=width), 0.7 * rng.normal(size=width)
    there = (x[~low] * gain) + offset * x.std(0)
    return (x[low], y[low]), (there, y[~low])

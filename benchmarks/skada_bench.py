"""Adaptation to a shifted target on the Simulated task of skada-bench (Lalou et al., 2024), which needs ``pip install skada``.

    python benchmarks/skada_bench.py [--seeds 0 1 2 3 4] [--jobs 1] [--only adapt …] [--json FILE]

Protocol: four shifts of skada's generator, seeds 0 to 4, five stratified splits of each; 80 % of source and target train,
the accuracy of an SVC with default options on the other 20 % of the target counts. The published rows have the
hyperparameters that the labels of the target choose (supervised scorer), so they are upper bounds. Local rows of skada and POT
have default options. An interval is that of the mean of the five seeds (Student's t), since splits of one seed overlap.

Train Src, Train Tgt      the SVC on the source, on the labeled target
10 labels                 the SVC on ten random labels of the target
advect rows               ad.TransportClassifier, ad.ClassReweighting, and ad.adapt without labels and with the same ten labels

Settings of ad.adapt were chosen on seeds 1000 to 1119. Results are stored after each seed and shift, and stored ones
are not computed again.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import ot
import skada
from common import code, write_json
from scipy.stats import t
from skada.datasets import make_shifted_datasets
from skada.model_selection import StratifiedDomainShuffleSplit
from sklearn.svm import SVC

import advect as ad

SHIFTS = ("covariate", "target", "conditional", "subspace")
SPLITS, FEW = 5, 10
OUT = Path(__file__).parent / "results" / "skada_bench.json"
# Accuracy in percent of the supervised scorer, covariate to subspace; the table of skada-bench has two digits.
PUBLISHED = {
    "Train Src": (88, 85, 66, 19),
    "Train Tgt": (92, 93, 82, 98),
    "LinOT": (89, 81, 81, 19),
    "CORAL": (74, 84, 82, 19),
    "SA": (74, 81, 80, 13),
    "MMD-LS": (88, 85, 81, 73),
    "OTLabelProp": (90, 76, 81, 14),
    "ClassRegOT": (91, 59, 82, 15),
    "MMDTarS": (88, 93, 66, 27),
    "KMM": (89, 87, 67, 19),
    "Dens. RW": (89, 87, 67, 20),
    "TSL": (88, 85, 66, 86),
}
SKADA: dict[str, Callable[[], Any]] = {
    "skada LinOT": lambda: skada.LinearOTMappingAdapter(),
    "skada CORAL": lambda: skada.CORALAdapter(),
    "skada OT": lambda: skada.OTMappingAdapter(),
    "skada KMM": lambda: skada.KMMReweightAdapter(),
    "skada Dens. RW": lambda: skada.DensityReweightAdapter(),
    "skada MMDTarS": lambda: skada.MMDTarSReweightAdapter(gamma=1.0),
}
POT: dict[str, Callable[[], Any]] = {
    "POT LinOT": lambda: ot.da.LinearTransport(),
    "POT Sinkhorn": lambda: ot.da.SinkhornTransport(reg_e=1.0, norm="median"),
    "POT Lpl1": lambda: ot.da.SinkhornLpl1Transport(reg_e=1.0, reg_cl=0.1, norm="median"),
}


class Split:
    """Source, target, and test samples of the target, with ten random labels."""

    def __init__(self, shift: str, seed: int, split: int) -> None:
        size, noise = (300, 0.4) if shift == "subspace" else (100, 0.8)
        X, y, domain = make_shifted_datasets(
            size,
            size,
            shift=shift if shift == "subspace" else f"{shift}_shift",
            noise=0.6 if shift == "covariate" else noise,
            label="binary",
            center_cov_shift=(-0.4, 3),
            random_state=seed,
        )
        cv = StratifiedDomainShuffleSplit(n_splits=SPLITS, test_size=0.2, random_state=0)
        train, test = list(cv.split(X, y, domain))[split]
        source, target = train[domain[train] >= 0], train[domain[train] < 0]
        test = test[domain[test] < 0]
        self.X, self.y, self.X_target, self.all_labels = X[source], y[source], X[target], y[target]
        self.X_test, self.y_test = X[test], y[test]
        self.few = np.random.default_rng([seed, split]).permutation(len(target))[:FEW]
        self.y_target = np.full(len(target), -1)
        self.y_target[self.few] = self.all_labels[self.few]

    def accuracy(self, model: Any) -> float:
        return 100 * float(np.mean(model.predict(self.X_test) == self.y_test))

    def skada(self, adapter: Any) -> float:
        model = skada.make_da_pipeline(adapter, SVC().set_fit_request(sample_weight=True))
        X = np.concatenate([self.X, self.X_target])
        y = np.concatenate([self.y, np.full(len(self.X_target), -1)])
        domain = np.repeat([1, -2], [len(self.X), len(self.X_target)])
        return self.accuracy(model.fit(X, y, sample_domain=domain))

    def pot(self, transport: Any) -> float:
        moved = transport.fit(Xs=self.X, ys=self.y, Xt=self.X_target).transform(Xs=self.X)
        return self.accuracy(SVC().fit(moved, self.y))

    def adapt(self, y_target: np.ndarray | None) -> tuple[float, str]:
        model = ad.TransportClassifier(SVC(), transport="auto")
        model.fit(self.X, self.y, self.X_target, y_target)
        return self.accuracy(model), model.adapted_.method

    def transport(self, model: Any) -> float:
        return self.accuracy(model.fit(self.X, self.y, self.X_target))

    def ten(self) -> float:
        y = self.all_labels[self.few]
        if len(np.unique(y)) < 2:
            return 100 * float(np.mean(self.y_test == y[0]))
        return self.accuracy(SVC().fit(self.X_target[self.few], y))


METHODS: dict[str, Callable[[Split], Any]] = {
    "Train Src": lambda s: s.accuracy(SVC().fit(s.X, s.y)),
    "Train Tgt": lambda s: s.accuracy(SVC().fit(s.X_target, s.all_labels)),
    "10 labels": Split.ten,
    **{name: lambda s, make=make: s.skada(make()) for name, make in SKADA.items()},
    **{name: lambda s, make=make: s.pot(make()) for name, make in POT.items()},
    "advect TransportClassifier": lambda s: s.transport(ad.TransportClassifier(SVC())),
    "advect ClassReweighting": lambda s: s.transport(ad.ClassReweighting(SVC())),
    "advect adapt": lambda s: s.adapt(None),
    "advect adapt, 10 labels": lambda s: s.adapt(s.y_target),
}


def cells(shift: str, seed: int, split: int, methods: list[str]) -> dict[str, Any]:
    """The accuracy of each method on one split, or its error."""
    data, found = Split(shift, seed, split), {}
    for name in methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found[f"{name}/{shift}/{seed}/{split}"] = METHODS[name](data)
            except Exception as error:  # a peer that fails is a row without a number
                found[f"{name}/{shift}/{seed}/{split}"] = f"{type(error).__name__}: {error}"[:200]
    return found


def summary(stored: dict[str, Any], name: str, shift: str, seeds: list[int]) -> list[Any]:
    """Mean, the ends of its interval, and how often each method of ``adapt`` was chosen."""
    every = [[stored.get(f"{name}/{shift}/{seed}/{k}") for k in range(SPLITS)] for seed in seeds]
    chosen: dict[str, int] = {}
    for cell in (cell for row in every for cell in row if isinstance(cell, (list, tuple))):
        chosen[cell[1]] = chosen.get(cell[1], 0) + 1
    numbers = [[c[0] if isinstance(c, (list, tuple)) else c for c in row] for row in every]
    values = np.array([[c if isinstance(c, float) else np.nan for c in row] for row in numbers])
    if len(values) < 2 or np.isnan(values).all(axis=1).any():
        return [None, None, None, chosen]
    if failed := int(np.isnan(values).sum()):
        chosen["failed"] = failed
    means = np.nanmean(values, axis=1)
    half = t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / len(means) ** 0.5
    mean = float(means.mean())
    return [round(mean, 2), round(mean - half, 2), round(mean + half, 2), chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--shifts", nargs="+", default=SHIFTS, choices=SHIFTS)
    parser.add_argument("--only", nargs="+", default=list(METHODS), help="methods, by name")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=OUT)
    options = parser.parse_args()
    stored = json.loads(options.json.read_text())["cells"] if options.json.exists() else {}
    for seed in options.seeds:
        for shift in options.shifts:
            work = [
                (shift, seed, k, missing)
                for k in range(SPLITS)
                if (missing := [m for m in options.only if f"{m}/{shift}/{seed}/{k}" not in stored])
            ]
            for part in joblib.Parallel(n_jobs=options.jobs)(
                joblib.delayed(cells)(*w) for w in work
            ):
                stored |= part
            if work:
                write(options, stored)
    write(options, stored)
    show(stored, options.seeds)


def write(options: argparse.Namespace, stored: dict[str, Any]) -> None:
    rows = {
        name: {shift: summary(stored, name, shift, options.seeds) for shift in SHIFTS}
        for name in METHODS
    }
    facts = {"code": code(), "skada": skada.__version__, "pot": ot.__version__}
    write_json(options.json, {**facts, "published": PUBLISHED, "rows": rows, "cells": stored})


def show(stored: dict[str, Any], seeds: list[int]) -> None:
    print(f"{'':28}" + "".join(f"{shift:>22}" for shift in SHIFTS) + f"{'mean of 3':>12}")
    for name, row in PUBLISHED.items():
        mean = np.mean(row[:3])
        print(f"{name + ' (published)':28}" + "".join(f"{v:>22}" for v in row) + f"{mean:>12.1f}")
    for name in METHODS:
        found = [summary(stored, name, shift, seeds) for shift in SHIFTS]
        texts = ["–" if m is None else f"{m:.1f} ({a:.1f}–{b:.1f})" for m, a, b, _ in found]
        means = [m for m, *_ in found[:3]]
        mean = "–" if None in means else f"{np.mean(means):.1f}"
        print(f"{name:28}" + "".join(f"{text:>22}" for text in texts) + f"{mean:>12}")
        for shift, (*_, chosen) in zip(SHIFTS, found, strict=True):
            if chosen:
                print(f"{'':4}{shift}: {chosen}")


if __name__ == "__main__":
    main()

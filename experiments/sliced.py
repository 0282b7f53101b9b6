"""How far do sliced distances agree with the distance that they stand for?

``pairs``: a draw has twenty pairs of real subsets in one space, gray images of 28 × 28 pixels. Eight pairs
are disjoint halves of the classes of one dataset each; twelve are halves of the classes of two
datasets, all chosen at random. ``splits`` does what the paper of the s-OTDD does: twenty pairs of random
disjoint subsets of one dataset, of equal random sizes. The truth is ``ad.otdd`` as it comes. Each
form, and a few summaries that a sceptic would ask for, is rank-correlated with it over the twenty
pairs; tables take intervals by drawing pairs again (bootstrap).

``errors``: the noise of directions on single pairs: the spread of energies over draws of the lines,
and the standard error that each draw says, with the same number of lines. "velocity" is the same for
the gradient that a flow follows. ``large`` is Fashion-MNIST to MNIST with all training images that are there.

"moments, as published" has 10,000 lines and raw moments of pixels in units of their deviation, as the paper's code.
Lines are the defaults of the library, but for that one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

import advect as ad

NAME = "sliced"
RECOMMENDED = "gaussian, principal"  # named in advance
DATASETS = (
    *("mnist", "usps", "kmnist", "fashion_mnist", "emnist_letters", "cifar10", "stl10"),
    "camelyon",
)
SPLIT = ("mnist", "cifar10")
SAMPLES, SIDE, KEPT, SIZES = 500, 28, 4000, (300, 1000)
LINES, MANY, FLOW_LINES = 500, 10_000, 200
PIXEL = {
    "mean": 0.1307,
    "deviation": 0.3081,
}  # of MNIST, which the paper's code takes for gray images
ERROR_PAIRS = (
    *(("fashion_mnist", "mnist"), ("usps", "mnist"), ("kmnist", "mnist")),
    *(("emnist_letters", "kmnist"), ("cifar10", "stl10"), ("mnist", "mnist")),
)
ERROR_SAMPLES, ERROR_DRAWS = 1000, 12
LARGE = 60_000
SEEDS = tuple(range(3))

Way = Callable[[ad.LabeledDataset, ad.LabeledDataset, int], float]
FORMS: dict[str, dict[str, Any]] = {
    "gaussian, plain": {"control": False},
    "gaussian": {},
    "gaussian, principal": {"directions": "principal"},
    "moments, plain": {"projection": "moments", "control": False},
    "moments": {"projection": "moments"},
    "features alone": {"label_weight": 0},
}


def cells() -> dict[str, dict[str, Any]]:
    pairs = {f"pairs, draw {seed}": {"part": "pairs", "seed": seed} for seed in SEEDS}
    splits = {
        f"splits of {name}, draw {seed}": {"part": "splits", "seed": seed, "name": name}
        for name in SPLIT
        for seed in SEEDS[:1]
    }
    errors = {
        f"errors, {one} and {other}, draw 0": {
            "part": "errors",
            "seed": 0,
            "name": f"{one}/{other}",
        }
        for one, other in ERROR_PAIRS
    }
    return pairs | splits | errors | {"large, draw 0": {"part": "large", "seed": 0}}


def run(part: str, seed: int, name: str = "") -> dict[str, Any]:
    if part == "errors":
        return errors(*name.split("/"), seed)
    if part == "large":
        return large(seed)
    return compared(pairs(seed) if part == "pairs" else splits(name, seed), seed)


def compared(sets: list[tuple[ad.LabeledDataset, ad.LabeledDataset]], seed: int) -> dict[str, Any]:
    """The values of each way on all pairs, beside the exact ones, and processor seconds."""
    ways: dict[str, Way] = {"OTDD": lambda a, b, at: ad.otdd(a, b).value}
    ways |= {name: form(options) for name, options in FORMS.items()}
    ways["moments, as published"] = published
    ways |= {"index": embedded, "difference of means": means}
    found: dict[str, list[float]] = {name: [] for name in ways}
    seconds = dict.fromkeys(ways, 0.0)
    for at, (a, b) in enumerate(sets):
        for name, way in ways.items():
            begun = time.process_time()
            found[name].append(way(a, b, 1000 * seed + at))
            seconds[name] += time.process_time() - begun
    each = {name: spent / len(sets) for name, spent in seconds.items()}
    return {"values": found, "processor seconds of ways": each, "sizes": [len(a) for a, _ in sets]}


def form(options: dict[str, Any]) -> Way:
    def way(a: ad.LabeledDataset, b: ad.LabeledDataset, seed: int) -> float:
        generator = torch.Generator().manual_seed(seed)
        return ad.sliced_otdd(a, b, LINES, generator=generator, **options).value

    return way


def published(a: ad.LabeledDataset, b: ad.LabeledDataset, seed: int) -> float:
    """The s-OTDD by its definition: raw moments, on pixels as the paper's code has them."""
    a, b = (data.replace(x=(data.x - PIXEL["mean"]) / PIXEL["deviation"]) for data in (a, b))
    return ad.sliced_otdd(
        a,
        b,
        MANY,
        projection="moments",
        standardize=False,
        control=False,
        generator=torch.Generator().manual_seed(seed),
    ).value


def embedded(a: ad.LabeledDataset, b: ad.LabeledDataset, seed: int) -> float:
    return ad.embed(a).distance(ad.embed(b))


def means(a: ad.LabeledDataset, b: ad.LabeledDataset, seed: int) -> float:
    return float((a.x.double().mean(dim=0) - b.x.double().mean(dim=0)).norm())


def pairs(seed: int) -> list[tuple[ad.LabeledDataset, ad.LabeledDataset]]:
    rng = np.random.default_rng(seed)
    found = []
    for name in DATASETS:
        k = len(images(name).classes)
        order = rng.permutation(k)
        half = k // 2
        found.append((taken(name, order[:half], rng), taken(name, order[half:], rng)))
    for _ in range(20 - len(DATASETS)):
        two = rng.choice(len(DATASETS), 2, replace=False)
        one, other = (DATASETS[at] for at in two)
        chosen = []
        for name in (one, other):
            k = len(images(name).classes)
            chosen.append(taken(name, rng.permutation(k)[: max(2, k // 2)], rng))
        found.append((chosen[0], chosen[1]))
    return found


def splits(name: str, seed: int) -> list[tuple[ad.LabeledDataset, ad.LabeledDataset]]:
    rng, data, found = np.random.default_rng(seed + 100), images(name), []
    for _ in range(20):
        n = int(rng.integers(*SIZES))
        rows = torch.as_tensor(rng.permutation(len(data)))
        found.append((data.subset(rows[:n]), data.subset(rows[n : 2 * n])))
    return found


def taken(name: str, classes: np.ndarray, rng: np.random.Generator) -> ad.LabeledDataset:
    """Samples of some classes of a dataset."""
    data = images(name)
    rows = np.flatnonzero(np.isin(data.y.numpy(), classes))
    chosen = torch.as_tensor(rng.permutation(rows)[:SAMPLES])
    return data.subset(chosen)


def errors(one: str, other: str, seed: int) -> dict[str, Any]:
    """Spread over draws of the lines, and what is said of it."""
    rng = np.random.default_rng(seed)
    a, b = (
        images(name).subset(torch.as_tensor(rng.permutation(len(images(name)))[:ERROR_SAMPLES]))
        for name in (one, other)
    )
    truth, found = ad.otdd(a, b).energy, {}
    for name, options in FORMS.items():
        begun = time.process_time()
        drawn = [
            ad.sliced_otdd(a, b, LINES, generator=torch.Generator().manual_seed(at), **options)
            for at in range(ERROR_DRAWS)
        ]
        spent = (time.process_time() - begun) / ERROR_DRAWS
        energies = np.array([each.energy for each in drawn])
        found[name] = {
            "energy": float(energies.mean()),
            "spread": float(energies.std(ddof=1)),
            "said": math.sqrt(np.mean([each.standard_error**2 for each in drawn])),
            "processor seconds": spent,
        }
    return {"forms": found, "OTDD": truth, "velocity": velocity(a, b)}


def velocity(a: ad.LabeledDataset, b: ad.LabeledDataset) -> dict[str, float]:
    """The noise of gradients over draws of the lines, relative to their mean."""
    a, b = (data.subset(torch.arange(SAMPLES)) for data in (a, b))
    found = {}
    for name, options in {
        "gaussian, plain": {},
        "gaussian": {"control": True},
    }.items():
        drawn = []
        for at in range(ERROR_DRAWS):
            x = a.x.clone().requires_grad_()
            energy = ad.SlicedOTDD(b, FLOW_LINES, seed=at, **options)(a.replace(x=x))
            drawn.append(torch.autograd.grad(energy, x)[0].double())
        together = torch.stack(drawn)
        noise = together.var(dim=0).sum()
        # of the squared mean, the noise that is left in it is taken off
        mean = together.mean(dim=0).square().sum() - noise / ERROR_DRAWS
        found[name] = float((noise / mean).sqrt()) if float(mean) > 0 else math.nan
    return found


def large(seed: int) -> dict[str, Any]:
    """All training images of two sets."""
    a, b = (ad.datasets.load(f"{name}?max_samples={LARGE}&seed=0") for name in ERROR_PAIRS[0])
    found = {}
    for name in ("gaussian, plain", "gaussian", "gaussian, principal", "moments, plain", "moments"):
        begun = time.process_time()
        generator = torch.Generator().manual_seed(seed)
        each = ad.sliced_otdd(a, b, LINES, generator=generator, **FORMS[name])
        spent = time.process_time() - begun
        found[name] = {"energy": each.energy, "said": each.standard_error}
        found[name]["processor seconds"] = spent
    return {"forms": found, "samples": [len(a), len(b)]}


@cache
def images(name: str) -> ad.LabeledDataset:
    """Up to 4000 training images, gray and of one size."""
    data = ad.datasets.load(f"{name}?max_samples={KEPT}&seed=0")
    return ad.FeatureSpace.fit(data, data, size=SIDE, channels="gray").apply(data)

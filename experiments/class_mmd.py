"""How long until a frozen MNIST model reads flowed Fashion-MNIST: ``ClassMMD`` beside ``OTDD``, on the
same draws, in seconds of one processor and in evaluations of the functional.

Labels are used by the flow, and those are what is scored, as in ``supervised``: after each so many
steps the model's answers are compared with the class of MNIST that a sample's class has become
(``ClassMatching`` of the flowed data). Reading is not part of the seconds. Step sizes were chosen on a draw with
another seed. ``PUBLISHED`` is what the authors of the Wasserstein over Wasserstein flows give beside
their code: mean accuracies of three flows of ``PUBLISHED_SAMPLES`` images, by iteration."""

from __future__ import annotations

import time
from typing import Any

import torch
from lenet import frozen, predictions

import advect as ad

NAME = "class_mmd"
SAMPLES, DRAWS, EPOCHS = 1000, 3, 20
LEVELS = [0.95, 0.99]
PUBLISHED = {"25000": 95.8, "65000": 99.1, "500000": 100.0}  # iterations: per cent
PUBLISHED_SAMPLES = 5000
WAYS = {
    "OTDD": {"label_weight": 1, "step_size": 0.4, "steps": 14, "every": 1},
    "OTDD, label weight 2": {"label_weight": 2, "step_size": 0.3, "steps": 14, "every": 1},
    "ClassMMD, 300 directions": {"projections": 300, "steps": 200, "every": 5},
    "ClassMMD, a whole basis": {"projections": 784, "steps": 600, "every": 5},
}
SHRINKING = {  # the first step size, how many steps halve it, and the last one
    "ClassMMD, 300 directions": [15.0, 40, 0.5],
    "ClassMMD, a whole basis": [20.0, 40, 2.5],
}


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{way}, draw {1000 + draw}": {"way": way, "seed": 1000 + draw}
        for draw in range(DRAWS)
        for way in WAYS
    }


def run(way: str, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    names = ("fashion_mnist", "mnist")
    drawn = (ad.datasets.load(n).sample(SAMPLES, balanced=True, generator=generator) for n in names)
    data, target = ad.harmonize(*drawn, size=28)
    model, told = frozen("mnist", EPOCHS), WAYS[way]
    walk = ad.iterate(
        data,
        objective(target, told),
        dynamics=ad.FeatureDriven(bounds=(0.0, 1.0)),
        integrator=integrator(way),
    )
    spent, curve = 0.0, []
    while not curve or curve[-1][0] < told["steps"]:
        begun = time.process_time()
        step = next(walk)
        spent += time.process_time() - begun
        if step.index % told["every"] == 0:
            curve.append([step.index, spent, accuracy(model, step.dataset, target)])
    reached = {str(level): next((c[:2] for c in curve if c[2] >= level), None) for level in LEVELS}
    return {
        "accuracies": {"before": curve[0][2], "after": curve[-1][2]},
        "reached": reached,
        "curve": curve,
    }


def objective(target: ad.LabeledDataset, told: dict[str, Any]) -> ad.Functional:
    if "projections" in told:
        return ad.ClassMMD(target, told["projections"])
    return ad.OTDD(target, cost=ad.GroundCost(label_weight=told["label_weight"]))


def integrator(way: str) -> ad.Integrator:
    if way in SHRINKING:
        return ad.Momentum(ad.Decay(*SHRINKING[way]))
    return ad.Euler(WAYS[way]["step_size"])


def accuracy(model: torch.nn.Module, data: ad.LabeledDataset, target: ad.LabeledDataset) -> float:
    """The share of samples that the model gives the class of the target that theirs has become."""
    become = ad.ClassMatching.between(data, target).hard
    codes = torch.tensor([target.classes.index(become[name]) for name in data.classes])
    return float((predictions(model, data.samples) == codes[data.y]).double().mean())

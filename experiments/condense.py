"""A few synthetic samples of each class to train on: ``ad.apps.condense`` beside k-means and random.

A draw has TRAIN balanced images, condensed to so many of each class, and TEST others that three
learners are asked about which were trained on the condensed set: the nearest sample, logistic
regression (samples count by their mass) and a LeNet-5 of UPDATES updates. Beside it the centres of
class-wise k-means, where the flow starts; the real images nearest to these; random images; the flow
with distances measured through a network of random convolutions; and all data, the ceiling. Epsilon
was chosen on a draw of MNIST with another seed; steps, updates and draws are as few as time allowed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from lenet import Trainer
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

import advect as ad
from advect.apps.training import Logistic, fit_on, score

NAME = "condense"
RECOMMENDED = "condensed"  # named in advance
BASELINE = "k-means"
SETS = ("random", "medoids", "k-means", "condensed", "convolutions", "all data")
LEARNERS = ("nearest", "logistic", "LeNet-5")
DATASETS = ("mnist", "fashion_mnist", "kmnist")
PER_CLASS = (1, 10, 50)
TRAIN, TEST, STEPS, UPDATES = 3000, 1000, 10, 200
SEEDS = tuple(range(5))
CHANNELS = (16, 32)


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{name}, {k} per class, draw {seed}": {"name": name, "per_class": k, "seed": seed}
        for seed in SEEDS
        for name in DATASETS
        for k in PER_CLASS
    }


def run(name: str, per_class: int, seed: int) -> dict[str, Any]:
    train, test = drawn(name, seed)
    plain = ad.apps.condense(train, per_class, n_steps=STEPS, seed=seed, progress=False)
    convolved = ad.apps.condense(
        train, per_class, embedding=convolutions(seed), n_steps=STEPS, seed=seed, progress=False
    )
    sets = {
        "random": plain.random(),
        "medoids": plain.medoids,
        "k-means": plain.start,
        "condensed": plain.dataset,
        "convolutions": convolved.dataset,
    }
    found = {
        f"{way}, {learner}": accuracy(learner, data, test, seed)
        for way, data in sets.items()
        for learner in LEARNERS
    }
    found |= {f"all data, {learner}": whole(learner, name, seed) for learner in LEARNERS}
    values = {"condensed": plain.result.values, "convolutions": convolved.result.values}
    return {
        "accuracies": found,
        "falls": {way: each[-1] / each[0] for way, each in values.items()},
    }


@functools.cache
def drawn(name: str, seed: int) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    generator = torch.Generator().manual_seed(seed)
    both = ad.datasets.load(name).sample(TRAIN + TEST, balanced=True, generator=generator)
    train, test = both.split(TRAIN / (TRAIN + TEST), generator=generator)
    return train, test


def accuracy(learner: str, data: ad.LabeledDataset, test: ad.LabeledDataset, seed: int) -> float:
    model = {"nearest": Nearest, "logistic": Logistic, "LeNet-5": lenet}[learner](seed)
    fit_on(model.fit, data)
    return score(model, test)


@functools.cache
def whole(learner: str, name: str, seed: int) -> float:
    """Trained on all data, which is the same for any number per class."""
    return accuracy(learner, *drawn(name, seed), seed)


def lenet(seed: int) -> Trainer:
    return Trainer(seed, 10, UPDATES)


class Nearest:
    def __init__(self, seed: int) -> None:
        self.model = KNeighborsClassifier(1)

    def fit(self, x: Tensor, y: Tensor) -> None:
        self.model.fit(x.flatten(1), y)

    def predict(self, x: Tensor) -> Any:
        return self.model.predict(x.flatten(1))


def convolutions(seed: int) -> Callable[[Tensor], Tensor]:
    """A network of two layers that was never trained."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, CHANNELS[0], 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(CHANNELS[0], CHANNELS[1], 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2, ceil_mode=True),
        nn.Flatten(),
    )
    return network.requires_grad_(False)

"""One frozen MNIST model for USPS, KMNIST, Fashion-MNIST and EMNIST letters, with labels (paper,
table 1, supervised).

before  the model on the images as they are, its answers read through the class matching
after   the data flows to MNIST with its labels, which are those it is scored on: the paper's number,
        and an upper bound

What the model reads of samples whose labels nobody used is in ``held_out``, and without labels in
``unsupervised``."""

from __future__ import annotations

from typing import Any

import torch
from lenet import frozen

import advect as ad

NAME = "supervised"
SETS = {
    "usps": "USPS",
    "kmnist": "KMNIST",
    "fashion_mnist": "Fashion-MNIST",
    "emnist_letters": "EMNIST letters",
}
PAPER = {  # before, after, in per cent
    "USPS": [77.1, 99.1],
    "KMNIST": [5.05, 99.2],
    "Fashion-MNIST": [8.22, 99.1],
    "EMNIST letters": [3.62, 36.7],
}
SAMPLES, DRAWS, EPOCHS = 1000, 3, 20
STEPS, STEP_SIZE = 12, 0.4


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{shown}, draw {1000 + draw}": {"name": name, "seed": 1000 + draw}
        for name, shown in SETS.items()
        for draw in range(DRAWS)
    }


def run(name: str, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    mnist = ad.datasets.load("mnist")
    data, reference = ad.harmonize(
        ad.datasets.load(name).sample(SAMPLES, balanced=True, generator=generator),
        mnist.sample(SAMPLES, balanced=True, generator=generator),
        size=28,
    )
    found = ad.apps.repurpose(
        frozen("mnist", EPOCHS),
        reference,
        data,
        bounds=(0.0, 1.0),
        n_steps=STEPS,
        step_size=STEP_SIZE,
    )
    guesses = zip(found.predict(data, "no flow"), data.labels, strict=True)
    before = sum(guess == truth for guess, truth in guesses) / len(data)
    return {"accuracies": {"before": before, "after": found.accuracy}}

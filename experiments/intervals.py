"""Do intervals of distances hold what they say? Many draws of known laws, and of images.

A cell is one draw of two samples, equally many of each class: the distance, its first-order standard
error and 95 % interval (``Distance.interval``). Over the draws of a setting: how often the interval
holds the mean of all draws, the spread of the values beside the standard error that was stated, and how
far the mean is from that of samples ten times as large, which no interval of one sample tells. ``one
law`` is the case that the first order does not describe; ``images`` are draws of MNIST and of KMNIST,
which are far larger."""

from __future__ import annotations

import itertools
from typing import Any

import torch

import advect as ad

NAME = "intervals"
DRAWS = 60
CLASSES, DIM = 3, 10
SHIFTS = {"far": 3.0, "near": 0.7, "one law": 0.0}
SIZES = [60, 300]
IMAGES = 200
TIMES = 10


def cells() -> dict[str, dict[str, Any]]:
    """Draw by draw, so that all settings are there to the same extent."""
    found: dict[str, dict[str, Any]] = {}
    for seed in range(DRAWS):
        for pair, size in itertools.product(SHIFTS, SIZES):
            name = f"{pair}, {size} samples, draw {seed}"
            found[name] = {"pair": pair, "size": size, "seed": seed}
            if seed % TIMES == 0:
                name = f"{pair}, {TIMES * size} samples, draw {seed}"
                found[name] = {"pair": pair, "size": TIMES * size, "seed": seed}
        name = f"images, {IMAGES} samples, draw {seed}"
        found[name] = {"pair": "images", "size": IMAGES, "seed": seed}
    return found


def run(pair: str, size: int, seed: int) -> dict[str, Any]:
    a, b = images(size, seed) if pair == "images" else gaussians(pair, size, seed)
    distance = ad.otdd(a, b)
    if size not in (*SIZES, IMAGES):
        return {"value": distance.value}
    error, (low, high) = distance.standard_error(), distance.interval()
    return {"value": distance.value, "standard error": error, "low": low, "high": high}


def gaussians(pair: str, size: int, seed: int) -> list[ad.LabeledDataset]:
    """Two samples of three classes that lie around a triangle, the second shifted."""
    generator, found = torch.Generator().manual_seed(seed), []
    for shift in (0.0, SHIFTS[pair]):
        centres = torch.zeros(CLASSES, DIM)
        centres[0, 0], centres[1, 1], centres[2, 0] = 4.0, 4.0, -4.0
        y = torch.arange(size) % CLASSES
        noise = torch.randn(size, DIM, generator=generator) * torch.linspace(0.5, 1.5, DIM)
        x = centres[y] + noise
        x[:, 0] += shift
        found.append(ad.LabeledDataset(x, y))
    return found


def images(size: int, seed: int) -> list[ad.LabeledDataset]:
    """Equally many images of each class."""
    pair = ("mnist", "kmnist")
    return [ad.datasets.load(name, n=size, balanced=True, seed=seed) for name in pair]

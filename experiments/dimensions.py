"""Across dimensions: digits of 8 × 8 pixels and MNIST of 28 × 28, taken as vectors of 64 and 784
numbers.

    python experiments/run.py dimensions

Labeled digits and some labeled images of MNIST are aligned by names, or by distances alone; other
images of MNIST are then named after the nearest digit in the common space. Beside it stand what
resizing gives, which knows that both are images; the labeled images of MNIST alone; and the aligned
digits together with them. The last setting is no other dataset but digits turned into 784 dimensions,
other images on each side, where a rotation is all there is to find. Nothing was tuned."""

from __future__ import annotations

from typing import Any

import torch

import advect as ad

NAME = "dimensions"
COLUMNS = [
    "resized images",
    "target's labels alone",
    "names",
    "target's labels in that space",
    "names + target's labels",
    "geometry",
]
RECOMMENDED, BASELINE = "names", "target's labels alone"
SOURCE, HELD = 600, 1000
SETTINGS = {
    "digits → MNIST, 50 samples": ["mnist", 50],
    "digits → MNIST, 500 samples": ["mnist", 500],
    "digits → digits in 784 dimensions, 500 samples": ["digits", 500],
}
DRAWS, FIRST_SEED = 5, 8000


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{setting}, draw {seed}": {"setting": setting, "seed": seed}
        for setting in SETTINGS
        for seed in range(FIRST_SEED, FIRST_SEED + DRAWS)
    }


def named(known: ad.LabeledDataset, held: ad.LabeledDataset) -> float:
    """The share of held-out samples whose nearest known one has their name."""
    nearest = torch.cdist(held.x, known.x).argmin(dim=1)
    return float((known.y[nearest] == held.y).double().mean())


def drawn(setting: str, seed: int) -> list[ad.LabeledDataset]:
    """Source, target and held-out samples."""
    name, n = SETTINGS[setting]
    draw = torch.Generator().manual_seed(seed)
    digits = ad.datasets.load("digits")
    if name == "mnist":
        both = ad.datasets.load("mnist").sample(n + HELD, balanced=True, generator=draw)
        few, held = both.split(n / (n + HELD), generator=draw)
        return [digits.sample(SOURCE, balanced=True, generator=draw), few, held]
    source, rest = digits.split(SOURCE / len(digits), generator=draw)
    frame = torch.linalg.qr(torch.randn(784, 784, generator=draw))[0][:64]
    turned = rest.replace(x=rest.x @ frame, sample_shape=(784,))
    few, held = turned.split(n / len(turned), generator=draw)
    return [source, few, held]


def run(setting: str, seed: int) -> dict[str, Any]:
    source, few, held = drawn(setting, seed)
    scores: dict[str, float | None] = {"resized images": None}
    if len(few.sample_shape) == 2:
        resized, images = ad.harmonize(source, held)
        scores["resized images"] = named(resized, images)
    scores["target's labels alone"] = named(few, held)
    found: dict[str, Any] = {"accuracies": scores, "misfit": {}, "dimensions": {}}
    for by in ("names", "geometry"):
        space = ad.align(source, few, by=by)
        moved, there = space.apply(source), space.apply(held, side="target")
        scores[by] = named(moved, there)
        found["misfit"][by] = space.to_dict()["source"]["steps"][0]["misfit"]
        found["dimensions"][by] = space.sample_shape[0]
        if by == "names":
            here = space.apply(few, side="target")
            scores["target's labels in that space"] = named(here, there)
            joined = ad.LabeledDataset(torch.cat([moved.x, here.x]), torch.cat([moved.y, here.y]))
            scores["names + target's labels"] = named(joined, there)
    return found

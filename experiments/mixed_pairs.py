"""How many mini-batch pairs mix classes, USPS to MNIST: by label weight and size of the batch, on the
draws of ``maps``. A pair is mixed where its digits differ."""

from __future__ import annotations

from typing import Any

import torch

import advect as ad

NAME = "mixed_pairs"
SAMPLES, DRAWS, PAIRS = 1000, 5, 2048
SIZES = [128, 1000]
WEIGHTS = {"label-blind": "0", "label weight 1": "1", "label weight 5": "5", "never mixed": "inf"}


def cells() -> dict[str, dict[str, Any]]:
    return {f"USPS → MNIST, draw {1000 + draw}": {"seed": 1000 + draw} for draw in range(DRAWS)}


def run(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    usps, mnist = ad.harmonize(ad.datasets.load("usps"), ad.datasets.load("mnist"))
    target = mnist.sample(SAMPLES, balanced=True, generator=generator)
    both = usps.sample(2 * SAMPLES, balanced=True, generator=generator)
    source, _ = both.split(0.5, generator=generator)
    found = {}
    for name, weight in WEIGHTS.items():
        pairs = ad.PairSampler(source, target, float(weight), generator=generator)
        for size in SIZES:
            drawn = list(pairs.batches(size, PAIRS // size))
            y0, y1 = (torch.cat([batch[side] for batch in drawn]) for side in (2, 3))
            found[f"{name}, {size}"] = float((pairs.partners[y0, y1] == 0).double().mean())
    return {"shares": found}

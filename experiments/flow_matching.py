"""Flow matching on pairs with and without labels, USPS to MNIST: on the draws of ``maps``, without a
flow.

A velocity is fitted on mini-batch pairs of balanced USPS and MNIST images: by features alone, under a
label weight, and with classes never mixed. Other USPS images are carried, without and with their
labels, and read by a LeNet-5 trained on MNIST and by the nearest image of the target; an answer is
right when it is the image's own digit. Seeds and sizes are those of ``maps``, so that its maps are of
the same images. The number of updates is such that a fit takes about as long as that of the neural
map there, which needs the flow besides; it and the noise were chosen on a draw with another seed."""

from __future__ import annotations

import time
from typing import Any

import torch
from lenet import frozen, predictions

import advect as ad

NAME = "flow_matching"
SAMPLES, DRAWS, EPOCHS = 1000, 3, 20
UPDATES, NOISE = 350, 1.0
PAIRS = 5000  # of which mixed classes are counted
WEIGHTS = {"label-blind pairs": "0", "label weight 5": "5", "classes never mixed": "inf"}
COLUMNS = ["without labels", "with labels"]


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{name}, draw {1000 + draw}": {"seed": 1000 + draw, "weight": weight}
        for draw in range(DRAWS)
        for name, weight in WEIGHTS.items()
    }


def run(seed: int, weight: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    usps, mnist = ad.harmonize(ad.datasets.load("usps"), ad.datasets.load("mnist"))
    target = mnist.sample(SAMPLES, balanced=True, generator=generator)
    both = usps.sample(2 * SAMPLES, balanced=True, generator=generator)
    source, held = both.split(0.5, generator=generator)

    begun = time.process_time()
    pairs = ad.PairSampler(source, target, float(weight), generator=generator)
    carry = ad.maps.FlowMatchingMap(updates=UPDATES, noise=NOISE, progress=False).fit(pairs)
    fitted = time.process_time()
    blind = carry.transform(held.samples)
    carried = time.process_time()
    images = {
        "without labels": blind.reshape(len(held), -1),
        "with labels": carry.transform(held).x,
    }
    drawn = list(pairs.batches(SAMPLES, PAIRS // SAMPLES))
    y0, y1 = (torch.cat([batch[side] for batch in drawn]) for side in (2, 3))
    model = frozen("mnist", EPOCHS)
    found: dict[str, dict[str, float]] = {"accuracies": {}, "read by the nearest": {}}
    for name, x in images.items():
        x = x.clamp(0, 1)
        answers = {
            "accuracies": predictions(model, held.replace(x=x).samples),
            "read by the nearest": target.y[torch.cdist(x, target.x).argmin(dim=1)],
        }
        for reader, codes in answers.items():
            found[reader][name] = float((codes == held.y).double().mean())
    return found | {
        "pairs of other classes": float((pairs.partners[y0, y1] == 0).double().mean()),
        "fit": fitted - begun,
        "carry": carried - fitted,
    }

"""USPS to MNIST for images that the flow never saw (paper, section 6.2, figure of appendix D):
maps compared.

Flows balanced USPS images to balanced MNIST images, fits each map on the first and last states, and
carries other USPS images without their labels. They are held against the same images flowed
properly: as a source of their own, with their labels, to the same target under the same settings. A
LeNet-5 trained on MNIST, which sees neither flow nor map, reads the results, and so does the nearest
of the target's images; an answer is right when it is the digit that the image's class is matched to.
Mapped images are clipped to 0..1, as the flow's are.

Flow matching is fitted without the flow, on mini-batch pairs of the same two datasets: by features
alone, under a label weight, and with classes never mixed. Its number of updates is such that a fit
takes no more processor time than that of the neural map, which needs the flow besides. Settings were
chosen on draws with other seeds."""

from __future__ import annotations

import time
from typing import Any

import torch
from lenet import frozen, predictions

import advect as ad
from advect.maps import Map

NAME = "maps"
SAMPLES, DRAWS, EPOCHS = 1000, 3, 20
STEPS, STEP_SIZE, LABEL_WEIGHT = 20, 0.2, 5.0
NEURAL_RESTARTS = 1
UPDATES, NOISE = 350, 1.0  # of flow matching
PAIRINGS = {  # label weights of its pairs; JSON has no infinity
    "flow matching, label-blind pairs": "0",
    "flow matching, label weight 5": "5",
    "flow matching, classes never mixed": "inf",
}
PAIRS = 5120  # of which mixed classes are counted
COLUMNS = [
    "not mapped",
    "the mean flowed image",
    "nearest particle",
    "five nearest",
    "entropic, debiased",
    "entropic, not debiased",
    "neural",
    *PAIRINGS,
    "entropic, not debiased, with labels",
    "flow matching, classes never mixed, with labels",
    "flowed properly, with labels",
]


def cells() -> dict[str, dict[str, Any]]:
    return {f"USPS → MNIST, draw {1000 + draw}": {"seed": 1000 + draw} for draw in range(DRAWS)}


def run(seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    usps, mnist = ad.harmonize(ad.datasets.load("usps"), ad.datasets.load("mnist"))
    target = mnist.sample(SAMPLES, balanced=True, generator=generator)
    both = usps.sample(2 * SAMPLES, balanced=True, generator=generator)
    source, held = both.split(0.5, generator=generator)
    begun = time.process_time()
    result = flowed(source, target)
    flow_seconds = time.process_time() - begun
    proper = flowed(held, target).dataset
    model, matching = frozen("mnist", EPOCHS), ad.otdd(result.dataset, target).class_matching
    right = torch.as_tensor(matching.values.argmax(axis=1))[held.y]

    mean = result.dataset.x.mean(0).expand_as(held.x)
    images = {"not mapped": held.x, "the mean flowed image": mean}
    took: dict[str, dict[str, float]] = {}
    mixed: dict[str, float] = {}

    def carry(name: str, chosen: Map, pairs: Any) -> None:
        begun = time.process_time()
        chosen.fit(pairs)
        fitted = time.process_time()
        carried = chosen.transform(held.samples)
        images[name] = carried.reshape(len(held), -1).clamp(0, 1)
        took[name] = {"fit": fitted - begun, "carry": time.process_time() - fitted}
        if f"{name}, with labels" in COLUMNS:
            images[f"{name}, with labels"] = chosen.transform(held).x.clamp(0, 1)

    for name, chosen in maps().items():
        carry(name, chosen, result)
    for name, weight in PAIRINGS.items():
        pairs = ad.PairSampler(source, target, float(weight), generator=generator)
        fresh = ad.maps.FlowMatchingMap(updates=UPDATES, noise=NOISE, progress=False)
        drawn = list(pairs.batches(fresh.paired_at_once, PAIRS // fresh.paired_at_once))
        y0, y1 = (torch.cat([batch[side] for batch in drawn]) for side in (2, 3))
        mixed[name] = float(
            (torch.as_tensor(matching.values.argmax(axis=1))[y0] != y1).double().mean()
        )
        carry(name, fresh, pairs)
    images["flowed properly, with labels"] = proper.x
    return {
        "accuracies": {
            name: float((predictions(model, held.replace(x=x).samples) == right).double().mean())
            for name, x in images.items()
        },
        "read by the nearest": {
            name: float((target.y[torch.cdist(x, target.x).argmin(1)] == right).double().mean())
            for name, x in images.items()
        },
        "squared errors": {
            name: float((x - proper.x).square().mean()) for name, x in images.items()
        },
        "pairs of other classes": mixed,
        "processor seconds of maps": took,
        "processor seconds of the flow": flow_seconds,
    }


def maps() -> dict[str, Any]:
    """New ones, not fitted."""
    return {
        "nearest particle": ad.maps.NearestMap(),
        "five nearest": ad.maps.NearestMap(k=5),
        "entropic, debiased": ad.maps.EntropicMap(label_weight=LABEL_WEIGHT),
        "entropic, not debiased": ad.maps.EntropicMap(label_weight=LABEL_WEIGHT, debias=False),
        "neural": ad.maps.NeuralMap(restarts=NEURAL_RESTARTS, progress=False),
    }


def flowed(source: ad.LabeledDataset, target: ad.LabeledDataset) -> ad.FlowResult:
    cost = ad.GroundCost(label=ad.Bures(), label_weight=LABEL_WEIGHT)
    return ad.flow(
        source,
        ad.OTDD(target, cost=cost),
        dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
        integrator=ad.Euler(STEP_SIZE),
        n_steps=STEPS,
    )

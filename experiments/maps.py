"""USPS to MNIST for images that the flow never saw (paper, section 6.2, figure of appendix D):
maps compared.

Flows balanced USPS images to balanced MNIST images, fits each map on the first and last states, and
carries other USPS images without their labels. They are held against the same images flowed
properly: as a source of their own, with their labels, to the same target under the same settings. A
LeNet-5 trained on MNIST, which sees neither flow nor map, reads the results; an answer is right when
it is the digit that the image's class is matched to. Mapped images are clipped to 0..1, as the
flow's are."""

from __future__ import annotations

import time
from typing import Any

import torch
from lenet import frozen, predictions

import advect as ad
from advect.flows.loop import FlowResult

NAME = "maps"
SAMPLES, DRAWS, EPOCHS = 1000, 3, 20
STEPS, STEP_SIZE, LABEL_WEIGHT = 20, 0.2, 5.0
NEURAL_RESTARTS = 1
COLUMNS = [
    "not mapped",
    "the mean flowed image",
    "nearest particle",
    "five nearest",
    "entropic, debiased",
    "entropic, not debiased",
    "neural",
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
    result, proper = flowed(source, target), flowed(held, target).dataset
    model, matching = frozen("mnist", EPOCHS), ad.otdd(result.dataset, target).class_matching
    right = torch.as_tensor(matching.values.argmax(axis=1))[held.y]

    mean = result.dataset.x.mean(0).expand_as(held.x)
    images = {"not mapped": held.x, "the mean flowed image": mean}
    took: dict[str, dict[str, float]] = {}
    for name, chosen in maps().items():
        begun = time.process_time()
        chosen.fit(result)
        fitted = time.process_time()
        carried = chosen.transform(held.samples)
        images[name] = carried.reshape(len(held), -1).clamp(0, 1)
        took[name] = {"fit": fitted - begun, "carry": time.process_time() - fitted}
    images["flowed properly, with labels"] = proper.x
    return {
        "accuracies": {
            name: float((predictions(model, held.replace(x=x).samples) == right).double().mean())
            for name, x in images.items()
        },
        "squared errors": {
            name: float((x - proper.x).square().mean()) for name, x in images.items()
        },
        "processor seconds of maps": took,
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


def flowed(source: ad.LabeledDataset, target: ad.LabeledDataset) -> FlowResult:
    cost = ad.GroundCost(label=ad.Bures(), label_weight=LABEL_WEIGHT)
    return ad.flow(
        source,
        ad.OTDD(target, cost=cost),
        dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
        integrator=ad.Euler(STEP_SIZE),
        n_steps=STEPS,
    )

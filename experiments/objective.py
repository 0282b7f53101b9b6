"""Does the objective tell how well a frozen model will read the flowed data? (paper, section 6.3
and appendix F)

Flows a dataset to the one a model was trained on, and asks the model on the way, for several
regularisations epsilon (relative to the mean cost). Kept: objective and accuracy along the flow,
and Spearman's correlation of minus the objective with the accuracy. The flow uses the labels of the
samples it is scored on: these are no test accuracies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lenet import frozen, scores
from scipy.stats import spearmanr

import advect as ad

NAME = "objective"
PAIRS = [
    ["usps", "mnist"],
    ["fashion_mnist", "mnist"],
    ["kmnist", "mnist"],
    ["stl10", "cifar10"],
    ["camelyon", "cifar10"],
]
SAMPLES, DRAWS = 300, 3
EPSILONS, STEP_SIZE, STEPS, EVERY = [0.001, 0.01, 0.1, 0.5], 0.2, 15, 3
LABEL_WEIGHT = 5.0
EPOCHS = {"mnist": 10, "cifar10": 8}


def cells() -> dict[str, dict[str, Any]]:
    return {
        f"{source} → {target}, epsilon {epsilon}, draw {1000 + draw}": {
            "source": source,
            "target": target,
            "epsilon": epsilon,
            "seed": 1000 + draw,
        }
        for source, target in PAIRS
        for epsilon in EPSILONS
        for draw in range(DRAWS)
    }


def run(source: str, target: str, epsilon: float, seed: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    model = frozen(target, EPOCHS[target])
    data, reference = (
        each.sample(SAMPLES, balanced=True, generator=generator).balanced()
        for each in ad.harmonize(
            ad.datasets.load(source),
            ad.datasets.load(target),
            size=32 if target == "cifar10" else 28,
        )
    )

    def accuracy(rho: ad.LabeledDataset) -> float:
        laws = ad.GroundCost(label=ad.Bures(diagonal=True))
        matching = ad.ClassMatching.between(rho, reference, cost=laws)
        answers = matching.predict(torch.softmax(scores(model, rho.samples), dim=1))
        return float(np.mean([a == b for a, b in zip(answers, rho.labels, strict=True)]))

    cost = ad.GroundCost(label=ad.Bures(), label_weight=LABEL_WEIGHT)
    solver = ad.Sinkhorn(epsilon=ad.Relative(epsilon))
    result = ad.flow(
        data,
        ad.OTDD(reference, cost=cost, solver=solver),
        dynamics=ad.FeatureDriven(through_laws=False, bounds=(0.0, 1.0)),
        integrator=ad.Euler(STEP_SIZE),
        n_steps=STEPS,
        callbacks=[ad.Metric("accuracy", accuracy, every=EVERY)],
    )
    curve = result.metrics["accuracy"]
    values = [result.values[index] for index, _ in curve]
    along = [value for _, value in curve]
    return {
        "accuracies": {"before": along[0], "after": along[-1]},
        "time": [index * STEP_SIZE for index, _ in curve],
        "objective": values,
        "along": along,
        "spearman": float(spearmanr([-value for value in values], along).statistic),  # pyright: ignore
    }

"""k-shot transfer in features: a logistic head on the 120 features of a network trained on the source.

    ADVECT_DATA=path/to/data python experiments/run.py kshot_features --jobs 2

Every column has the same shots and the same test part (the whole test split). Augmentation shifts
the shots as images before they are encoded."""

from __future__ import annotations

import torch
from kshot import (
    CONTROLS,
    baselines,
    embedded,
    encoded,
    images,
    network,
    shifted,
    shots_of,
    source_by_votes,
    trained,
)

import advect as ad
from advect.apps.few_shot import METHODS, Task
from advect.apps.training import Logistic, joined
from advect.data.dataset import LabeledDataset

NAME = "kshot_features"
RECOMMENDED, BASELINE = "recommended", "shots"
COLUMNS = [
    "shots",
    "shots + augmentation",
    "recommended",
    "recommended + augmentation",
    "calibrated",
    "borrowed",
    "final",
    "copies",
    "mixing",
    "mixing within classes",
    "noise",
    "source",
    "frozen outputs + logistic regression",
    "logistic regression",
    "forest",
]
# frozen on halves of the training splits (shots of one, scores on the other), seeds below 100
SOURCE, TARGETS, SHOTS = "mnist", ["usps", "kmnist", "fashion_mnist"], [1, 5, 10, 100]
AMONG = ["calibrated", "shots", "source + borrowed"]
ADDED, SOURCE_SAMPLES, FLOW_SAMPLES, FLOW_STEPS, FLOW_STEP_SIZE = 2000, 10000, 1000, 8, 0.4
SHIFT, COPIES = 2, 10  # of augmentation
DRAWS, FIRST_SEED = 10, 5000  # those before were seen with other settings
DRAWS_OF_FLOWS = 2  # to 100 shots of each class, which take long


def cells() -> dict[str, dict]:
    return {
        f"{target}, {shots} shots, draw {FIRST_SEED + draw}": {
            "source": SOURCE,
            "target": target,
            "shots": shots,
            "seed": FIRST_SEED + draw,
            "flows": shots <= 10 or draw < DRAWS_OF_FLOWS,
        }
        for draw in range(DRAWS)
        for target in TARGETS
        for shots in SHOTS
    }


def run(source: str, target: str, shots: int, seed: int, flows: bool = True) -> dict:
    pictures = shots_of(images(target), shots, seed)
    few, test = encoded(pictures, source), embedded(target, source, "test")
    many = embedded(source, source).subset(range(SOURCE_SAMPLES))
    made = ad.apps.transfer(
        many,
        few,
        methods=AMONG,
        n=ADDED,
        n_steps=FLOW_STEPS,
        step_size=FLOW_STEP_SIZE,
        seed=seed,
    )
    options = made.options
    task = Task(many, few, Logistic, options, ADDED, seed)
    small = Task(many.subset(range(FLOW_SAMPLES)), few, Logistic, options, FLOW_SAMPLES, seed)
    added = {"shots": None, "recommended": made.added}
    added |= {way: METHODS[way](task) for way in ("calibrated", "borrowed")}
    added["source"] = source_by_votes(task)
    added |= {way: CONTROLS[way](small) for way in CONTROLS if flows or way != "copies"}
    if flows:
        added["final"] = METHODS["final"](small)
    accuracies = {name: trained(Logistic(), few, more, test) for name, more in added.items()}
    more = _augmented(pictures, source, seed)
    accuracies["shots + augmentation"] = trained(Logistic(), few, more, test)
    wider = Task(many, joined([few, more]), Logistic, options, ADDED, seed)
    richer = METHODS[made.choice.method](wider)
    both = more if richer is None else joined([more, richer])
    accuracies["recommended + augmentation"] = trained(Logistic(), few, both, test)
    accuracies["frozen outputs + logistic regression"] = trained(
        Logistic(), _outputs(pictures, source), None, _outputs(images(target, "test"), source)
    )
    accuracies |= baselines(pictures, images(target, "test"))
    chosen = {"chosen": made.choice.method, "cross-validation": made.choice.accuracies}
    return {"accuracies": accuracies, **chosen}


def _augmented(pictures: LabeledDataset, source: str, seed: int) -> LabeledDataset:
    generator = torch.Generator().manual_seed(seed)
    repeated = joined([pictures] * COPIES)
    moved = shifted(repeated.samples, SHIFT, generator)
    return encoded(repeated.replace(x=moved.reshape(len(moved), -1)), source)


def _outputs(pictures: LabeledDataset, source: str) -> LabeledDataset:
    with torch.no_grad():
        rows = torch.cat([network(source)(part) for part in pictures.samples.split(500)])
    return LabeledDataset(rows, pictures.y, classes=pictures.classes)

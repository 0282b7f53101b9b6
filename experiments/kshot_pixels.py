"""k-shot transfer in pixels: LeNet-5 on k samples of each class, with what a source adds to them.

    ADVECT_DATA=path/to/data python experiments/run.py kshot_pixels --jobs 2

Source: MNIST. Every column has the same shots, test part (the whole test split), seed and number of
updates. ``recommended`` is what ``ad.apps.transfer`` chose by cross-validation on the shots and the
source with a LeNet-5 of fewer updates. Controls, flows and trainings without augmentation are of the
first draws only: what is compared is recommended with shots, both with augmentation."""

from __future__ import annotations

from kshot import CONTROLS, baselines, images, of_nets, shots_of, source_by_votes, trained

import advect as ad
from advect.apps.few_shot import METHODS, Task

NAME = "kshot_pixels"
RECOMMENDED, BASELINE = "recommended + augmentation", "shots + augmentation"
COLUMNS = [
    "shots",
    "shots + augmentation",
    "recommended",
    "recommended + augmentation",
    "mixing + augmentation",
    "noise + augmentation",
    "source + augmentation",
    "final + augmentation",
    "copies + augmentation",
    "logistic regression",
    "forest",
]
# frozen on halves of the training splits (shots of one, scores on the other), seeds below 100
SOURCE, TARGETS, SHOTS = "mnist", ["usps", "kmnist", "fashion_mnist"], [1, 5, 10, 100]
AMONG = ["borrowed", "shots", "source"]
ADDED, UPDATES, BATCH, SHIFT = 3000, 300, 64, 2
UPDATES_TO_CHOOSE, BATCH_TO_CHOOSE = 200, 32
SOURCE_SAMPLES, FLOW_STEPS, FLOW_STEP_SIZE = 4000, 8, 0.4
DRAWS, FIRST_SEED = 20, 4000  # those before were seen with other settings
DRAWS_OF_CONTROLS, DRAWS_OF_FLOWS, DRAWS_WITHOUT_AUGMENTATION = 5, 2, 5


def cells() -> dict[str, dict]:
    return {
        f"{target}, {shots} shots, draw {FIRST_SEED + draw}": {
            "target": target,
            "shots": shots,
            "seed": FIRST_SEED + draw,
            "controls": draw < DRAWS_OF_CONTROLS,
            "flows": draw < DRAWS_OF_FLOWS,
            "plain": draw < DRAWS_WITHOUT_AUGMENTATION,
        }
        for draw in range(DRAWS)
        for target in TARGETS
        for shots in SHOTS
    }


def run(target: str, shots: int, seed: int, controls: bool, flows: bool, plain: bool) -> dict:
    few, test = shots_of(images(target), shots, seed), images(target, "test")
    source = images(SOURCE)
    source = source.subset(range(SOURCE_SAMPLES))
    classes = max(len(few.classes), len(source.classes))
    still, moved = (of_nets(UPDATES, shift, BATCH, classes) for shift in (0, SHIFT))
    chooser = of_nets(UPDATES_TO_CHOOSE, SHIFT, BATCH_TO_CHOOSE, classes)
    made = ad.apps.transfer(
        source,
        few,
        classifier=chooser,
        methods=AMONG,
        n=ADDED,
        bounds=(0.0, 1.0),
        n_steps=FLOW_STEPS,
        step_size=FLOW_STEP_SIZE,
        seed=seed,
    )
    options = made.options
    task = Task(source, few, chooser, options, ADDED, seed)
    added = {"shots": None, "recommended": made.added}
    if controls:
        added["source"] = source_by_votes(task)
        added |= {name: CONTROLS[name](task) for name in ("mixing", "noise")}
    if flows:
        small = Task(source.subset(range(1000)), few, chooser, options, ADDED, seed)
        added |= {"final": METHODS["final"](small), "copies": CONTROLS["copies"](small)}
    accuracies = {
        f"{name} + augmentation": trained(moved(seed), few, more, test)
        for name, more in added.items()
    }
    for name in ("shots", "recommended") if plain else ():
        accuracies[name] = trained(still(seed), few, added[name], test)
    chosen = {"chosen": made.choice.method, "cross-validation": made.choice.accuracies}
    more = baselines(few, test) if controls else {}
    return {"accuracies": accuracies | more, **chosen}

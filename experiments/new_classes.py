"""k-shot transfer to new classes: from 26 letters to digits and to cursive Japanese characters, in
features of a network of letters.

    ADVECT_DATA=path/to/data python experiments/run.py new_classes --jobs 2
"""

from __future__ import annotations

from kshot_features import (
    ADDED,
    AMONG,
    BASELINE,
    COLUMNS,
    COPIES,
    FIRST_SEED,
    FLOW_SAMPLES,
    FLOW_STEP_SIZE,
    FLOW_STEPS,
    RECOMMENDED,
    SHIFT,
    SOURCE_SAMPLES,
    run,
)

NAME = "new_classes"
SOURCE, TARGETS, SHOTS, DRAWS = "emnist_letters", ["mnist", "kmnist"], [1, 5], 20


def cells() -> dict[str, dict]:
    return {
        f"{target}, {shots} shots, draw {FIRST_SEED + draw}": {
            "source": SOURCE,
            "target": target,
            "shots": shots,
            "seed": FIRST_SEED + draw,
        }
        for draw in range(DRAWS)
        for target in TARGETS
        for shots in SHOTS
    }


__all__ = [
    "ADDED",
    "AMONG",
    "BASELINE",
    "COLUMNS",
    "COPIES",
    "FIRST_SEED",
    "FLOW_SAMPLES",
    "FLOW_STEPS",
    "FLOW_STEP_SIZE",
    "RECOMMENDED",
    "SHIFT",
    "SOURCE_SAMPLES",
    "run",
]

"""Applications: ``advect transfer`` and ``label``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import advect as ad
from advect._util import atomic_directory, defaults, write_atomically
from advect.cli.options import ASK, OUTPUT, PAIR, Ask, Embedding, Flag, Out, Pair, Report
from advect.cli.rundir import check_free
from advect.cli.session import DATA_FILES, session, write_json


def transfer(
    source: str,
    few: str,
    *,
    out: Out,
    methods: Annotated[tuple[str, ...], Parameter(negative=())] = (
        "calibrated",
        "shots",
        "source + borrowed",
    ),
    flow: bool = True,
    n_steps: int = defaults.FEW.n_steps,
    step_size: float = defaults.FEW.step_size,
    label_weight: float = defaults.FEW.label_weight,
    report: Report = True,
    run: Pair = PAIR,
) -> None:
    """Make a training set for a task with few labels from a large dataset.

    Cross-validation chooses recommended.npz. A flow gives final.npz and path.npz. All samples have
    the units and the labels of the task.

    Args:
        source: Many labeled samples of another task.
        few: A few labeled samples of the task.
        methods: Methods among which cross-validation chooses.
        flow: Also write the result of the flow.
        n_steps: Number of steps of the flow.
        step_size: Step size of the flow.
        label_weight: Weight of labels in the cost of the flow.

    Example:
        advect transfer digits 'mnist?n=50&balanced=true' --max-samples 500 -o sets
    """
    with session(run) as running:
        from advect.io.run_frames import in_units

        place = out.expanduser()
        check_free(place, run.overwrite, "sets")
        data, shots, common = running.pair(source, few)
        data, shots = running.sampled([data, shots], "flow", source, few)
        result = ad.apps.transfer(
            data,
            shots,
            methods=methods,
            n_steps=n_steps,
            step_size=step_size,
            label_weight=label_weight,
            seed=run.seed,
            progress=running.progress,
        )
        sets = {"recommended": result.recommended}
        if flow:
            sets |= {"final": result.final, "path": result.path}
        with atomic_directory(place, overwrite=run.overwrite) as folder:
            for name, part in sets.items():
                in_units(part, common, "target", few).save(folder / f"{name}.npz")
            if report:
                result.report(folder / "report.html", title=f"{few} with {source}")
            facts = {"source": source, "few": few, **result.to_dict()}
            facts["files"] = sorted(path.name for path in folder.iterdir())
            write_json(folder / "result.json", facts)
            check_free(place, run.overwrite, "sets")
        running.finish(result, out=place)


def label(
    pool: str,
    few: str | None = None,
    *,
    out: Out,
    method: Literal["auto", "propagate", "refine"] = "auto",
    confidence: float = 0.0,
    labeled: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Write the labeled samples of the pool.")
    ] = None,
    soft: Flag = False,
    relabel: Flag = False,
    embedding: Embedding = "auto",
    run: Ask = ASK,
) -> None:
    """Label a pool of samples from a few labeled ones, with a confidence for each label.

    The output is a CSV file with one row for each sample.

    Args:
        pool: Samples, some of which may have labels.
        few: Labeled samples. The default is the labeled part of the pool.
        method: Labeling method. auto chooses the best one on held-out labels.
        confidence: Leave out labels below this confidence.
        soft: Keep class probabilities in the labeled samples.
        relabel: Ignore the labels of the pool.

    Example:
        advect label 'digits?n=1000' 'digits?n=60&seed=1' --relabel -o labels.csv
    """
    with session(run) as running:
        running.file("out", out, ".csv")
        running.file("labeled", labeled, *DATA_FILES)
        raw = running.load(pool)
        data = raw.replace(y=raw.y.new_full((len(raw),), -1)) if relabel else raw
        result = ad.apps.label(
            *running.in_space(data, *([] if few is None else [running.load(few)])),
            embedding=running.embedding(embedding),
            method=method,
            max_samples=running.most(pool, *([] if few is None else [few])),
            seed=run.seed,
            progress=running.progress,
        )
        labels = raw.replace(y=result.dataset.y, classes=result.dataset.classes)
        if soft:
            labels = labels.replace(probabilities=result.probabilities)
        sure = result.confidence >= confidence
        some = labels.subset(sure.nonzero()[0])
        running.write("out", lambda path: write_atomically(path, _label_table(result, sure)))
        running.write("labeled", lambda path: some.save(path, overwrite=run.overwrite))
        running.finish(dataclasses.replace(result, dataset=labels), title=f"Labels of {pool}")


def _label_table(result: Any, sure: Any) -> bytes:
    """One row for each sample; labels below the confidence are missing."""
    import numpy as np
    import pandas as pd

    columns = {
        "row": np.arange(len(result)),
        "label": pd.Series(list(map(str, result.labels))).where(sure),
        "confidence": np.round(result.confidence, 4),
        "known": result.known,
    }
    return pd.DataFrame(columns).to_csv(index=False).encode()

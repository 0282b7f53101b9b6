"""Applications: ``advect transfer``, ``advect label`` and ``advect repurpose``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import advect as ad
from advect._util import defaults
from advect._util.atomic import atomic_directory, write_atomically
from advect.cli.code import load_network
from advect.cli.flow import image_bounds
from advect.cli.options import ASK, OUTPUT, PAIR, Ask, Embedding, Flag, Out, Pair
from advect.cli.rundir import check_free
from advect.cli.session import DATA_FILES, session, write_json

Report = Annotated[bool, Parameter(group=OUTPUT, help="Also write an HTML page.")]


def transfer(
    source: str,
    target: str,
    *,
    out: Out,
    methods: tuple[str, ...] = ("calibrated", "shots", "source + borrowed"),
    flow: bool = True,
    n_steps: int = defaults.FEW.n_steps,
    step_size: float = defaults.FEW.step_size,
    label_weight: float = defaults.FEW.label_weight,
    report: Report = True,
    run: Pair = PAIR,
) -> None:
    """Make training sets for a few labeled samples out of a large dataset.

    The directory has ``recommended``, chosen by cross-validation, and ``final`` and ``path`` of a
    flow, in the units and with the labels of the target.

    Args:
        source: Many labeled samples.
        target: A few labeled samples.
        methods: Methods among which cross-validation chooses.
        flow: Also write the sets that the flow gives.
        n_steps: Number of steps of the flow.
        step_size: Flow time of a step.
        label_weight: Weight of labels in the cost of the flow.

    Example:
        advect transfer digits 'mnist?n=50&balanced=true' --max-samples 500 -o sets
    """
    with session(run) as running:
        from advect.io.run_frames import in_units

        place = out.expanduser()
        check_free(place, run.overwrite, "sets")
        data, few, common = running.pair(source, target)
        result = ad.apps.transfer(
            data,
            few,
            methods=methods,
            n_steps=n_steps,
            step_size=step_size,
            bounds=image_bounds(data, few),
            label_weight=label_weight,
            seed=run.seed,
            progress=running.progress,
        )
        sets = {"recommended": result.recommended}
        if flow:
            sets |= {"final": result.final, "path": result.path}
        with atomic_directory(place, overwrite=run.overwrite) as folder:
            for name, part in sets.items():
                in_units(part, common, "target", target).save(folder / f"{name}.npz")
            if report:
                result.report(folder / "report.html", title=f"{target} with {source}")
            facts = {"source": source, "target": target, **result.to_dict()}
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

    The result is a table, .csv, with one row for each sample.

    Args:
        pool: Samples without labels, or with some.
        few: Labeled samples. The default is the labeled part of the pool.
        method: How labels spread; auto chooses on held-out labels.
        confidence: Leave out labels below this confidence.
        soft: Keep class probabilities in the labeled samples.
        relabel: Ignore labels that the pool has.

    Example:
        advect label 'digits?n=1000' 'digits?n=50&balanced=true&seed=1' --relabel -o labels.csv
    """
    with session(run, code=[embedding]) as running:
        running.file("out", out, ".csv")
        running.file("labeled", labeled, *DATA_FILES)
        raw = running.load(pool)
        data = raw.replace(y=raw.y.new_full((len(raw),), -1)) if relabel else raw
        sets = running.in_space(data, *([] if few is None else [running.load(few)]))
        result = ad.apps.label(
            *sets,
            embedding=running.embedding(embedding),
            method=method,
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
        facts = {}
        if relabel and bool(raw.labeled.any()):
            pairs = [p for p in zip(result.labels, raw.labels, strict=True) if p[1] is not None]
            facts["agreement"] = sum(new == old for new, old in pairs) / len(pairs)
            running.note(f"agreement with the labels of the pool: {facts['agreement']:.1%}")
        shown = dataclasses.replace(result, dataset=labels)
        running.finish(shown, facts, title=f"Labels of {pool}")


def _label_table(result: Any, sure: Any) -> bytes:
    """One row for each sample; labels below the confidence are missing."""
    import numpy as np
    import pandas as pd

    order = np.argsort(-result.probabilities, axis=1, kind="stable")
    names = np.asarray([str(name) for name in result.dataset.classes], dtype=object)
    second = np.take_along_axis(result.probabilities, order, axis=1)[:, 1]
    columns = {
        "row": np.arange(len(result)),
        "label": pd.Series(list(map(str, result.labels))).where(sure),
        "confidence": np.round(result.confidence, 4),
        "second": names[order[:, 1]],
        "second_confidence": np.round(second, 4),
        "known": result.known,
    }
    return pd.DataFrame(columns).to_csv(index=False).encode()


def repurpose(
    model: str,
    reference: str,
    data: str,
    *,
    out: Out,
    n_steps: int = defaults.USE.n_steps,
    step_size: float = defaults.USE.step_size,
    label_weight: float = defaults.USE.label_weight,
    run: Ask = ASK,
) -> None:
    """Classify data with a frozen model of other data, by moving the data to the model.

    The result is a table, .csv, with a predicted class for each sample.

    Args:
        model: path.py:name (a torch module, an estimator or a function of samples) or path.onnx.
        reference: A labeled sample of what the model was trained on.
        data: What to classify; labeled, partly labeled or unlabeled.
        n_steps: Number of steps of the flow.
        step_size: Flow time of a step.
        label_weight: Weight of labels in the cost of the flow.

    Example:
        advect repurpose model.py:net mnist digits --max-samples 300 -o predictions.csv
    """
    with session(run, code=[model]) as running:
        import pandas as pd

        from advect._util.onnx import OnnxModel

        running.file("out", out, ".csv")
        network = load_network(model, "the model", running.code)
        network = OnnxModel(network, "the model") if isinstance(network, Path) else network
        moved, target, _ = running.pair(data, reference)
        result = ad.apps.repurpose(
            network,
            target,
            moved,
            n_steps=n_steps,
            step_size=step_size,
            label_weight=label_weight,
            bounds=image_bounds(moved, target),
            progress=running.progress,
        )
        table = pd.DataFrame({"prediction": result.predictions}).to_csv(index_label="row")
        running.write("out", lambda path: write_atomically(path, table.encode()))
        running.finish(result, title=f"{data} with {model}")

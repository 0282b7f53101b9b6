"""Applications: ``advect transfer`` and ``advect label``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from advect._util import defaults
from advect._util.atomic import atomic_directory, write_atomically
from advect.cli.flow import image_bounds
from advect.cli.options import OUTPUT, RUN, Embedding, Flag, Out, Page, Run, Space
from advect.cli.rundir import check_free, write_json
from advect.cli.session import DATA_FILES, PAGES, session

Report = Annotated[bool, Parameter(group=OUTPUT, help="Also write an HTML page.")]


def transfer(
    source: str,
    target: str,
    *,
    out: Out,
    methods: tuple[str, ...] = ("calibrated", "shots", "mixed", "source + borrowed"),
    flow: bool = True,
    n_steps: int = defaults.FEW.n_steps,
    step_size: float = defaults.FEW.step_size,
    bounds: tuple[float, float] | None = None,
    label_weight: float = defaults.FEW.label_weight,
    space: Space = None,
    report: Report = True,
    run: Run = RUN,
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
        bounds: Range of the features. Images stay in their range by default.
        label_weight: Weight of labels in the cost of the flow.

    Example:
        advect transfer digits 'mnist?n=50&balanced=true' --max-samples 500 -o sets
    """
    with session(run, space) as running:
        import advect as ad
        from advect.io.run_frames import in_units

        place = out.expanduser()
        check_free(place, run.overwrite, "sets")
        data, few, common = running.pair(source, target, space)
        result = ad.apps.transfer(
            data,
            few,
            methods=methods,
            n_steps=n_steps,
            step_size=step_size,
            bounds=bounds or image_bounds(data, few),
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
            names = sorted(path.name for path in folder.iterdir())
            write_json(folder / "result.json", {**facts, "files": names})
            check_free(place, run.overwrite, "sets")
        running.finish(result, {"source": source, "target": target}, {"out": place})


def label(
    pool: str,
    few: str | None = None,
    *,
    out: Out,
    method: Literal["auto", "propagate", "refine", "logistic"] = "auto",
    confidence: float = 0.0,
    labeled: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Write the labeled samples of the pool.")
    ] = None,
    soft: Flag = False,
    relabel: Flag = False,
    embedding: Embedding = "auto",
    space: Space = None,
    report: Page = None,
    run: Run = RUN,
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
    with session(run, space, code=[embedding]) as running:
        import advect as ad

        table, page = running.place(out, (".csv",)), running.place(report, PAGES)
        file = running.place(labeled, DATA_FILES)
        raw = running.load(pool)
        data = raw.replace(y=raw.y.new_full((len(raw),), -1)) if relabel else raw
        sets = [data] if few is None else [data, running.load(few)]
        if len(sets) > 1 or space:
            sets, _ = running.in_space(sets, space)
        result = ad.apps.label(
            *sets,
            embedding=running.embedding(embedding),
            method=method,
            seed=run.seed,
            progress=running.progress,
        )
        whole = raw.replace(y=result.dataset.y, classes=result.dataset.classes)
        if soft:
            whole = whole.replace(probabilities=result.probabilities)
        sure = result.confidence >= confidence
        running.recheck()
        assert table is not None
        write_atomically(table, _label_table(result, sure))
        if file is not None:
            whole.subset(sure.nonzero()[0]).save(file, overwrite=run.overwrite)
        facts: dict[str, Any] = {"pool": pool, "few": few, "written": int(sure.sum())}
        if relabel and bool(raw.labeled.any()):
            pairs = [p for p in zip(result.labels, raw.labels, strict=True) if p[1] is not None]
            facts["agreement"] = sum(one == other for one, other in pairs) / len(pairs)
            running.note(f"agreement with the labels of the pool: {facts['agreement']:.1%}")
        shown, files = dataclasses.replace(result, dataset=whole), {"out": table, "labeled": file}
        running.finish(shown, facts, files, page=page, title=f"Labels of {pool}")


def _label_table(result: Any, sure: Any) -> bytes:
    """One row for each sample; labels below the confidence are missing."""
    import numpy as np
    import pandas as pd

    order = np.argsort(-result.probabilities, axis=1, kind="stable")
    names = np.asarray([str(name) for name in result.dataset.classes], dtype=object)
    second = np.take_along_axis(result.probabilities, order, axis=1)[:, 1]
    labels = [str(one) if keep else None for one, keep in zip(result.labels, sure, strict=True)]
    columns = {
        "row": np.arange(len(labels)),
        "label": labels,
        "confidence": np.round(result.confidence, 4),
        "second": names[order[:, 1]],
        "second_confidence": np.round(second, 4),
        "known": result.known,
    }
    return pd.DataFrame(columns).to_csv(index=False).encode()

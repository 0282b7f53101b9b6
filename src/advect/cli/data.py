"""``advect data``: describe a dataset, list the named ones, convert a file."""

from __future__ import annotations

from typing import Any

import advect as ad
from advect._util.result import Table
from advect.cli.options import RUN, TALK, Out, Run, Talk
from advect.cli.session import Facts, session


def info(reference: str, *, run: Run = RUN) -> None:
    """Show size, shape, classes and range of a dataset.

    Args:
        reference: A name, a file, toy:gaussians?n=500, or a frame of a run such as run:directory@-1.
            Frames have the units of the source unless ?units=target or ?units=common is added.

    Example:
        advect data info 'csv:pets.csv?label=kind'
    """
    with session(run) as running:
        facts = _facts(running.load(reference))
        running.finish(Facts({"reference": reference, **facts}))


def list_names(*, talk: Talk = TALK) -> None:
    """List the datasets that have names, and where each comes from.

    Example:
        advect data list
    """
    with session(talk) as running:
        rows = [[row.name, row.ready, row.where] for row in ad.datasets.names()]
        running.finish(Facts({}, tables=[Table("datasets", ("name", "ready", "where"), rows)]))


def convert(reference: str, *, out: Out, run: Run = RUN) -> None:
    """Write a dataset to a file: .npz, .csv, .tsv, .parquet, or a folder of PNG images without a suffix.

    Args:
        reference: What to read, such as a file or a frame of a run (run:directory@-1).

    Example:
        advect data convert digits -o digits.parquet --max-samples 500
    """
    with session(run) as running:
        data = running.load(reference)
        path = data.save(out, overwrite=run.overwrite)
        running.finish(Facts({"reference": reference, **_facts(data)}), out=path)


def _facts(data: Any) -> dict[str, Any]:
    from advect.data.conversions import target_facts
    from advect.data.dataset import has_classes
    from advect.data.labels import label_confidence

    classes = has_classes(data)
    even = bool((data.weights - 1 / len(data)).abs().max() < 1e-12)
    facts: dict[str, Any] = {
        "n": len(data),
        "sample_shape": list(data.sample_shape),
        "dtype": str(data.x.dtype).removeprefix("torch."),
        "classes": len(data.classes) if classes else 0,
        "counts": data.counts if classes else {},
        "unlabeled": int((~data.labeled).sum()),
        "columns": None if data.columns is None else list(data.columns),
        "range": [float(data.x.min()), float(data.x.max())],
        "weights": "even" if even else "uneven",
    }
    if data.targets is not None:
        facts["targets"] = [f"{name}: {text}" for name, text in target_facts(data).items()]
    if data.has_soft_labels:
        facts["mean_confidence"] = float(label_confidence(data).mean())
    return facts

"""``advect data`` and ``advect distance``: datasets and the distance between two."""

from __future__ import annotations

from typing import Any

import advect as ad
import advect.registry as registry
from advect._util import Table
from advect.cli.options import (
    ASK,
    PRINT,
    RUN,
    Ask,
    Cost,
    MemoryLimit,
    Out,
    Print,
    Run,
    Solver,
)
from advect.cli.session import (
    Facts,
    session,
)


def info(reference: str, *, run: Run = RUN) -> None:
    """Show the size, shape, classes and range of a dataset.

    Args:
        reference: A name, a file, toy:gaussians?n=500, or a frame of a run such as run:directory@-1.
            Frames have the units of the source unless ?units=target or ?units=common is added.

    Example:
        advect data info 'csv:pets.csv?label=kind'
    """
    with session(run) as running:
        running.finish(Facts({"reference": reference, **_facts(running.load(reference))}))


def list_names(*, output: Print = PRINT) -> None:
    """List the named datasets and their sources.

    Example:
        advect data list
    """
    with session(output) as running:
        rows = [[row.name, row.ready, row.where] for row in ad.datasets.names()]
        running.finish(Facts({}, tables=[Table("datasets", ("name", "ready", "where"), rows)]))


def convert(reference: str, *, out: Out, run: Run = RUN) -> None:
    """Write a dataset to a file: .npz, .csv, .tsv or .parquet.

    Args:
        reference: The dataset to read, such as a file or a frame of a run (run:directory@-1).

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

    classes = has_classes(data)
    facts: dict[str, Any] = {
        "n": len(data),
        "sample_shape": list(data.sample_shape),
        "dtype": str(data.x.dtype).removeprefix("torch."),
        "classes": len(data.classes) if classes else 0,
        "counts": data.counts if classes else {},
        "unlabeled": int((~data.labeled).sum()),
        "columns": None if data.columns is None else list(data.columns),
        "range": [float(data.x.min()), float(data.x.max())],
        "weights": "even" if bool((data.weights - 1 / len(data)).abs().max() < 1e-12) else "uneven",
        "soft_labels": data.has_soft_labels,
    }
    if data.targets is not None:
        facts["targets"] = [f"{name}: {text}" for name, text in target_facts(data).items()]
    return facts


def distance(
    source: str,
    target: str,
    *,
    solver: Solver = None,
    cost: Cost = None,
    memory_limit: MemoryLimit = None,
    run: Ask = ASK,
) -> None:
    """Compute the distance between two labeled datasets (OTDD), and between their classes.

    Args:
        source: One dataset.
        target: The other dataset.

    Example:
        advect distance digits mnist --max-samples 300
    """
    with session(run) as running:
        a, b, _ = running.pair(source, target)
        method = registry.make("solver", solver or {})
        a, b = running.sampled([a, b], "distance", source, target, solver=method)
        facts: dict[str, Any] = {"n_samples": [len(a), len(b)]}
        ground = running.cost(cost, a, b)
        result = ad.otdd(a, b, cost=ground, solver=method, memory_limit=memory_limit)
        if method.reach is not None:
            facts["mass_left"] = result.mass_left
        running.finish(result, facts, title=f"{source} and {target}", converged=result.converged)

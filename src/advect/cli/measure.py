"""``advect data``, ``advect distance`` and ``advect matrix``: datasets and the distances between them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import advect as ad
import advect.registry as registry
from advect._util import Table, refuse_if
from advect.cli.options import (
    ASK,
    OUTPUT,
    PAIR,
    PRINT,
    RUN,
    Ask,
    Cost,
    MemoryLimit,
    Out,
    Pair,
    Print,
    Run,
    Solver,
)
from advect.cli.session import (
    FAILED,
    Exit,
    Facts,
    Session,
    check_free_file,
    say,
    session,
    short_names,
    write_json,
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


def matrix(
    *references: str,
    out: Annotated[
        Path | None,
        Parameter(alias="-o", group=OUTPUT, help="Directory for distances.json, .csv and .html."),
    ] = None,
    solver: Solver = None,
    cost: Cost = None,
    n_jobs: Annotated[
        int, Parameter(alias="-j", help="Number of parallel jobs; -1 uses all cores.")
    ] = 1,
    memory_limit: MemoryLimit = None,
    run: Pair = PAIR,
) -> None:
    """Compute the distances between all pairs of several datasets.

    With -o, finished pairs are stored, and an interrupted command computes only the missing ones.

    Args:
        references: Two or more datasets.

    Example:
        advect matrix toy:gaussians toy:moons toy:rings --max-samples 100 -o distances
    """
    refuse_if(
        len(references) < 2,
        "a matrix needs two or more datasets",
        f"{len(references)} dataset",
        "Add references.",
    )
    with session(run) as running:
        directory = None if out is None else out.expanduser()
        if directory is not None:
            check_free_file(directory / "distances.json", run.overwrite)
        sets = _in_one_space(references, run.space or {}, running)
        method = registry.make("solver", solver or {})
        sets = running.sampled(sets, "distance", *references, solver=method)
        result = ad.pairwise(
            dict(zip(short_names(references), sets, strict=True)),
            cost=running.cost(cost, *sets),
            solver=method,
            n_jobs=n_jobs,
            memory_limit=memory_limit,
            store=None if directory is None else directory / "pairs",
            progress=running.progress,
        )
        if directory is not None and not result.errors:
            check_free_file(directory / "distances.json", run.overwrite)
            _write_matrix(directory, result)
        facts, converged = {"references": list(references)}, bool(result.converged.all())
        running.finish(result, facts, converged=converged, out=directory)
        for pair, message in result.errors.items():
            say(f"failed: {' and '.join(pair)}: {message}")
        if result.errors:
            raise Exit(FAILED)


def _write_matrix(directory: Path, result: Any) -> None:
    import pandas as pd

    from advect._util.atomic import write_atomically

    table = pd.DataFrame(result.values, index=result.names, columns=result.names)
    write_atomically(directory / "distances.csv", table.to_csv().encode())
    result.report(directory / "distances.html")
    write_json(directory / "distances.json", result.to_dict())


def _in_one_space(
    references: tuple[str, ...], space: dict[str, str], running: Session
) -> list[ad.LabeledDataset]:
    """All datasets in one space: unchanged if they fit, images in the size and colors of the largest."""
    refuse_if(
        {"project", "columns"} & space.keys() or space.get("scale", "none") not in ("none", "each"),
        "this option needs exactly two datasets",
        "space.scale, space.project or space.columns",
        "Convert them first with advect data convert, or use space.size and space.channels.",
    )
    sets = [running.load(reference) for reference in references]
    if len({data.sample_shape for data in sets}) == 1 and not space:
        return sets
    options = registry.convert("space", ad.FeatureSpace.fit, space)
    return [*ad.harmonize(*sets, **options)]

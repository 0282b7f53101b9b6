"""``advect distance`` and ``advect matrix``: distances between labeled datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import advect as ad
import advect.registry as registry
from advect._util.checks import refuse_if
from advect.cli.options import ASK, OUTPUT, PAIR, Ask, Cost, MemoryLimit, Pair, Solver
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


def distance(
    source: str,
    target: str,
    *,
    solver: Solver = None,
    cost: Cost = None,
    standard_error: int | None = None,
    sliced: int | None = None,
    memory_limit: MemoryLimit = None,
    run: Ask = ASK,
) -> None:
    """Compute the distance between two labeled datasets (OTDD), class by class.

    Args:
        source: One dataset.
        target: The other dataset.
        standard_error: Estimate the standard error by this many bootstrap draws.
        sliced: Compute the sliced distance with this many projections, in n log n time.

    Example:
        advect distance digits mnist --max-samples 300
    """
    with session(run) as running:
        import torch

        a, b, _ = running.pair(source, target)
        facts: dict[str, Any] = {"n_samples": [len(a), len(b)]}
        generator = torch.Generator().manual_seed(run.seed)
        title, converged = f"{source} and {target}", True
        if sliced is not None:
            refuse_if(
                solver or set(cost or {}) - {"label_weight"},
                "the sliced distance has no solver or label cost",
                "--solver or --cost",
                "Use --cost.label-weight alone, or leave --sliced out.",
            )
            weight = float((cost or {}).get("label_weight", 1.0))
            value = ad.sliced_otdd(a, b, sliced, label_weight=weight, generator=generator)
            names = ("value", "energy", "standard_error")
            result: Any = Facts({name: getattr(value, name) for name in names})
            facts["n_projections"] = sliced
        else:
            method = registry.make("solver", solver or {})
            ground = running.cost(cost, a, b)
            result = ad.otdd(a, b, cost=ground, solver=method, memory_limit=memory_limit)
            converged = result.converged
            if method.reach is not None:
                facts["mass_left"] = result.mass_left
            if standard_error is not None:
                facts["standard_error"] = result.standard_error(standard_error, generator=generator)
                running.note(f"standard error {facts['standard_error']:.3g}")
        running.finish(result, facts, title=title, converged=converged)


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
    what = "pairs need two or more datasets"
    refuse_if(len(references) < 2, what, f"{len(references)} dataset", "Add references.")
    with session(run) as running:
        directory = None if out is None else out.expanduser()
        if directory is not None and not (directory / "pairs").is_dir():
            refuse_if(
                directory.exists() and (not directory.is_dir() or any(directory.iterdir())),
                "advect did not write this directory",
                directory,
                "Choose another directory.",
            )
        elif directory is not None:
            check_free_file(directory / "distances.json", run.overwrite)
        sets = _in_one_space(references, run.space or {}, running)
        result = ad.pairwise(
            dict(zip(short_names(references), sets, strict=True)),
            cost=running.cost(cost, *sets),
            solver=registry.make("solver", solver or {}),
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
    from advect.spaces.feature_space import in_space_of_largest

    refuse_if(
        {"project", "columns"} & space.keys() or space.get("scale") not in (None, "unit"),
        "several datasets cannot share a space that is fitted to two",
        "space.scale, space.project or space.columns",
        "Convert them first with advect data convert, or use space.size and space.channels.",
    )
    sets = [running.load(reference) for reference in references]
    if len({data.sample_shape for data in sets}) == 1 and not space:
        return sets
    return in_space_of_largest(sets, running.space)

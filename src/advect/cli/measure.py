"""``advect distance`` and ``advect matrix``: distances between labeled datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect._util import registry
from advect.cli.options import OUTPUT, RUN, Cost, MemoryLimit, Page, Run, Solver, Space
from advect.cli.session import FAILED, PAGES, Exit, Facts, Session, say, session, short_names
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.cli.options import Table


def distance(
    source: str,
    target: str,
    *,
    solver: Solver = None,
    cost: Cost = None,
    space: Space = None,
    standard_error: int | None = None,
    sliced: int | None = None,
    report: Page = None,
    memory_limit: MemoryLimit = None,
    run: Run = RUN,
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
    with session(run, cost, space) as running:
        import torch

        import advect as ad

        page = running.place(report, PAGES)
        a, b, _ = running.pair(source, target, space)
        facts: dict[str, Any] = {"source": source, "target": target, "n_samples": [len(a), len(b)]}
        generator = torch.Generator().manual_seed(run.seed)
        if sliced is not None:
            if solver or set(cost or {}) - {"label_weight"}:
                got = "--solver or --cost"
                remedy = "Use --cost.label-weight alone, or leave --sliced out."
                raise InputError("the sliced distance has no solver or label cost", got, remedy)
            weight = float((cost or {}).get("label_weight", 1.0))
            result: Any = ad.sliced_otdd(a, b, sliced, label_weight=weight, generator=generator)
            facts |= {"value": result.value, "energy": result.energy}
            facts |= {"standard_error": result.standard_error, "n_projections": sliced}
            running.finish(Facts(facts))
            return
        method = registry.make("solver", solver or {})
        ground = running.cost(cost, a, b)
        result = ad.otdd(a, b, cost=ground, solver=method, memory_limit=memory_limit)
        if method.leaves_mass:
            facts["mass_left"] = result.mass_left
        if standard_error is not None:
            facts["standard_error"] = result.standard_error(standard_error, generator=generator)
        title = f"{source} and {target}"
        running.finish(result, facts, page=page, title=title, converged=result.converged)
        if standard_error is not None and not run.json:
            print(f"standard error {facts['standard_error']:.3g}")


def matrix(
    *references: str,
    out: Annotated[
        Path | None,
        Parameter(alias="-o", group=OUTPUT, help="Directory for distances.json, .csv and .html."),
    ] = None,
    solver: Solver = None,
    cost: Cost = None,
    space: Space = None,
    n_jobs: Annotated[
        int, Parameter(alias="-j", help="Number of parallel jobs; -1 uses all cores.")
    ] = 1,
    memory_limit: MemoryLimit = None,
    run: Run = RUN,
) -> None:
    """Compute the distances between all pairs of several datasets.

    With -o, finished pairs are stored, and an interrupted command computes only the missing ones.

    Args:
        references: Two or more datasets.

    Example:
        advect matrix toy:gaussians toy:moons toy:rings --max-samples 100 -o distances
    """
    if len(references) < 2:
        got = f"{len(references)} dataset"
        raise InputError("pairs need two or more datasets", got, "Add references.")
    with session(run, cost, space) as running:
        import advect as ad

        directory = None if out is None else out.expanduser()
        if directory is not None and not (directory / "pairs").is_dir():
            if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
                remedy = "Choose another directory."
                raise InputError("advect did not write this directory", directory, remedy)
        elif directory is not None:
            running.place(directory / "distances.json")
        sets = _in_one_space(references, space, running)
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
            running.recheck()
            _write_matrix(directory, result)
        facts = {"references": list(references)}
        converged = bool(result.converged.all())
        running.finish(result, facts, {"out": directory}, converged=converged)
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
    write_atomically(directory / "distances.json", json.dumps(result.to_dict(), indent=1).encode())


def _in_one_space(
    references: tuple[str, ...], space: Table, running: Session
) -> list[ad.LabeledDataset]:
    """All datasets in one space: unchanged if they fit, images in the size and colors of the largest."""
    from advect.spaces.harmonize import in_space_of_largest

    pairwise = {"project", "columns"} & (space or {}).keys()
    if pairwise or (space or {}).get("scale") not in (None, "unit"):
        raise InputError(
            "several datasets cannot share a space that is fitted to two",
            "space.scale, space.project or space.columns",
            "Convert them first with advect data convert, or use space.size and space.channels.",
        )
    sets = [running.load(reference) for reference in references]
    if len({data.sample_shape for data in sets}) == 1 and not space:
        return sets
    return in_space_of_largest(sets, lambda a, b: running.space(a, b, space))

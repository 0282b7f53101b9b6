"""Questions about datasets: ``advect drift``, ``compare``, ``shares``, ``audit`` and ``suggest``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from advect._util import registry
from advect._util.atomic import write_atomically
from advect.cli.options import (
    OUTPUT,
    RUN,
    Cost,
    Embedding,
    MemoryLimit,
    Page,
    Reading,
    Run,
    Solver,
    Space,
)
from advect.cli.rundir import write_json
from advect.cli.session import DATA_FILES, DRIFTED, PAGES, Exit, absolute_reference, session

Level = Annotated[float, Parameter(help="Probability of a false alarm.")]


def _file(text: str, suffix: str) -> Parameter:
    return Parameter(alias="-o", group=OUTPUT, metavar=f"FILE{suffix}", help=text)


def drift(
    reference: str,
    window: str,
    *,
    level: Level = 0.05,
    n_permutations: int = 999,
    embedding: Embedding = "auto",
    space: Space = None,
    report: Page = None,
    run: Run = RUN,
) -> None:
    """Test whether a window of data still follows the distribution of a reference, and which class changed.

    Labels of the window may be missing. The exit code is 4 if drift is found.

    Args:
        reference: The data to compare with.
        window: New samples.
        n_permutations: Permutations of each test.

    Example:
        advect drift 'digits?n=300' 'digits?n=300&seed=1' --report drift.html
    """
    with session(run, space, code=[embedding]) as running:
        import advect as ad

        page = running.place(report, PAGES)
        sets = [running.load(one) for one in (reference, window)]
        (before, after), _ = running.in_space(sets, space)
        result = ad.drift(
            before,
            after,
            level=level,
            embedding=running.embedding(embedding),
            n_permutations=n_permutations,
            seed=run.seed,
            progress=running.progress,
        )
        facts = {"reference": reference, "window": window}
        running.finish(result, facts, page=page, title=f"{window} and {reference}")
        if result.drifted:
            raise Exit(DRIFTED)


def compare(
    synthetic: str,
    real: str,
    *,
    held_out: str | None = None,
    repeats: int = 20,
    level: Level = 0.05,
    cost: Cost = None,
    space: Space = None,
    out: Annotated[Path | None, _file("Write all numbers, .csv or .json.", ".csv")] = None,
    report: Page = None,
    run: Run = RUN,
) -> None:
    """Compare generated samples with real ones, class by class.

    Every measure comes with its value between two halves of the real data.

    Args:
        synthetic: The generated samples.
        real: The samples that they imitate.
        held_out: Real samples that the generator did not see.
        repeats: Number of draws, and of splits of the real data.

    Example:
        advect compare 'digits?n=600' 'digits?n=600&seed=1' --repeats 10 --report compare.html
    """
    with session(run, cost, space) as running:
        import advect as ad

        file = running.place(out, (".csv", ".json"))
        page = running.place(report, PAGES)
        names = [synthetic, real, *([held_out] if held_out else [])]
        sets, _ = running.in_space([running.load(name) for name in names], space)
        result = ad.compare(
            *sets,
            cost=running.cost(cost),
            repeats=repeats,
            level=level,
            seed=run.seed,
            progress=running.progress,
        )
        running.recheck()
        if file is not None and file.suffix.lower() == ".json":
            write_json(file, result.to_dict())
        elif file is not None:
            write_atomically(file, result.to_pandas().to_csv(index=False).encode())
        facts = {"synthetic": synthetic, "real": real, "held_out": held_out}
        title = f"{synthetic} and {real}"
        running.finish(result, facts, {"out": file}, page=page, title=title)


def shares(
    source: str,
    target: str,
    *,
    solver: Solver = None,
    space: Space = None,
    out: Annotated[
        Path | None, _file("Write the source with these proportions as weights.", ".npz")
    ] = None,
    report: Page = None,
    run: Run = RUN,
) -> None:
    """Estimate the class proportions of a dataset without labels.

    Args:
        source: Labeled samples.
        target: Samples in which the proportions of their classes are estimated. Labels are not used.

    Example:
        advect shares 'digits?n=300&balanced=true' 'digits?n=300&seed=1'
    """
    with session(run, space) as running:
        import advect as ad

        file = running.place(out, (".npz",))
        page = running.place(report, PAGES)
        a, b, _ = running.pair(source, target, space)
        method = registry.make("solver", solver) if solver else None
        result = ad.class_shares(a, b, solver=method)
        running.recheck()
        if file is not None:
            result.reweighted().save(file, overwrite=run.overwrite)
        facts = {"source": source, "target": target, "n_samples": [len(a), len(b)]}
        title = f"Class proportions of {target}"
        files = {"out": file}
        running.finish(result, facts, files, page=page, title=title, converged=result.converged)


def audit(
    data: str,
    reference: str | None = None,
    *,
    embedding: Embedding = "auto",
    space: Space = None,
    out: Annotated[
        Path | None, _file("Write a table with one row for each sample.", ".csv")
    ] = None,
    cleaned: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Write the data without suspect samples.")
    ] = None,
    report: Page = None,
    run: Run = RUN,
) -> None:
    """Find samples of a dataset that are mislabeled, atypical, duplicated or missing.

    Each sample is compared with the others, or with those of a reference.

    Args:
        data: A labeled dataset.
        reference: Data that is known to be correct.

    Example:
        advect audit 'digits?n=500' -o audit.csv --report audit.html
    """
    with session(run, space, code=[embedding]) as running:
        import advect as ad

        table = running.place(out, (".csv",))
        page = running.place(report, PAGES)
        clean = running.place(cleaned, DATA_FILES)
        raw = [running.load(one) for one in (data, reference) if one is not None]
        sets, _ = running.in_space(raw, space) if len(raw) > 1 or space else (raw, None)
        result = ad.audit(
            *sets, embedding=running.embedding(embedding), seed=run.seed, progress=running.progress
        )
        known = raw[1] if len(raw) > 1 else None
        result = dataclasses.replace(result, data=raw[0], reference=known)  # in the user's units
        running.recheck()
        if table is not None:
            write_atomically(table, result.to_pandas().to_csv(index=False).encode())
        if clean is not None:
            result.data.without(result.suspects).save(clean, overwrite=run.overwrite)
        facts, files = {"data": data, "reference": reference}, {"out": table, "cleaned": clean}
        running.finish(result, facts, files, page=page, title=f"Audit of {data}")


def suggest(
    source: str,
    target: str,
    *,
    space: Space = None,
    out: Annotated[Path | None, _file("Write a configuration for advect flow.", ".toml")] = None,
    memory_limit: MemoryLimit = None,
    run: Run = RUN,
) -> None:
    """Choose the parameters of a flow from the data, with a reason for each.

    Args:
        source: The dataset that would move.
        target: The dataset to move toward.

    Example:
        advect suggest digits mnist --max-samples 500 -o flow.toml
    """
    with session(run, space) as running:
        import advect as ad

        file = running.place(out, (".toml",))
        a, b, _ = running.pair(source, target, space)
        result = ad.suggest(a, b, memory_limit=memory_limit)
        if file is not None:
            running.recheck()
            ends = [absolute_reference(source), absolute_reference(target)]
            write_atomically(file, _configuration(result, ends, run, space).encode())
        facts = {"source": source, "target": target}
        running.finish(result, facts, {"out": file})


def _configuration(result: Any, ends: list[str], read: Reading, space: Any) -> str:
    """TOML for ``advect flow -c``."""
    import tomlkit

    usual = dataclasses.asdict(Reading())
    table = {name: getattr(read, name) for name in usual if getattr(read, name) != usual[name]}
    table |= {"source": ends[0], "target": ends[1], "n_steps": result.n_steps}
    table["equal_mass"] = result.equal_mass or read.equal_mass
    for part in ("cost", "solver", "dynamics", "integrator"):
        values = registry.describe(part, getattr(result, part))
        table[part] = {name: value for name, value in values.items() if value is not None}
    return tomlkit.dumps(table | ({"space": dict(space)} if space else {}))

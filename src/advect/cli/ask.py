"""Data quality and settings: ``advect drift``, ``compare``, ``audit``, ``adapt`` and ``suggest``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import advect as ad
from advect._util import write_atomically
from advect.cli.flow import choose
from advect.cli.options import (
    ASK,
    OUTPUT,
    PAIR,
    Ask,
    Cost,
    Embedding,
    FlowSettings,
    MemoryLimit,
    Pair,
    Reading,
)
from advect.cli.rundir import RunConfig
from advect.cli.session import DATA_FILES, DRIFTED, Exit, absolute_reference, session, write_table

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
    run: Ask = ASK,
) -> None:
    """Test whether new data has the distribution of a reference, and which class changed.

    Labels of the window may be missing. The exit code is 4 if drift is found.

    Args:
        reference: The reference data.
        window: The new data.
        n_permutations: Number of permutations of each test.

    Example:
        advect drift 'digits?n=300' 'digits?n=300&seed=1' --report drift.html
    """
    with session(run) as running:
        before, after = running.in_space(running.load(reference), running.load(window))
        result = ad.drift(
            before,
            after,
            level=level,
            embedding=running.embedding(embedding),
            n_permutations=n_permutations,
            seed=run.seed,
            progress=running.progress,
        )
        running.finish(result, title=f"{window} against {reference}")
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
    out: Annotated[Path | None, _file("Write all numbers to this file.", ".csv")] = None,
    run: Ask = ASK,
) -> None:
    """Compare generated samples with real ones, class by class.

    Every measure is compared with its value between two halves of the real data.

    Args:
        synthetic: The generated samples.
        real: Real samples to compare with.
        held_out: Real samples that the generator did not see.
        repeats: Number of random draws, and of random splits of the real data.

    Example:
        advect compare 'digits?n=600' 'digits?n=600&seed=1' --report compare.html
    """
    with session(run) as running:
        running.file("out", out, ".csv")
        names = [name for name in (synthetic, real, held_out) if name is not None]
        result = ad.compare(
            *running.sampled(running.in_space(*map(running.load, names)), "search", *names),
            cost=None if cost is None else running.cost(cost),
            repeats=repeats,
            level=level,
            seed=run.seed,
            progress=running.progress,
        )
        running.write("out", lambda path: write_table(path, result))
        running.finish(result, title=f"{synthetic} against {real}")


def audit(
    data: str,
    reference: str | None = None,
    *,
    embedding: Embedding = "auto",
    out: Annotated[
        Path | None, _file("Write a table with one row for each sample.", ".csv")
    ] = None,
    cleaned: Annotated[
        Path | None, Parameter(group=OUTPUT, help="Write the data without suspect samples.")
    ] = None,
    run: Ask = ASK,
) -> None:
    """Find mislabeled samples, outliers and duplicates in a dataset.

    Each sample is compared with the others, or with a reference. With a reference, samples
    that are missing from the dataset are listed too.

    Args:
        data: A labeled dataset.
        reference: Data with trusted labels.

    Example:
        advect audit 'digits?n=500' -o audit.csv --report audit.html
    """
    with session(run) as running:
        running.file("out", out, ".csv")
        running.file("cleaned", cleaned, *DATA_FILES)
        names = [one for one in (data, reference) if one is not None]
        raw = list(map(running.load, names))
        result = ad.audit(
            *running.in_space(*raw),
            embedding=running.embedding(embedding),
            max_samples=running.most(*names),
            seed=run.seed,
            progress=running.progress,
        )
        result = dataclasses.replace(
            result, data=raw[0], reference=None if reference is None else raw[1]
        )  # in the user's units
        clean = result.data.without(result.suspects)
        running.write("out", lambda path: write_table(path, result))
        running.write("cleaned", lambda path: clean.save(path, overwrite=run.overwrite))
        running.finish(result, title=f"Audit of {data}")


def adapt(
    source: str,
    target: str,
    *,
    out: Annotated[
        Path | None, Parameter(group=OUTPUT, alias="-o", help="Write the training set.")
    ] = None,
    run: Ask = ASK,
) -> None:
    """Tell how a target differs from a labeled source, and make a training set for it.

    Some labels of the target make the choice reliable, ten are enough. The training set has the units of the target,
    and weights.

    Args:
        source: Labeled data.
        target: Data of the same classes, some or none of it with labels.

    Example:
        advect adapt 'digits?n=300' 'digits?n=300&seed=1' -o adapted.npz
    """
    with session(run) as running:
        from advect.io.run_frames import in_units

        running.file("out", out, *DATA_FILES)
        a, b, common = running.pair(source, target)
        result = ad.adapt(a, b, max_samples=running.most(source, target))
        made = in_units(result.dataset, common, "target", target)
        running.write("out", lambda path: made.save(path, overwrite=run.overwrite))
        running.finish(result, title=f"{target} with {source}")


def suggest(
    source: str,
    target: str,
    *,
    out: Annotated[Path | None, _file("Write a configuration for advect flow.", ".toml")] = None,
    memory_limit: MemoryLimit = None,
    run: Pair = PAIR,
) -> None:
    """Show the options that advect flow chooses from the data, with a reason for each.

    Args:
        source: The dataset to move.
        target: The dataset to move toward.

    Example:
        advect suggest digits mnist --max-samples 500 -o flow.toml
    """
    with session(run) as running:
        running.file("out", out, ".toml")
        a, b, _ = running.pair(source, target)
        fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(Reading)}
        settings = FlowSettings(**fields, space=run.space, memory_limit=memory_limit)
        settings, result = choose(settings, a, b, running.most(source, target))
        places = absolute_reference(source), absolute_reference(target)
        config = RunConfig(*places, settings).to_toml().encode()
        running.write("out", lambda path: write_atomically(path, config))
        running.finish(result)

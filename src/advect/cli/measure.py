"""``advect distance`` and ``advect matrix``: how far labeled datasets are from one another."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect._util.checks import check_count
from advect.cli.config import SOLVERS, Comparison, Overwrite, RunCode, Strict
from advect.cli.options import group
from advect.cli.output import FAILED, TALK, Talk, TalkOptions, leave, note_lines, noted, say, table
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.cli.code import Permission


class SolverOptions(group("solver", "sinkhorn", SOLVERS)):
    """How transport problems are solved."""


class MeasureOptions(Comparison):
    """All that a distance depends on besides its datasets."""

    solver: Annotated[SolverOptions, Parameter(group=SECTIONS["Solver"])] = (
        SolverOptions.model_construct()
    )


Measuring = Annotated[MeasureOptions, Parameter(name="*")]


def distance(
    source: str,
    target: str,
    *,
    options: Measuring = MeasureOptions.model_construct(),  # noqa: B008 (frozen)
    standard_error: Annotated[
        int | None,
        Parameter(
            help="Draw the samples again so many times, with replacement, and say how much the distance "
            "varies: a check of the interval, for so many times the work."
        ),
    ] = None,
    sliced: Annotated[
        str | None,
        Parameter(
            help="A sliced distance instead, which takes n log n: gaussian, principal or moments."
        ),
    ] = None,
    projections: Annotated[int, Parameter(help="Lines of a sliced distance.")] = 500,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """The distance between two labeled datasets.

    Args:
        source: One dataset.
        target: The other.
    """
    import torch

    import advect as ad
    from advect.cli import build, inputs, sliced as slices
    from advect.cli.typed import permission

    if standard_error is not None:
        check_count("--standard-error", standard_error, least=2)
    code = permission(run_code, [options.cost.embedding, *options.space.code])
    with talk.listening() as unconverged:
        a, b, _ = inputs.together((source, target), options, options.space, talk, code)
        begun = time.perf_counter()
        if sliced is not None:
            slices.check(standard_error, options.solver.model_fields_set)
            told, line = slices.sliced(sliced, a, b, options.cost.given, projections, options.seed)
            told["seconds"] = round(time.perf_counter() - begun, 3)
            talk.result({"source": source, "target": target, **told}, line)
            return
        cost, solver = build.cost(options.cost, code, a, b), options.solver.built()
        found = ad.otdd(a, b, cost=cost, solver=solver, memory_limit=options.memory_limit)
        facts: dict[str, Any] = {
            "source": source,
            "target": target,
            "value": found.value,
            "energy": found.energy,
            "error": found.error,
            "converged": found.converged,
            "marginal_error": found.marginal_error,
            "epsilon": found.epsilon,
            "iterations": found.n_iter,
            "n": [len(a), len(b)],
            "notes": noted(found.notes),
        }
        state = "converged" if found.converged else "not converged"
        lines = [
            f"distance {found.value:.6g} (energy {found.energy:.6g} ± {found.error:.2g}, {state})"
        ]
        facts["interval"] = _interval(found)
        if facts["interval"] is not None and found.value > 0:
            low, high = facts["interval"]
            lines.append(
                f"95 % interval {low:#.4g} to {high:#.4g}, over other draws of as many samples of each class"
            )
        if standard_error is not None:
            generator = torch.Generator().manual_seed(options.seed)
            facts["standard_error"] = found.standard_error(standard_error, generator=generator)
            lines.append(
                f"standard error {facts['standard_error']:.3g}, by {standard_error} draws with replacement"
            )
        if solver.leaves_mass:
            facts["mass_left"] = found.mass_left
            lines.append(f"mass left behind {found.mass_left:.1%}")
            for side, data in (("source", a), ("target", b)):
                if data.complete and data.classes:
                    left = getattr(found, f"left_in_{side}")
                    facts[f"left_in_{side}"] = table(left.values, left.rows, left.columns)
                    lines += [
                        "",
                        f"mass of the classes of {facts[side]}, and what is left:",
                        str(left),
                    ]
        if cost.label_cost.costs:
            distances, matching = found.class_distances, found.class_matching
            facts["class_distances"] = table(distances.values, distances.rows, distances.columns)
            facts["class_matching"] = table(matching.values, matching.rows, matching.columns)
            sides = f"rows are classes of {source}, columns of {target}"
            lines += ["", f"distances between classes ({sides}):", str(distances)]
            lines += ["", f"matching of classes, as shares of mass ({sides}):", str(matching)]
        lines += ["", *note_lines(facts["notes"])] if facts["notes"] else []
        facts["seconds"] = round(time.perf_counter() - begun, 3)
    talk.result(facts, "\n".join(lines))
    talk.end(unconverged if unconverged or found.converged else ["the transport problem"], strict)


def matrix(
    *references: str,
    out: Annotated[
        Path | None,
        Parameter(alias="-o", help="Write distances.csv, .json, .png and .html to this directory."),
    ] = None,
    options: Measuring = MeasureOptions.model_construct(),  # noqa: B008 (frozen)
    jobs: Annotated[
        int, Parameter(alias="-j", help="Pairs at a time; -1 for one on each core.")
    ] = 1,
    overwrite: Overwrite = False,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Distances between all pairs; with --out, pairs that are done are not done again.

    Args:
        references: Two or more datasets.
    """
    from advect.apps.pairwise import pairwise
    from advect.cli import build, inputs
    from advect.cli.layout import Layout
    from advect.cli.places import check_free, check_free_file
    from advect.cli.typed import permission

    if len(references) < 2:
        raise InputError(
            "pairs need two or more datasets", f"{len(references)}", "Give more references."
        )
    if jobs == 0:
        raise InputError("--jobs must be other than 0", "0", "Pass how many, or -1 for every core.")
    code = permission(run_code, [options.cost.embedding, *options.space.code])
    directory = None if out is None else out.expanduser()
    if directory is not None and not (directory / "pairs").is_dir():
        check_free(directory, False, Layout())
    elif directory is not None:
        check_free_file(directory / "distances.json", overwrite or not _finished(directory))
    names = inputs.short_names(references)
    with talk.listening() as unconverged:
        sets = dict(zip(names, in_one_space(references, options, talk, code), strict=True))
        found = pairwise(
            sets,
            cost=build.cost(options.cost, code, *sets.values()),
            solver=options.solver.built(),
            n_jobs=jobs,
            memory_limit=options.memory_limit,
            store=None if directory is None else directory / "pairs",
            progress=talk.progress,
        )
        facts: dict[str, Any] = {
            "names": names,
            "references": references,
            "values": found.values,
            "converged": found.converged,
            "errors": [{"pair": pair, "error": message} for pair, message in found.errors.items()],
            "standard_errors": found.standard_errors,
            "notes": noted(found.notes),
            "out": directory,
        }
        if directory is not None:
            _write(directory, found)
    where = [f"written to {directory}"] if directory else []
    told = [found.text, *note_lines(facts["notes"]), *where]
    talk.result(facts, "\n".join(told))
    for pair, message in found.errors.items():
        say(f"failed: {' and '.join(pair)}: {message}")
    if found.errors:
        leave(FAILED)
    talk.end(
        unconverged or ([] if found.converged.all() else ["the transport problem of a pair"]),
        strict,
    )


def _interval(found: ad.Distance) -> tuple[float, float] | None:
    """None where the first order does not tell."""
    try:
        return found.interval()
    except InputError:
        return None


def _finished(directory: Path) -> bool:
    from advect.apps.pairwise_table import Pairwise

    try:
        return not Pairwise.load(directory / "distances.json").errors
    except InputError:
        return False


def _write(directory: Path, found: Any) -> None:
    import csv
    import io

    from advect import viz
    from advect._util.atomic import write_atomically

    found.save(directory / "distances.json")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["", *found.names])
    writer.writerows(
        [name, *map(repr, row)]
        for name, row in zip(found.names, found.values.tolist(), strict=True)
    )
    write_atomically(directory / "distances.csv", text.getvalue().encode())
    viz.save(viz.pairwise(found.values, found.names), directory / "distances.png")
    found.report(directory / "distances.html")


def in_one_space(
    references: tuple[str, ...], options: Comparison, talk: Talk, code: Permission
) -> list[ad.LabeledDataset]:
    """All datasets in one feature space: as they are where they fit, images in the size and colours
    of the largest.
    """
    from advect.cli import build, inputs
    from advect.data.spaces.harmonize import in_space_of_largest

    space = options.space
    if space.scale not in (None, "unit") or space.project is not None or space.columns is not None:
        raise InputError(
            "several datasets are not brought together two by two",
            "space.scale, space.project or space.columns",
            "Convert them first with advect data convert, or use space.size and space.channels.",
        )
    coders = build.coders(space, code, talk.progress)
    sets = [inputs.load(reference, options, talk) for reference in references]
    shapes = {data.sample_shape for data in sets}
    if len(shapes) == 1 and not space.given:
        return sets
    return in_space_of_largest(sets, lambda a, b: build.space(a, b, space, coders))

"""``advect interpolate`` and ``advect barycenter``: datasets between datasets, as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from advect.cli.config import SOLVERS, Comparison, Out, Overwrite, RunCode, Strict, Units
from advect.cli.options import group
from advect.cli.output import TALK, TalkOptions
from advect.cli.places import check_free, check_free_file
from advect.cli.sections import SECTIONS
from advect.errors import InputError

_PAGES, _TABLES = (".html", ".htm"), (".csv",)


class ExactOptions(group("solver", "exact", SOLVERS)):
    """How transport problems are solved."""


class BetweenOptions(Comparison):
    """How datasets are paired."""

    size: int | None = Field(
        default=None,
        ge=1,
        description="Draw so many samples, of equal weight; by default all pairs, with weights.",
    )
    solver: Annotated[ExactOptions, Parameter(group=SECTIONS["Solver"])] = (
        ExactOptions.model_construct()
    )


class BarycenterOptions(BetweenOptions):
    """How a barycenter is found."""

    max_iterations: int = Field(default=20, ge=0, description="Steps at most.")
    tolerance: float = Field(
        default=1e-4, ge=0, description="Share of the value that the last step may take off."
    )


Page = Annotated[Path | None, Parameter(help="Also write a page, FILE.html.", metavar="FILE.html")]
Probabilities = Annotated[
    Path | None,
    Parameter(
        help="Write soft labels to this file: a row for each sample, a column for each class.",
        metavar="FILE.csv",
    ),
]
_TIMES = Parameter(
    name="--t",
    negative=(),
    metavar="T",
    help="How far, from 0 to 1; give it several times for a path.",
)


def interpolate(
    a: str,
    b: str,
    *,
    t: Annotated[tuple[float, ...], _TIMES] = (0.5,),
    out: Out,
    report: Page = None,
    probabilities: Probabilities = None,
    options: Annotated[BetweenOptions, Parameter(name="*")] = BetweenOptions.model_construct(),  # noqa: B008 (frozen)
    joined: Annotated[
        bool, Parameter(help="Name classes by pairs, '3 → coat', in place of the likelier one.")
    ] = False,
    units: Units = "source",
    overwrite: Overwrite = False,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """The dataset that is some of the way from one to another: .npz, .csv, .tsv, .parquet; without a
    suffix, a folder of PNG images (with --size, since it keeps no weights).

    Of several times each has a file of its own, OUT with -T at the end of its name.

    Args:
        a: Where the way begins.
        b: Where it ends.
    """
    from advect.cli.typed import permission

    for time in t:
        if not 0 <= time <= 1:
            raise InputError("--t is from 0 to 1", time, "Give such a number.")
    if len(set(t)) < len(t):
        raise InputError(
            "--t gives each time once", " ".join(f"{time:g}" for time in t), "Leave one out."
        )
    places = (
        [out.expanduser()] if len(t) == 1 else [_numbered(out.expanduser(), time) for time in t]
    )
    _check_places(
        places, {"report": (report, _PAGES), "probabilities": (probabilities, _TABLES)}, overwrite
    )
    code = permission(run_code, [options.cost.embedding, *options.space.code])
    with talk.listening() as unconverged:
        import torch

        import advect as ad
        from advect.cli import build, inputs
        from advect.datasets.run_frames import in_units

        one, two, space = inputs.together((a, b), options, options.space, talk, code)
        path = ad.interpolate(
            one,
            two,
            list(t),
            cost=build.cost(options.cost, code),
            solver=options.solver.built(),
            size=options.size,
            generator=torch.Generator().manual_seed(options.seed),
            memory_limit=options.memory_limit,
        )
        sets = [state.joined() if joined else state.dataset for state in path]
        plain = [data.replace(law=None, law_index=None) for data in sets]
        back = [in_units(data, space, units, out) for data in plain]
        for data, place in zip(back, places, strict=True):
            data.save(place, overwrite=overwrite)
        if probabilities is not None:
            tables = [(f"{state.t:g}", state.probabilities) for state in path]
            _write_soft(probabilities, ("t",), path[0].dataset.classes, tables)
        if report is not None:
            path.report(report.expanduser(), title=f"From {a} to {b}")
    found = path.distance
    facts: dict[str, Any] = {
        "a": a,
        "b": b,
        "t": list(t),
        "out": places,
        "n": len(sets[0]),
        "distance": found.value,
        "converged": found.converged,
        "classes": list(path[0].dataset.classes),
        "pairs": [[str(name) for name in pair] for pair in path[0].pairs],
        "probabilities": probabilities,
        "report": report,
    }
    lines = [
        f"{place}: {len(data)} samples at {time:g} of the way"
        for place, data, time in zip(places, sets, t, strict=True)
    ]
    lines.append(f"distance {found.value:.6g}, {len(path[0].pairs)} pairs of classes")
    talk.result(facts, "\n".join([*lines, *_told(probabilities, report)]))
    late = [] if found.converged or found.same else ["the transport problem"]
    talk.end(unconverged or late, strict)


def barycenter(
    *references: str,
    weights: Annotated[
        tuple[float, ...],
        Parameter(
            negative=(),
            metavar="W",
            help="One for each dataset, in their order, as in --weights 2 --weights 1; equal by default.",
        ),
    ] = (),
    out: Out,
    report: Page = None,
    probabilities: Probabilities = None,
    options: Annotated[
        BarycenterOptions, Parameter(name="*")
    ] = BarycenterOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """The dataset in the middle of several: .npz, .csv, .tsv, .parquet; without a suffix, a folder of
    PNG images (with --size, since it keeps no weights).

    Args:
        references: One or more datasets; images in the size and colours of the largest.
    """
    from advect.cli.typed import permission

    if not references:
        raise InputError("a barycenter needs datasets", "none", "Give some references.")
    if weights and len(weights) != len(references):
        raise InputError(
            f"there must be a weight for each of the {len(references)} datasets",
            f"{len(weights)}",
            "Give --weights as often.",
        )
    place = out.expanduser()
    _check_places(
        [place], {"report": (report, _PAGES), "probabilities": (probabilities, _TABLES)}, overwrite
    )
    code = permission(run_code, [options.cost.embedding, *options.space.code])
    with talk.listening() as unconverged:
        import torch

        import advect as ad
        from advect.cli import build, inputs
        from advect.cli.measure import in_one_space

        sets = in_one_space(references, options, talk, code)
        found = ad.barycenter(
            sets,
            weights or None,
            cost=build.cost(options.cost, code),
            solver=options.solver.built(),
            size=options.size,
            max_iterations=options.max_iterations,
            tolerance=options.tolerance,
            generator=torch.Generator().manual_seed(options.seed),
            memory_limit=options.memory_limit,
            progress=talk.progress,
        )
        found.dataset.replace(law=None, law_index=None).save(place, overwrite=overwrite)
        if probabilities is not None:
            _write_soft(probabilities, (), found.dataset.classes, [("", found.probabilities)])
        if report is not None:
            names = inputs.short_names(references)
            found.report(report.expanduser(), title=f"Between {', '.join(names)}", names=names)
    facts: dict[str, Any] = {
        "references": references,
        "weights": found.weights,
        "out": place,
        "n": len(found.dataset),
        "value": found.value,
        "values": list(found.values),
        "distances": list(found.distances),
        "converged": found.converged,
        "message": found.message,
        "classes": list(found.dataset.classes),
        "probabilities": probabilities,
        "report": report,
    }
    state = "converged" if found.converged else "not converged"
    lines = [
        f"{place}: {len(found.dataset)} samples",
        f"value {found.values[0]:.6g} → {found.value:.6g} in {found.n_iter} steps, {state} "
        f"({found.message})",
    ]
    talk.result(facts, "\n".join([*lines, *_told(probabilities, report)]))
    talk.end(unconverged or ([] if found.converged else ["the barycenter"]), strict)


def _numbered(place: Path, time: float) -> Path:
    """The place with a time at the end of its name.

    Example:
        >>> _numbered(Path("on/way.csv.gz"), 0.25).name, _numbered(Path("way"), 1.0).name
        ('way-0.25.csv.gz', 'way-1')
    """
    suffix = "".join(place.suffixes[-2:]) if place.suffix == ".gz" else place.suffix
    return place.with_name(f"{place.name.removesuffix(suffix)}-{time:g}{suffix}")


def _check_places(
    places: Sequence[Path], others: dict[str, tuple[Path | None, tuple[str, ...]]], overwrite: bool
) -> None:
    """Free places for datasets of known formats, and for files of these kinds."""
    from advect.data.formats.registry import suffixes_known

    for place in places:
        if not place.suffix:
            check_free(place, overwrite)
            continue
        if place.suffix.lower() != ".gz" and place.suffix.lower() not in suffixes_known():
            known = ", ".join(sorted(suffixes_known()))
            raise InputError("no format has this suffix", place.name, f"Known: {known}.")
        check_free_file(place, overwrite)
    taken = {place.absolute() for place in places}
    for name, (path, suffixes) in others.items():
        if path is None:
            continue
        if path.suffix.lower() not in suffixes:
            raise InputError(
                f"--{name} is a file that ends in {' or '.join(suffixes)}", path, "Rename it."
            )
        if path.expanduser().absolute() in taken:
            raise InputError("two files have one name", path, "Rename one of them.")
        check_free_file(path.expanduser(), overwrite)


def _write_soft(
    path: Path, first: tuple[str, ...], classes: Any, tables: list[tuple[str, Any]]
) -> None:
    from advect._util.atomic import write_atomically

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*first, "row", *map(str, classes)])
    for time, table in tables:
        for row, shares in enumerate(table.tolist()):
            writer.writerow([*([time] if first else []), row, *map(repr, shares)])
    write_atomically(path.expanduser(), text.getvalue().encode())


def _told(probabilities: Path | None, report: Path | None) -> list[str]:
    soft = [] if probabilities is None else [f"{probabilities}: soft labels"]
    return soft + ([] if report is None else [f"open {report}"])

"""``advect compare``: is generated data any good, class by class?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from advect.cli.config import Overwrite, RunCode
from advect.cli.measure import MeasureOptions
from advect.cli.output import TALK, TalkOptions
from advect.cli.places import check_free_file
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad
    from advect.cli.code import Permission
    from advect.cli.output import Talk

_TABLES, _PAGES = (".csv", ".json"), (".html", ".htm")


class CompareOptions(MeasureOptions):
    """How synthetic data is compared."""

    neighbors: int = Field(default=5, ge=1, description="k of coverage and density.")
    quantile: float = Field(
        default=0.01,
        gt=0,
        lt=1,
        description="Of distances of held-out samples to the real ones; who is nearer is memorised.",
    )
    repeats: int = Field(
        default=20, ge=2, description="How many draws, and splits of the real data."
    )
    draw: int = Field(
        default=300, ge=1, description="Samples that a draw takes at most, of a class or of all."
    )
    level: float = Field(
        default=0.05, gt=0, lt=1, description="Chance of a false alarm in a column."
    )


def compare(
    synthetic: str,
    real: str,
    *,
    held_out: Annotated[
        str | None,
        Parameter(help="Real samples that the generator never saw.", metavar="REFERENCE"),
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(alias="-o", help="Write all numbers to this file.", metavar="FILE.csv|FILE.json"),
    ] = None,
    report: Annotated[
        Path | None,
        Parameter(help="Write a page with the samples, FILE.html.", metavar="FILE.html"),
    ] = None,
    options: Annotated[CompareOptions, Parameter(name="*")] = CompareOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Compare generated samples with real ones, class by class.

    Fréchet distance, class shares, confusion, coverage, density, copies of training samples and the
    joint distance, each beside what two halves of the real data give. Exits with 0 whatever it finds.

    Args:
        synthetic: What was generated.
        real: What it is to look like, and was made from.
    """
    from advect.cli.typed import permission

    places = {"out": (out, _TABLES), "report": (report, _PAGES)}
    found_places = {name: _checked(name, *given, overwrite) for name, given in places.items()}
    code = permission(run_code, [options.cost.embedding, *options.space.code])
    with talk.listening():
        import advect as ad
        from advect.cli import build

        sets, shown = _loaded((synthetic, real, held_out), options, talk, code)
        found = ad.compare(
            *sets,
            cost=build.cost(options.cost, code),
            solver=options.solver.built(),
            neighbors=options.neighbors,
            quantile=options.quantile,
            repeats=options.repeats,
            max_samples=options.draw,
            level=options.level,
            seed=options.seed,
            progress=talk.progress,
        )
        for name, (given, suffixes) in places.items():
            _checked(name, given, suffixes, overwrite)  # something may have come since
        if (table := found_places["out"]) is not None:
            found.save(table)
        if (page := found_places["report"]) is not None:
            found.seen_as(*shown).report(page, title=f"{synthetic} beside {real}")
    facts: dict[str, Any] = {"synthetic": synthetic, "real": real, "held_out": held_out}
    facts |= found.to_dict() | {"out": out, "report": report}
    talk.result(facts, _text(found, [each for each in found_places.values() if each is not None]))


def _checked(
    name: str, path: Path | None, suffixes: tuple[str, ...], overwrite: bool
) -> Path | None:
    """A free place for a file of this kind, if one is asked for."""
    if path is None:
        return None
    place = path.expanduser()
    if place.suffix.lower() not in suffixes:
        raise InputError(
            f"--{name} is a file that ends in {' or '.join(suffixes)}", place, "Rename it."
        )
    check_free_file(place, overwrite)
    return place


def _loaded(
    references: tuple[str, str, str | None], options: CompareOptions, talk: Talk, code: Permission
) -> tuple[list[ad.LabeledDataset], tuple[ad.LabeledDataset, ad.LabeledDataset]]:
    """All sets in one feature space, and the first two as they look."""
    from advect.cli import build, inputs

    coders = build.coders(options.space, code, talk.progress)
    raw = [inputs.load(ref, options, talk) for ref in references if ref is not None]
    space = build.space(raw[0], raw[1], options.space, coders)
    talk.detail(space.describe())
    sets = [space.apply(raw[0]), *(space.apply(data, side="target") for data in raw[1:])]
    return sets, (raw[0], raw[1])


def _text(found: ad.Compared, written: list[Path]) -> str:
    lines = [
        "numbers with their floor (two halves of the real data); * is beyond it",
        "",
        str(found),
    ]
    lines += ["", *(f"note: {note}" for note in found.notes)] if found.notes else []
    lines += [f"written to {place}" for place in written]
    return "\n".join(lines)

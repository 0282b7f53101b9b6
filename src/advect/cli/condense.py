"""``advect condense``: a labeled dataset as a few synthetic samples of each class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from pydantic import Field

from advect.cli.config import DataOptions, Overwrite, RunCode, SpaceOptions, Strict
from advect.cli.output import TALK, TalkOptions
from advect.cli.places import check_free_file
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad

_KINDS = (".npz", ".csv", ".parquet")


class CondenseOptions(DataOptions):
    """How a dataset is condensed."""

    per_class: int = Field(default=10, ge=1, description="Synthetic samples of each class.")
    steps: int = Field(default=20, ge=0, description="Steps of the flow; 0 is class-wise k-means.")
    step_size: float = Field(default=1.0, gt=0, description="Of a step, made smaller where needed.")
    embedding: str | None = Field(
        default=None,
        description="Measure distances through path.py:name, a differentiable map of samples.",
    )
    bounds: tuple[float, float] | None = Field(
        default=None, description="Keep features in this range; images stay in theirs, 0 1 say."
    )
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )


def condense(
    data: str,
    *,
    out: Annotated[
        Path, Parameter(alias="-o", help="Write the samples, FILE.npz, .csv or .parquet.")
    ],
    test: Annotated[
        str | None,
        Parameter(help="Labeled samples to compare with k-means, random and all data on."),
    ] = None,
    options: Annotated[CondenseOptions, Parameter(name="*")] = CondenseOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Distil a labeled dataset into a few synthetic samples of each class, weighted by what they stand
    for: class-wise k-means, then a flow.

    Args:
        data: A labeled dataset.
    """
    from advect.cli import build, inputs
    from advect.cli.code import load_object
    from advect.cli.typed import permission
    from advect.datasets.run_frames import in_units

    place = out.expanduser()
    if place.suffix.lower() not in _KINDS:
        raise InputError(
            "condensed samples go to a file", place, f"Let its name end in {', '.join(_KINDS)}."
        )
    check_free_file(place, overwrite)
    code = permission(run_code, [options.embedding, *options.space.code])
    with talk.listening() as unconverged:
        import advect as ad

        raw = inputs.load(data, options, talk)
        held = None if test is None else inputs.load(test, options, talk)
        space = None
        if options.space.given:
            coders = build.coders(options.space, code, talk.progress)
            space = build.space(raw, raw, options.space, coders)
            talk.detail(space.describe())
            raw, held = (None if part is None else space.apply(part) for part in (raw, held))
        assert raw is not None
        found = None
        if options.embedding is not None:
            found = load_object(options.embedding, "an embedding", code)
        made = ad.apps.condense(
            raw,
            options.per_class,
            embedding=found,
            n_steps=options.steps,
            step_size=options.step_size,
            bounds=options.bounds,
            seed=options.seed,
            progress=talk.progress,
        )
        scores = None if held is None else made.evaluate(held, seed=options.seed)
        facts = _facts(made) | {"data": data, "out": place, "test": test, "accuracies": scores}
        check_free_file(place, overwrite)  # something may have come since
        written = made.dataset if space is None else in_units(made.dataset, space, "source", data)
        written.save(place, overwrite=overwrite)
    talk.result(facts, _text(facts))
    talk.end(unconverged, strict)


def _facts(made: ad.apps.Condensed) -> dict[str, Any]:
    return {
        "n": len(made.dataset),
        "of": len(made.data),
        "per_class": made.per_class,
        "counts": made.dataset.counts,
        "first_value": made.result.values[0],
        "value": made.result.values[-1],
        "status": made.result.status,
        "notes": list(made.notes),
    }


def _text(facts: dict[str, Any]) -> str:
    lines = [
        f"{facts['out']}: {facts['n']} samples for {facts['of']}; "
        f"value {facts['first_value']:.4g} (k-means) → {facts['value']:.4g}"
    ]
    if facts["accuracies"] is not None:
        shown = ", ".join(f"{name} {value:.1%}" for name, value in facts["accuracies"].items())
        lines.append(f"accuracy of logistic regression on {facts['test']}: {shown}")
    return "\n".join(lines + [f"note: {note}" for note in facts["notes"]])

"""``advect transfer`` and ``advect repurpose``: what people come for, with files at both ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field

from advect._util import defaults
from advect.cli.app_output import answers, of_flow, repurpose_page, scored, transfer_page
from advect.cli.code import Permission, is_code
from advect.cli.config import (
    FLOW_TOL,
    SOLVERS,
    AnyCost,
    DataOptions,
    FlowSolverOptions,
    Out,
    Overwrite,
    RunCode,
    SpaceOptions,
    Strict,
)
from advect.cli.layout import Sets
from advect.cli.maps import MapOptions
from advect.cli.options import group
from advect.cli.output import TALK, Talk, TalkOptions
from advect.cli.places import check_free
from advect.cli.rundir import write_json
from advect.cli.sections import SECTIONS
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad


class TransferSolverOptions(
    group(
        "solver",
        "sinkhorn",
        SOLVERS,
        {"sinkhorn": {"relative_epsilon": defaults.FEW.epsilon, **FLOW_TOL}},
    )
):
    """How transport problems are solved on the way to a few samples."""


class TransferCostOptions(
    group(
        "cost", "ground", own={"ground": {"label_weight": defaults.FEW.label_weight}}, base=AnyCost
    )
):
    """The ground cost on the way to a few samples: labels weigh more than elsewhere."""


class RepurposeCostOptions(
    group(
        "cost", "ground", own={"ground": {"label_weight": defaults.USE.label_weight}}, base=AnyCost
    )
):
    """The ground cost on the way to where a model works."""


class CarryOptions(DataOptions):
    """How an application carries a dataset to another."""

    steps: int = Field(default=defaults.USE.n_steps, ge=1, description="How many steps.")
    step_size: float = Field(default=defaults.USE.step_size, description="Flow time of a step.")
    bounds: tuple[float, float] | None = Field(
        default=None,
        description="Keep features in this range; images stay in theirs, 0 1 say, unless -inf inf is given.",
    )
    every: int = Field(default=10, ge=1, description="Look at states whose index divides by this.")
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )
    map: Annotated[MapOptions, Parameter(group=SECTIONS["Map"])] = MapOptions.model_construct()


class RepurposeOptions(CarryOptions):
    """How data is carried to where a model works."""

    posterior: str | None = Field(
        default=None,
        description="Who says which class a sample without a label may have: particles, nearest, "
        "logistic, forest, mean, or auto, the best by cross-validation.",
    )
    features: str | None = Field(
        default=None,
        description="A layer of the model by its name, or path.py:function of samples: what it "
        "gives is clustered, flows and is mapped.",
    )
    head: str | None = Field(
        default=None,
        description="What answers for features, a layer or path.py:function; not needed where the "
        "model is a chain of layers.",
    )
    compare: bool = Field(
        default=True,
        description="Keep a fifth of the labels aside and compare with not flowing; takes another flow.",
    )

    cost: Annotated[RepurposeCostOptions, Parameter(group=SECTIONS["Ground cost"])] = (
        RepurposeCostOptions.model_construct()
    )
    solver: Annotated[FlowSolverOptions, Parameter(group=SECTIONS["Solver"])] = (
        FlowSolverOptions.model_construct()
    )


class TransferOptions(CarryOptions):
    """How a source enlarges a few samples, and is carried to them."""

    among: tuple[str, ...] = Field(
        default=("calibrated", "shots", "mixed", "source + borrowed"),
        description="Ways to enlarge the few samples, of which cross-validation chooses; the first is the "
        "one to beat, or one with the source itself, where it knows the few by the names of its classes; "
        "with thirty samples of each class, the few alone.",
    )
    added: int | None = Field(
        default=None,
        ge=1,
        description="Samples that the way adds; as many as the source has by default.",
    )
    few_share: float = Field(
        default=0.5, gt=0, lt=1, description="Mass of the few samples in what is recommended."
    )
    flow: bool = Field(
        default=True, description="Also flow to the few samples, for final, way and mapped."
    )

    cost: Annotated[TransferCostOptions, Parameter(group=SECTIONS["Ground cost"])] = (
        TransferCostOptions.model_construct()
    )
    solver: Annotated[TransferSolverOptions, Parameter(group=SECTIONS["Solver"])] = (
        TransferSolverOptions.model_construct()
    )


Format = Annotated[
    Literal["npz", "csv", "parquet"], Parameter(help="Of the datasets that are written.")
]

Page = Annotated[bool, Parameter(help="Also write a page about it, which opens in any browser.")]


def transfer(
    source: str,
    target: str,
    *,
    out: Out,
    extra: Annotated[
        str | None, Parameter(help="More samples of the source, to be carried by the map.")
    ] = None,
    options: Annotated[TransferOptions, Parameter(name="*")] = TransferOptions.model_construct(),  # noqa: B008 (frozen)
    format: Format = "npz",
    report: Page = True,
    overwrite: Overwrite = False,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Training sets for a few labeled samples, made with a large source; writes recommended, chosen by
    cross-validation, and of a flow final, way and mapped, under the labels, in the units, of the
    target.

    Args:
        source: Plenty of labeled samples.
        target: A few labeled samples.
    """
    import advect as ad
    from advect._util.atomic import atomic_directory
    from advect.cli import inputs
    from advect.cli.typed import permission
    from advect.datasets.run_frames import in_units

    if extra is not None and not options.flow:
        raise InputError(
            "extra samples are carried by the map of a flow",
            "--extra with --no-flow",
            "Leave one of them out.",
        )
    place = out.expanduser()
    check_free(place, overwrite, Sets())
    code = permission(run_code, [options.cost.embedding, *options.space.code])
    with talk.listening() as unconverged:
        data, few, space = inputs.together((source, target), options, options.space, talk, code)
        more = None if extra is None else space.apply(inputs.load(extra, options, talk))
        chosen = ad.apps.TransferOptions(
            **_carry(options, talk, code, data, few),
            among=options.among,
            n=options.added,
            few_share=options.few_share,
            seed=options.seed,
        )
        made = ad.apps.transfer(data, few, extra=more, options=chosen)
        sets = {"recommended": made.recommended}
        if options.flow:
            forms = {"final": made.final, "way": made.way, "mapped": made.mapped}
            sets |= {name: part for name, part in forms.items() if part is not None}
        sets = {name: in_units(part, space, "target", target) for name, part in sets.items()}
        facts: dict[str, Any] = {
            "source": source,
            "target": target,
            "out": place,
            "chosen": made.choice.way,
            "reason": made.choice.reason,
            "cross_validation": made.choice.accuracies,
            **(of_flow(made) if options.flow else {}),
            "sets": {
                name: {"file": f"{name}.{format}", "n": len(part)} for name, part in sets.items()
            },
            "report": None,
        }
        with atomic_directory(place, overwrite=overwrite) as beside:
            for name, part in sets.items():
                part.save(beside / f"{name}.{format}")
            if report:
                names = inputs.short_names([target, source])
                facts["report"] = transfer_page(made, beside, names, options.flow, talk)
            write_json(beside / "result.json", facts)
            check_free(place, overwrite, Sets())  # something may have come since
    lines = [f"{place / f'{name}.{format}'}: {len(part)} samples" for name, part in sets.items()]
    lines.append(f"recommended is {made.choice}")
    if options.flow:
        pairs = ", ".join(f"{a} → {b}" for a, b in made.matching.hard.items())
        lines.append(
            f"value {facts['first_value']:.6g} → {facts['value']:.6g}; classes {pairs}; purity "
            f"{made.purity:.1%}"
        )
    lines += [] if facts["report"] is None else [f"open {place / 'report.html'}"]
    talk.result(facts, "\n".join(lines))
    talk.end(unconverged, strict)


def repurpose(
    model: str,
    reference: str,
    *datasets: str,
    out: Out,
    options: Annotated[RepurposeOptions, Parameter(name="*")] = RepurposeOptions.model_construct(),  # noqa: B008 (frozen)
    format: Format = "npz",
    report: Page = True,
    overwrite: Overwrite = False,
    strict: Strict = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Classify datasets with a model that was made for another one: they flow to where it works,
    and are read there.

    Args:
        model: path.py:name (a torch module, an estimator, a function of samples) or path.onnx.
        reference: A labeled sample of what the model was trained on.
        datasets: What to classify, one or more; labeled, partly labeled or not.
    """
    import advect as ad
    from advect._util.atomic import atomic_directory, write_atomically
    from advect.cli import build, inputs
    from advect.cli.models import load_model
    from advect.cli.typed import permission

    if not datasets:
        raise InputError(
            "there is nothing to classify", "no datasets", "Give one or more after the reference."
        )
    place = out.expanduser()
    check_free(place, overwrite, Sets())
    named = [text for text in (model, options.features, options.head) if text and is_code(text)]
    code = permission(run_code, [options.cost.embedding, *named, *options.space.code])
    with talk.listening() as unconverged:
        asked, coders = load_model(model, code), build.coders(options.space, code, talk.progress)
        inside = {
            "features": _part(options.features, "features", code),
            "head": _part(options.head, "a head", code),
        }
        base = inputs.load(reference, options, talk)
        names = inputs.short_names(datasets)
        loaded = {
            name: inputs.load(ref, options, talk) for name, ref in zip(names, datasets, strict=True)
        }
        fitted = {name: _as_reference(data, base, options, coders) for name, data in loaded.items()}
        if coders:
            talk.note("flowed samples are written in the features of the encoder")
        found = {}
        for name, (data, known) in fitted.items():
            talk.note(f"{name}: {len(data)} samples flow to {reference}")
            held = () if options.features else (known, data)  # bounds of images, not of features
            carry = _carry(options, talk, code, *held)
            more = {} if "map" in carry else {"posterior": options.posterior}
            chosen = ad.apps.RepurposeOptions(**carry)
            found[name] = ad.apps.repurpose(asked, known, data, chosen, **more, **inside)
        facts: dict[str, Any] = {
            "model": model,
            "reference": reference,
            "out": place,
            "datasets": {},
        }
        with atomic_directory(place, overwrite=overwrite) as beside:
            for name, one in found.items():
                write_atomically(beside / f"{name}.csv", answers(one, loaded[name]).encode())
                one.flowed.save(beside / f"{name}-flowed.{format}")
                facts["datasets"][name] = {
                    "n": len(one.predictions),
                    "predictions": f"{name}.csv",
                    "flowed": f"{name}-flowed.{format}",
                    "accuracy": one.accuracy,
                    "matching": one.matching.hard,
                    "pseudo_labels": None if one.labeling is None else one.labeling.kind,
                    "posterior": getattr(one.map, "posterior_", None),
                    "comparison": vars(one.comparison) if options.compare else None,
                    "report": None,
                }
                if report:
                    page, title = beside / f"{name}.html", f"{Path(model).name} on {name}"
                    facts["datasets"][name]["report"] = repurpose_page(
                        one, page, title, options.compare, talk
                    )
            write_json(beside / "result.json", facts)
            check_free(place, overwrite, Sets())  # something may have come since
    lines = [
        f"{place / f'{name}.csv'}: {len(one.predictions)} predictions{scored(one)}"
        for name, one in found.items()
    ]
    if options.compare:
        lines += [f"{name}: {one.recommendation}" for name, one in found.items()]
    pages = [told["report"] for told in facts["datasets"].values() if told["report"]]
    lines += [f"open {place / page}" for page in pages]
    talk.result(facts, "\n".join(lines))
    talk.end(unconverged, strict)


def _part(text: str | None, what: str, code: Permission) -> Any:
    """A function in a Python file that the user named; a name of a layer stays as it is."""
    if text is None or not is_code(text):
        return text
    from advect.cli.code import load_object

    return load_object(text, what, code)


def _carry(
    options: TransferOptions | RepurposeOptions,
    talk: Talk,
    code: Permission,
    *held: ad.LabeledDataset,
) -> dict[str, Any]:
    from advect.cli import build

    if options.cost.embedding is not None:
        raise InputError(
            "an application compares features as they are",
            "cost.embedding",
            "Use advect flow for that.",
        )
    cost = build.cost(options.cost, code)
    carried = {} if _own_map(options) else {"map": build.carried_map(_map(options), talk.progress)}
    return carried | {
        "label": cost.label,
        "label_weight": cost.label_weight,
        "solver": options.solver.built(),
        "n_steps": options.steps,
        "step_size": options.step_size,
        "bounds": build.image_bounds(options.bounds, *held),
        "every": options.every,
        "progress": talk.progress,
    }


def _own_map(options: CarryOptions) -> bool:
    """Whether the map is left to the application."""
    return isinstance(options, RepurposeOptions) and all(value is None for _, value in options.map)


def _map(options: CarryOptions) -> MapOptions:
    posterior = getattr(options, "posterior", None)
    return (
        options.map
        if posterior is None
        else options.map.model_copy(update={"posterior": posterior})
    )


def _as_reference(
    data: ad.LabeledDataset,
    base: ad.LabeledDataset,
    options: CarryOptions,
    coders: Mapping[str, Any],
) -> tuple[ad.LabeledDataset, ad.LabeledDataset]:
    """Data and reference in the space of the reference, which the model knows: that one must not
    change, but to the features of an encoder that the model is a head of.
    """
    from advect.cli import build

    space = options.space
    if len(base.sample_shape) > 1 and space.size is None and data.sample_shape != base.sample_shape:
        high, wide = base.sample_shape[:2] if base.sample_shape[0] > 4 else base.sample_shape[-2:]
        if high != wide:
            raise InputError(
                "images of the reference must be square to be resized to",
                f"{high} × {wide}",
                "Resize them first.",
            )
        space = space.model_copy(update={"size": high})
    common = build.space(data, base, space, coders)
    kept = common.apply(base, side="target")
    if coders and space.scale is None and space.project is None:
        return common.apply(data), kept
    if kept.dim != base.dim or not bool((kept.x == base.x).all()):
        raise InputError(
            "the reference must stay as the model knows it",
            f"it would become {kept.sample_shape}",
            "Leave --space.scale and --space.project out, or prepare the reference with advect "
            "data convert.",
        )
    return common.apply(data).replace(sample_shape=base.sample_shape), base

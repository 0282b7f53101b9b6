"""``advect map``: fit a map on a run or on two datasets, carry new samples with it, export it for use elsewhere.

A map is a directory: map.safetensors, and space.json with the feature space of the run, empty if it
had none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from pydantic import Field

from advect.cli.commands import COMMANDS
from advect.cli.config import (
    READ_ALL,
    DataOptions,
    Out,
    Overwrite,
    RunCode,
    SpaceOptions,
    Units,
)
from advect.cli.layout import Map
from advect.cli.options import group, member, switch
from advect.cli.output import TALK, TalkOptions
from advect.cli.places import check_free, check_free_file, require_run
from advect.cli.rundir import read_json, write_json
from advect.cli.sections import SECTIONS
from advect.cli.typed import permission
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad


class MapOptions(group("map", "entropic", "Which map.")):
    """What carries samples that the flow never saw."""


class VelocityOptions(
    member("map", "flow-matching", without=("seed", "device", "progress", "network"))
):
    """The network that flow matching trains."""


_COMMAND = next(command for command in COMMANDS if command.name == "map")
app = App(name="map", help=_COMMAND.line, help_epilogue=_COMMAND.epilogue)


@app.command(help_epilogue="Example:\n  advect map fit run -o to-mnist --name nearest --k 5")
def fit(
    run: Path,
    *,
    out: Out,
    options: Annotated[MapOptions, Parameter(name="*")] = MapOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    talk: TalkOptions = TALK,
) -> None:
    """Fit a map on the first and last frames of a run.

    Args:
        run: The directory of the run.
    """
    from advect._util.atomic import atomic_directory
    from advect.cli import build
    from advect.datasets.run_frames import check_space
    from advect.datasets.trajectory import Trajectory

    directory, place = require_run(run.expanduser()), out.expanduser()
    check_free(place, overwrite, Map())
    check_space(directory, "Or run the flow again.")
    with talk.listening():
        frames = Trajectory.open(directory)
        if len(frames) < 2 or frames.indices[0] != 0:
            raise InputError(
                "a map needs the first and a later frame",
                f"steps {frames.indices}",
                "Let the flow go on.",
            )
        carrier = build.carried_map(options, talk.progress).fit(
            frames[0].dataset, frames[-1].dataset
        )
        with atomic_directory(place, overwrite=overwrite) as beside:
            carrier.save(beside / "map.safetensors")
            # empty where there was none: not that it was lost
            write_json(beside / "space.json", _space_of(directory, place))
            check_free(place, overwrite, Map())  # something may have come since
    facts = {
        "run": directory,
        "out": place,
        "map": carrier.kind,
        "pairs": len(frames[0].dataset),
        "steps": frames.indices[-1],
    }
    talk.result(
        facts,
        f"{place}: {carrier.kind} map of {facts['pairs']} samples over {facts['steps']} steps",
    )


class MatchOptions(DataOptions):
    """How samples are paired, and what is learned from the pairs."""

    label_weight: float = Field(
        default=math.inf,
        ge=0,
        description="What a change of label costs against one of features: 0 looks at features alone, inf never mixes "
        "classes.",
    )
    match: Literal["auto", "names", "laws"] = Field(
        default="auto",
        description="Which classes belong together at inf: those of the same name, by their laws, or by names where all "
        "are the same.",
    )
    velocity: Annotated[VelocityOptions, Parameter(group=SECTIONS["Velocity"])] = (
        VelocityOptions.model_construct()
    )
    space: Annotated[SpaceOptions, Parameter(group=SECTIONS["Feature space"])] = (
        SpaceOptions.model_construct()
    )


@app.command(
    help_epilogue="Example:\n  advect map match digits mnist --max-samples 500 --velocity.updates 300 -o to-mnist"
)
def match(
    source: str,
    target: str,
    *,
    out: Out,
    report: Annotated[
        Path | None,
        Parameter(
            help="Also write a page of samples on their way, FILE.html.", metavar="FILE.html"
        ),
    ] = None,
    options: Annotated[MatchOptions, Parameter(name="*")] = MatchOptions.model_construct(),  # noqa: B008 (frozen)
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Fit a map on pairs of two datasets by flow matching, without a flow.

    Args:
        source: The dataset whose samples are to be carried.
        target: The dataset they are carried to.
    """
    import advect as ad
    from advect._util.atomic import atomic_directory
    from advect.cli import inputs
    from advect.report.matching import write_matching_report
    from advect.report.page import page_place

    place = out.expanduser()
    check_free(place, overwrite, Map())
    page = None if report is None else page_place(report)
    if page is not None:
        if page.parent.resolve() == place.resolve():
            raise InputError("a page goes beside the map, not into it", page, "Choose another.")
        check_free_file(page, overwrite)
    code = permission(run_code, options.space.code)
    with talk.listening():
        a, b, space = inputs.together((source, target), options, options.space, talk, code)
        pairs = ad.PairSampler(a, b, options.label_weight, match=options.match)
        carrier = options.velocity.built(seed=options.seed, progress=talk.progress).fit(pairs)
        batch = next(pairs.batches(min(len(a), 1024), generator=_seeded(options.seed)))
        facts = {
            "source": source,
            "target": target,
            "out": place,
            "map": carrier.kind,
            "n": [len(a), len(b)],
            "pairs_of_other_classes": (
                pairs.mixed(batch.y0, batch.y1) if a.complete and b.complete else None
            ),
            "loss": carrier.history_[-1] if carrier.history_ else None,
        }
        with atomic_directory(place, overwrite=overwrite) as beside:
            carrier.save(beside / "map.safetensors")
            write_json(beside / "space.json", space.to_dict(place))
            check_free(place, overwrite, Map())  # something may have come since
        if page is not None:
            title = f"{source} to {target}"
            facts["report"] = write_matching_report(carrier, pairs, page, title=title)
    talk.result(facts, f"{place}: {carrier.kind} map of {len(a)} and {len(b)} samples")


@app.command(
    help_epilogue="Example:\n  advect map apply to-mnist 'digits?split=all' -o carried.npz"
)
def apply(
    map: Annotated[Path, Parameter(name="map")],
    dataset: str,
    *,
    out: Out,
    options: Annotated[DataOptions, Parameter(name="*")] = READ_ALL,
    ignore_labels: Annotated[
        bool, switch("Carry samples without looking at their labels.")
    ] = False,
    units: Units = "source",
    encoder: Annotated[
        str | None,
        Parameter(name="--space.encoder", help="That of the run, if it is path.py:name or moved."),
    ] = None,
    decoder: Annotated[
        str | None,
        Parameter(name="--space.decoder", help="That of the run, if it is path.py:name or moved."),
    ] = None,
    overwrite: Overwrite = False,
    run_code: RunCode = False,
    talk: TalkOptions = TALK,
) -> None:
    """Carry samples that the flow never saw.

    Args:
        map: What advect map fit wrote.
        dataset: The samples, in the space of the source.
    """
    from advect.cli import build
    from advect.cli.inputs import load
    from advect.datasets.run_frames import in_units

    given = SpaceOptions(encoder=encoder, decoder=decoder)
    coders = build.coders(given, permission(run_code, given.code), talk.progress)
    with talk.listening():
        carrier, space = _open(map.expanduser(), coders or {"progress": talk.progress})
        data = load(dataset, options, talk)
        data = data if space is None else space.apply(data)
        moved = carrier.transform(data.samples if ignore_labels else data)
        moved = data.replace(x=moved.reshape(len(data), -1)) if ignore_labels else moved
        change = float(
            (moved.x - data.x).double().square().sum(dim=1).mean().sqrt()
        )  # in the space of the flow
        moved = in_units(
            moved, space, units, "a map without a feature space" if space is None else "the map"
        )
        path = moved.save(out, overwrite=overwrite)
    shape = " × ".join(str(side) for side in moved.sample_shape)
    facts = {
        "map": map,
        "dataset": dataset,
        "out": path,
        "n": len(moved),
        "mean_displacement": change,
    }
    talk.result(facts, f"{path}: {len(moved)} samples of {shape}")


@app.command(help_epilogue="Example:\n  advect map export to-mnist -o to-mnist.onnx")
def export(
    map: Annotated[Path, Parameter(name="map")],
    *,
    out: Out,
    overwrite: Overwrite = False,
    talk: TalkOptions = TALK,
) -> None:
    """Write a network for use without advect: .onnx, or .pt2 for torch.export.

    Args:
        map: What advect map fit --name neural or advect map match wrote.
    """
    carrier, _ = _open(map.expanduser(), {})
    path = out.expanduser()
    check_free_file(path, overwrite)
    with talk.listening():
        path = carrier.export(path)
    talk.result({"map": map, "out": path, "bytes": path.stat().st_size}, f"{path}")


def _seeded(seed: int) -> Any:
    import torch

    return torch.Generator().manual_seed(seed)


def _space_of(run: Path, place: Path) -> dict[str, Any]:
    """The feature space of a run, as it is kept with a map: a file that it names is found from
    there, too.
    """
    from advect.datasets.run_frames import space_from

    facts = read_json(run / "space.json")
    space = space_from(facts, run / "space.json") if facts else None
    return facts if space is None or not space.digests() else space.to_dict(place)


def _open(path: Path, coders: Mapping[str, Any]) -> tuple[ad.maps.Map, Any]:
    """A map, and its feature space if it has one; a file that map.save wrote will do."""
    import advect as ad
    from advect._util.atomic import recover
    from advect.datasets.run_frames import space_from

    recover(path)
    file = path / "map.safetensors" if path.is_dir() else path
    if path.is_dir() and file.exists() and not (path / "space.json").exists():
        raise InputError(
            "the map has lost its space.json, which says in what units it takes samples",
            path,
            f"Fit it again; or pass {file}, which takes and gives the numbers of the flow.",
        )
    facts = read_json(path / "space.json") if path.is_dir() else {}
    space = space_from(facts, path / "space.json", **coders) if facts else None
    return ad.maps.load(file), space

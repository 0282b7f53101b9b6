"""``advect map``: fit a map on a run or on two datasets, and apply it to new samples.

A map is a directory: map.safetensors, and space.json with its feature space (empty if there is none)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from advect._util import registry
from advect.cli.options import RUN, Flag, Map, Out, Run, Space, Units
from advect.cli.rundir import check_free, open_run, read_json, write_json
from advect.cli.session import Facts, Session, session
from advect.errors import InputError

if TYPE_CHECKING:
    import advect as ad


def fit(
    source: str,
    target: str | None = None,
    *,
    out: Out,
    map: Annotated[Map, Parameter(name="--map")] = None,
    label_weight: float | None = None,
    space: Space = None,
    run: Run = RUN,
) -> None:
    """Fit a map on the first and last frames of a run, or on two datasets by flow matching.

    Args:
        source: The directory of a run, or the dataset whose samples will be moved.
        target: The dataset to move them to.
        label_weight: Weight of labels in the pairing of two datasets. inf never mixes classes.

    Example:
        advect map fit run -o to-mnist --map nearest --map.k 5
    """
    from advect._util.atomic import atomic_directory

    with session(run, space) as running:
        place = out.expanduser()
        check_free(place, run.overwrite, "map")
        fitted = (
            _on_run(Path(source), map, running)
            if target is None
            else _on_datasets(source, target, map, label_weight, space, running)
        )
        carrier, common, facts = fitted
        with atomic_directory(place, overwrite=run.overwrite) as folder:
            carrier.save(folder / "map.safetensors")
            write_json(folder / "space.json", {} if common is None else common.to_dict())
            check_free(place, run.overwrite, "map")
        running.finish(Facts({"map": carrier.kind, **facts}), None, {"out": place})


def _made(table: Any, usual: str, running: Session, seed: int) -> Any:
    made = registry.make("map", {"name": usual, **(table or {})}, seed=seed)
    if "progress" in vars(made):
        made.progress = running.progress
    return made


def _on_run(run: Path, table: Any, running: Session) -> tuple[Any, Any, dict[str, Any]]:
    from advect.io.run_frames import check_space, space_from
    from advect.io.trajectory import Trajectory

    directory = open_run(run)
    check_space(directory, "Or run the flow again.")
    frames = Trajectory.open(directory)
    if len(frames) < 2 or frames.indices[0] != 0:
        got = f"steps {frames.indices}"
        raise InputError("a map needs the first and a later frame", got, "Resume the flow.")
    carrier = _made(table, "entropic", running, 0)
    carrier = carrier.fit(frames[0].dataset, frames[-1].dataset)
    path = directory / "space.json"
    saved = read_json(path)
    space = space_from(saved, path) if saved else None
    facts = {"run": directory, "pairs": len(frames[0].dataset), "n_steps": frames.indices[-1]}
    return carrier, space, facts


def _on_datasets(
    source: str, target: str, table: Any, label_weight: float | None, space: Any, running: Session
) -> tuple[Any, Any, dict[str, Any]]:
    import advect as ad

    a, b, common = running.pair(source, target, space)
    weight: dict[str, Any] = {} if label_weight is None else {"label_weight": label_weight}
    carrier = _made(table, "flow-matching", running, running.read.seed)
    if not isinstance(carrier, ad.maps.FlowMatchingMap):
        raise InputError(
            "a map of two datasets needs flow matching", carrier.kind, "Fit it on a run instead."
        )
    carrier = carrier.fit(ad.PairSampler(a, b, **weight))
    return carrier, common, {"source": source, "target": target, "n_samples": [len(a), len(b)]}


def apply(
    fitted: Path,
    dataset: str,
    *,
    out: Out,
    ignore_labels: Flag = False,
    units: Units = "source",
    space: Space = None,
    run: Run = RUN,
) -> None:
    """Move new samples with a map.

    Args:
        fitted: The directory that advect map fit wrote.
        dataset: Samples like those of the source.
        ignore_labels: Do not use the labels.
        space: encoder and decoder again if they are Python.

    Example:
        advect map apply to-mnist 'digits?split=all' -o moved.npz
    """
    from advect.io.run_frames import in_units

    with session(run, space) as running:
        carrier, common = _open(fitted.expanduser(), running.coders(space), running)
        raw = running.load(dataset)
        data = raw if common is None else common.apply(raw)
        moved = carrier.transform(data.samples if ignore_labels else data)
        moved = data.replace(x=moved.reshape(len(data), -1)) if ignore_labels else moved
        distance = float((moved.x - data.x).double().square().sum(dim=1).mean().sqrt())
        where = "a map without a feature space" if common is None else "the map"
        path = in_units(moved, common, units, where).save(out, overwrite=run.overwrite)
        facts = {"map": fitted, "dataset": dataset, "n": len(moved), "mean_displacement": distance}
        running.finish(Facts(facts), None, {"out": path})


def _open(
    path: Path, coders: dict[str, Any], running: Session
) -> tuple[ad.maps.Map, ad.FeatureSpace | None]:
    """A map and its feature space; a file that ``map.save`` wrote has none."""
    import advect as ad
    from advect._util.atomic import recover
    from advect.io.run_frames import space_from

    recover(path)
    if not path.is_dir():
        return ad.maps.load(path), None
    file, space = path / "map.safetensors", path / "space.json"
    if file.exists() and not space.exists():
        raise InputError(
            "the map has lost its space.json, which holds the units of its samples",
            path,
            f"Fit it again, or pass {file}, which uses the numbers of the flow.",
        )
    facts = read_json(space)
    common = space_from(facts, space, **coders, progress=running.progress) if facts else None
    return ad.maps.load(file), common

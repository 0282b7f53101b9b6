"""``advect map``: fit a map on a run or on two datasets, and apply it to new samples.

A map is a directory: map.safetensors, and space.json with its feature space (empty if there is none)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import advect as ad
import advect.registry as registry
from advect._util.checks import refuse_if
from advect.cli.options import PAIR, Map, Out, Pair, Units
from advect.cli.rundir import check_free, open_run, read_json
from advect.cli.session import Facts, Session, session, write_json


def fit(
    source: str,
    target: str | None = None,
    *,
    out: Out,
    map: Annotated[Map, Parameter(name="--map")] = None,
    label_weight: float | None = None,
    run: Pair = PAIR,
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

    with session(run) as running:
        place = out.expanduser()
        check_free(place, run.overwrite, "map")
        if target is None:
            carrier, common, facts = _on_run(Path(source), map, running)
        else:
            a, b, common = running.pair(source, target)
            carrier = _on_datasets(a, b, map, label_weight, running)
            facts = {"source": source, "target": target, "n_samples": [len(a), len(b)]}
        with atomic_directory(place, overwrite=run.overwrite) as folder:
            carrier.save(folder / "map.safetensors")
            write_json(folder / "space.json", {} if common is None else common.to_dict())
            check_free(place, run.overwrite, "map")
        running.finish(Facts({"map": carrier.kind, **facts}), out=place)


def _on_run(run: Path, table: Any, running: Session) -> tuple[Any, Any, dict[str, Any]]:
    from advect.io.run_frames import check_space, space_from
    from advect.io.trajectory import Trajectory

    directory = open_run(run)
    check_space(directory, "Or run the flow again.")
    frames = Trajectory.open(directory)
    what, remedy = "a map needs the first and a later frame", "Resume the flow."
    refuse_if(len(frames) < 2 or frames.indices[0] != 0, what, f"steps {frames.indices}", remedy)
    first, last = frames[0].dataset, frames[-1].dataset
    carrier = _unfitted(table, "entropic", running, 0).fit(first, last)
    path = directory / "space.json"
    space = space_from(saved, path) if (saved := read_json(path)) else None
    return carrier, space, {"run": directory, "pairs": len(first), "n_steps": frames.indices[-1]}


def _on_datasets(
    a: ad.LabeledDataset,
    b: ad.LabeledDataset,
    table: Any,
    label_weight: float | None,
    running: Session,
) -> ad.maps.Map:
    weight: dict[str, Any] = {} if label_weight is None else {"label_weight": label_weight}
    carrier = _unfitted(table, "flow-matching", running, running.read.seed)
    what, remedy = "a map of two datasets needs flow matching", "Fit it on a run instead."
    refuse_if(not isinstance(carrier, ad.maps.FlowMatchingMap), what, carrier.kind, remedy)
    return carrier.fit(ad.PairSampler(a, b, **weight))


def _unfitted(table: Any, name: str, running: Session, seed: int) -> Any:
    carrier = registry.make("map", {"name": name, **(table or {})}, seed=seed)
    if "progress" in vars(carrier):
        carrier.progress = running.progress
    return carrier


def apply(
    fitted: Path, dataset: str, *, out: Out, units: Units = "source", run: Pair = PAIR
) -> None:
    """Move new samples with a map.

    Args:
        fitted: The directory that advect map fit wrote.
        dataset: Samples like those of the source.

    Example:
        advect map apply to-mnist 'digits?split=all' -o moved.npz
    """
    from advect.io.run_frames import in_units

    with session(run) as running:
        carrier, common = _open(fitted.expanduser(), running.coders(), running)
        raw = running.load(dataset)
        data = raw if common is None else common.apply(raw)
        moved = carrier.transform(data)
        distance = float((moved.x - data.x).double().square().sum(dim=1).mean().sqrt())
        where = "a map without a feature space" if common is None else "the map"
        path = in_units(moved, common, units, where).save(out, overwrite=run.overwrite)
        facts = {"map": fitted, "dataset": dataset, "n": len(moved), "mean_displacement": distance}
        running.finish(Facts(facts), out=path)


def _open(
    path: Path, coders: dict[str, Any], running: Session
) -> tuple[ad.maps.Map, ad.FeatureSpace | None]:
    """A map and its feature space; a file that ``map.save`` wrote has none."""
    from advect._util.atomic import recover
    from advect.io.run_frames import space_from

    recover(path)
    if not path.is_dir():
        return ad.maps.load(path), None
    file, space = path / "map.safetensors", path / "space.json"
    refuse_if(
        file.exists() and not space.exists(),
        "the map has lost its space.json, which holds the units of its samples",
        path,
        f"Fit it again, or pass {file}, which uses the numbers of the flow.",
    )
    facts = read_json(space)
    common = space_from(facts, space, **coders, progress=running.progress) if facts else None
    return ad.maps.load(file), common

"""The content of a flow's page: points for the player, images, charts, tables and tiles.

A page stays below 3 MB: beyond a limit, frames and samples are thinned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advect._util import InputError, Table
from advect.cost import Bures, GroundCost
from advect.data.class_table import ClassTable
from advect.data.conversions import target_names
from advect.data.dataset import LabeledDataset, has_classes
from advect.report.frames import Curve, Frames, Story, codes_of, pack_integers, thinned
from advect.report.images import Album
from advect.transport.class_tables import class_distances, match_classes
from advect.viz.states import View, as_array, plane_view
from advect.viz.theme import DARK, LIGHT

_FULL = 32767  # the largest 16-bit integer: half the side of the box
_MAX_KNOTS = 500  # points of a curve
_MAX_CLASSES = 30  # rows and columns of a readable table


def gather(story: Story) -> tuple[dict[str, Any], dict[str, Any], list[Table]]:
    """Values of the template, data of the script, and tables."""
    remarks: list[str] = []
    frames = Frames(story, remarks)
    before, after = frames.before, frames.after
    whole = None if story.target is None else story.target.to("cpu")
    target = None if whole is None else thinned(whole, "the target", remarks)[0]
    shown = [before, after]
    if target is not None and target.dim == before.dim:
        shown.append(target)
    elif target is not None:
        sizes = f"{target.dim} features and the flow {before.dim}"
        remarks.append(f"The target has {sizes}: it is not drawn.")
    album = Album(before, after, target, story.pictures)
    view, how, axes = view_of(shown)
    clouds = []
    for data in frames.read():
        clouds.append(view(data))
        album.add(data)
    points = np.stack(clouds)  # (frames, n, dim)
    targets = [view(data) for data in shown[2:]]  # one or none
    every_point = np.concatenate([*points, *targets])
    low, high = every_point.min(axis=0), every_point.max(axis=0)
    centre, half = (low + high) / 2, max(float((high - low).max()) / 2, 1e-12)

    def packed(points: np.ndarray) -> str:
        """Positions in the cube around all points as integers, 32767 at half its side."""
        return pack_integers(np.rint((points - centre) / half * _FULL).clip(-_FULL, _FULL), "<i2")

    player: dict[str, Any] = {
        "dim": points.shape[2],
        "n": len(before),
        "total": frames.n_all,
        "steps": frames.steps,
        "values": [_number(value) for value in frames.values],
        "points": packed(points),
        "extent": [max(float(size), 0.02) for size in (high - low) / 2 / half],
        "centre": [float(c) for c in centre],
        "half": half,
        "axes": axes,
        **frames.packed(),
        "names": list(story.names),
        "target": None,
        **album.packed(remarks),
        "charts": _charts(story, frames),
        "palette": {"light": list(LIGHT.palette), "dark": list(DARK.palette)},
    }
    terms = [[name, c[0][1], c[-1][1]] for name, c in story.terms.items() if len(c)]
    tables = [Table("Terms of the objective", ("term", "first", "last"), terms)] if terms else []
    if target is not None and targets:
        codes = pack_integers(codes_of(target.labels, frames.names), "<u2")
        player["target"] = {"n": len(target), "points": packed(targets[0]), "codes": codes}
    if target is not None and has_classes(before) and has_classes(target):
        tables += class_tables(before, after, target, story.cost, remarks)
    page = _summary(story, frames, whole) | {
        "how": how,
        "remarks": remarks,
        "images": player["grid"] is not None,
        "pictured": story.pictures is not None,
    }
    return page, player, tables


def class_tables(
    before: LabeledDataset,
    after: LabeledDataset,
    target: LabeledDataset,
    cost: GroundCost,
    remarks: list[str],
) -> list[Table]:
    """Class distances before and after, and the matching after; or a remark why there are none."""
    if not all(bool(data.labeled.all()) for data in (before, after, target)):
        remarks.append("Classes are not compared: some samples have no label.")
        return []
    try:
        cost = replace(cost, label=Bures()) if not cost.label_cost.costs else cost
        cost = cost.fitted(before, target)  # as a flow does at its first step
        first, last = (class_distances(cost.between(data, target)) for data in (before, after))
        matching = match_classes(last.values, after, target)
    except InputError as error:
        remarks.append(f"Classes are not compared: {error}")
        return []
    if max(*first.shape, *last.shape) > _MAX_CLASSES:
        remarks.append(
            f"Class tables are left out, because there are more than {_MAX_CLASSES} classes."
        )
        return []
    masses = np.asarray(matching, dtype=float)
    shares = masses / np.maximum(masses.sum(axis=1, keepdims=True), 1e-300)
    about = "The label cost as a distance: W₂ between class laws, or 0 and a constant for classes by name."
    return [
        _heat("Class distances before the flow", first, about),
        _heat("Class distances after the flow", last, about),
        _heat(
            "Class matching after the flow",
            replace(matching, values=shares),
            "Shares of each source class.",
        ),
    ]


def _heat(title: str, table: ClassTable, caption: str) -> Table:
    rows = [[str(name), *row] for name, row in zip(table.rows, table.values.tolist(), strict=True)]
    return Table(title, ("", *map(str, table.columns)), rows, heat=True, caption=caption)


# Charts and numbers


def _charts(story: Story, frames: Frames) -> list[dict[str, Any]]:
    """The objective with its terms, and each metric."""
    whole = {"objective": _objective(story, frames), **story.terms}
    metrics = [_chart(name, {name: curve}) for name, curve in story.metrics.items() if len(curve)]
    return [_chart("Objective", whole, ink=True), *metrics]


def _chart(title: str, curves: Mapping[str, Curve], *, ink: bool = False) -> dict[str, Any]:
    """Curves of one chart. With ``ink``, the first is drawn in ink, and the scale may be
    logarithmic.
    """
    series = []
    for position, (name, curve) in enumerate(curves.items()):
        if len(curve) > _MAX_KNOTS:
            curve = [curve[round(p)] for p in np.linspace(0, len(curve) - 1, _MAX_KNOTS)]
        steps, values = [int(step) for step, _ in curve], [_number(value) for _, value in curve]
        colour = None if ink and position == 0 else position - ink
        series.append({"name": str(name), "x": steps, "y": values, "colour": colour})
    known = [value for line in series for value in line["y"] if value is not None]
    log = ink and bool(known) and min(known) > 0 and max(known) > 20 * min(known)
    return {"title": str(title), "log": log, "series": series}


def _objective(story: Story, frames: Frames) -> Curve:
    return story.objective or list(zip(frames.steps, frames.values, strict=True))


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _change(curve: Curve) -> str:
    return f"{curve[0][1]:.4g} → {curve[-1][1]:.4g}"


def _summary(story: Story, frames: Frames, target: LabeledDataset | None) -> dict[str, Any]:
    """Heading, tiles, notes and configuration."""
    source_name, target_name = story.names
    title, samples = f"Flow of {source_name}", f"{frames.n_all:,}"
    classes = f"{sum(count > 0 for count in frames.before.counts.values())}"
    settings = {"sample shape": " × ".join(map(str, frames.before.sample_shape))}
    if target is not None:
        title, samples = f"{source_name} → {target_name}", f"{samples} → {len(target):,}"
        classes += f" → {len(target.classes)}"
    return {
        "title": story.title or title,
        "status": story.status,
        "message": story.message,
        "notes": list(story.diagnosis),
        "tiles": [
            ("objective", _change(_objective(story, frames))),
            ("steps", f"{frames.steps[-1] if story.n_steps is None else story.n_steps:,}"),
            *([] if story.seconds is None else [("time", f"{story.seconds:.3g} s")]),
            ("samples", samples),
            ("classes", classes)
            if has_classes(frames.before)
            else ("target", ", ".join(target_names(frames.before))),
            *((str(name), _change(curve)) for name, curve in story.metrics.items() if len(curve)),
        ],
        "settings": {**settings, **story.setup},
        "config": story.config,
        "command": story.command,
        "last": len(frames.steps) - 1,
        "refresh": story.refresh,
    }


def view_of(shown: Sequence[LabeledDataset]) -> tuple[View, str, list[str] | None]:
    """How datasets become points, a sentence that says how, and names of axes that have units."""
    first = shown[0]
    if first.dim == 3 and all(map(has_classes, shown)):
        return (lambda data: as_array(data.x)), "The three features.", None
    view, names = plane_view(shown)
    if names is None:
        names = list(map(str, first.columns or ("feature 1", "feature 2")))
        return view, f"Horizontal: {names[0]}. Vertical: {names[1]}.", names
    how = f"Horizontal: {names[0]}. Vertical: {names[1] or 'the order of the samples'}."
    if first.dim > 1 and has_classes(first):  # principal components have one unit
        return view, how, None
    wide, high = np.ptp(np.concatenate(list(map(view, shown))), axis=0)
    scale = np.array([1.0, (0.2 if has_classes(first) else 1.0) * (wide or 1.0) / (high or 1.0)])
    return (lambda data: view(data) * scale), how, None

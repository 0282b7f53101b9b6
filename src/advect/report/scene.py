"""A story made ready for the page: points in the plane or in space, couplings, images, tables,
words.

A page stays below 3 MB whatever the size of the run: beyond a budget, frames and samples are
thinned, and the page says so."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.report.class_tables import partners, tables_for_page
from advect.report.encoding import Box, pack_integers
from advect.report.pictures import Album
from advect.report.shown_frames import Frames, Part, codes_of, thinned
from advect.report.story import Story
from advect.report.summary import charts, number, summary
from advect.viz.projections import principal_view
from advect.viz.states import as_array
from advect.viz.theme import DARK, LIGHT


@dataclass(frozen=True)
class Scene:
    """A story made ready: ``page`` for the template, ``player`` as JSON for the script."""

    page: dict[str, Any]
    player: dict[str, Any]


def gather(story: Story) -> Scene:
    """Choose what is shown of a story, and bring it into the form that the page wants."""
    notes: list[str] = []
    frames = Frames(story, notes)
    whole = None if story.target is None else story.target.to("cpu")
    target = None if whole is None else thinned(whole, "the target", notes)
    before, after = frames.before, frames.after
    beside = None
    if target is not None and target.data.dim == before.dim:
        beside = target.data.x
    elif target is not None:
        notes.append(
            f"The target has {target.data.dim} features and the flow {before.dim}: it is not drawn."
        )
    shown = [before, after] if beside is None or target is None else [before, after, target.data]
    view, how, axes = view_of(shown)
    album = Album(before, after, None if target is None else target.data, story.pictures)
    clouds = []
    for rho in frames.read():
        clouds.append(view(rho))
        album.add(rho)
    # (frames, n, dim), (m, dim)
    points, there = np.stack(clouds), None if len(shown) < 3 else view(shown[2])
    box = Box.around([points] if there is None else [points, there])
    player: dict[str, Any] = {
        "dim": points.shape[2],
        "n": len(before),
        "steps": frames.steps,
        "values": [number(value) for value in frames.values],
        "points": pack_integers(box.quantised(points), "<i2"),
        "extent": [max(float(size), 0.02) for size in box.extent],
        "centre": [float(c) for c in box.centre],
        "half": box.half,
        "axes": axes,
        **frames.packed(),
        "palette": {"light": list(LIGHT.palette), "dark": list(DARK.palette)},
        "names": list(story.names),
        "charts": charts(story, frames),
        "target": None if target is None else _packed_target(target, frames.names, there, box),
        "partners": None if target is None else _packed_partners(after, target.data, story, notes),
    }
    classes = None
    if target is not None and before.has_classes and target.data.has_classes:
        classes = tables_for_page(before, after, target.data, story.cost, notes)
    player |= album.packed(notes)
    page = {
        **summary(story, frames, whole),
        "how": how,
        "classes": classes,
        "notes": notes,
        "images": player["grid"] is not None,
        "pictured": album.how,
    }
    return Scene(page, player)


def _packed_target(
    target: Part, names: list[Hashable], points: np.ndarray | None, box: Box
) -> dict[str, Any]:
    return {
        "n": len(target.data),
        "points": None if points is None else pack_integers(box.quantised(points), "<i2"),
        "codes": pack_integers(codes_of(target.data.labels, names), "<u2"),
        "own": pack_integers(target.data.y.numpy(), "<i2"),
        "classes": [str(name) for name in target.data.classes],
        "origin": pack_integers(target.rows.numpy(), "<u4"),
    }


def _packed_partners(
    after: LabeledDataset, target: LabeledDataset, story: Story, notes: list[str]
) -> dict[str, Any] | None:
    """Where each sample went, for the player; a note where that cannot be said."""
    try:
        found = partners(after, target, story.cost, story.solver)
    except InputError as error:
        notes.append(f"Samples are not coupled to the target: {error}")
        return None
    notes += [found.note] if found.note else []
    return {
        "count": found.positions.shape[1],
        "positions": pack_integers(found.positions, "<u2"),
        "shares": pack_integers(np.rint(found.shares * 10_000), "<u2"),
    }


def view_of(
    shown: Sequence[LabeledDataset],
) -> tuple[Callable[[LabeledDataset], np.ndarray], str, list[str] | None]:
    """How datasets become points of the page, a sentence that says how, and names of axes.

    With a continuous target in place of classes, and where all have one: features from left to
    right, the target upward."""
    first = shown[0]
    if any(data.has_classes or data.targets is None for data in shown):
        view, how = _view([data.x for data in shown])
        columns = first.columns or ("feature 1", "feature 2")
        return (lambda data: view(data.x)), how, None if first.dim != 2 else list(map(str, columns))
    across, what = (lambda x: as_array(x)[:, :1]), str((first.columns or ("the feature",))[0])
    if first.dim > 1:
        projection, _ = principal_view(torch.cat([data.x.double() for data in shown]), 1)
        across, what = (lambda x: as_array(projection.apply(x))), "first principal component"
    wide, high = (
        float(np.ptp(np.concatenate(parts))) or 1.0
        for parts in ([across(d.x) for d in shown], [as_array(_aim(d)) for d in shown])
    )
    how = (
        f"From left to right {what}, upward the target {first.target_names[0]}, brought to the "
        "same width; the same at every step."
    )
    return (
        (lambda data: np.column_stack([across(data.x), wide / high * as_array(_aim(data))])),
        how,
        None,
    )


def _aim(data: LabeledDataset) -> Tensor:
    """The first continuous target, as a column."""
    return data.require_targets("this view")[:, :1]


def _view(clouds: Sequence[Tensor]) -> tuple[Callable[[Tensor], np.ndarray], str]:
    """How samples become points of the plane or of space, and a sentence that says how."""
    dim = clouds[0].shape[1]
    if dim in (2, 3):
        return as_array, f"The {'two' if dim == 2 else 'three'} features as they are."
    if dim == 1:
        width = float(torch.cat(list(clouds)).max() - torch.cat(list(clouds)).min()) or 1.0
        return (
            lambda x: _strip(as_array(x), width)
        ), "One feature, from left to right; the height only keeps samples apart."
    # more rows change principal components little and take long
    few = min(600, max(60, 3_000_000 // dim))
    some = torch.cat([cloud[:: max(1, len(cloud) // few)].double() for cloud in clouds])
    if len(some) < 3:
        return (
            lambda x: as_array(x[:, :2])
        ), "The first two features; there are too few samples for a projection."
    projection, shares = principal_view(some, 2)
    whose = (
        "the first and last frame and the target"
        if len(clouds) == 3
        else "the first and last frame"
    )
    how = (
        f"The first two principal components of {whose}, which hold {sum(shares):.0%} of their "
        "variance; the same at every step."
    )
    return (
        lambda x: np.concatenate([as_array(projection.apply(block)) for block in x.split(256)])
    ), how


def _strip(values: np.ndarray, width: float) -> np.ndarray:
    # evenly spread, whatever the number
    height = np.modf(np.arange(len(values)) * 0.6180339887)[0] - 0.5
    return np.column_stack([values[:, 0], 0.2 * width * height])

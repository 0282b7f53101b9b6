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
    """A story made ready: ``page`` for the template, ``player`` and ``charts`` for the script."""

    page: dict[str, Any]
    player: dict[str, Any]
    charts: list[dict[str, Any]]


def script_data(scenes: Sequence[Scene], curves: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the script of a page gets: scenes, the steps that any of them has, and charts."""
    steps = sorted({step for scene in scenes for step in scene.player["steps"]})
    return {
        "scenes": [scene.player for scene in scenes],
        "steps": steps,
        "charts": list(curves),
        "rose": scenes[0].charts[0]["rose"],
        "palette": {"light": list(LIGHT.palette), "dark": list(DARK.palette)},
    }


class _Cast:
    """What is shown of a story, before it has places on a page."""

    def __init__(self, story: Story) -> None:
        self.story, self.notes = story, list[str]()
        self.frames = Frames(story, self.notes)
        self.whole = None if story.target is None else story.target.to("cpu")
        self.target = None if self.whole is None else thinned(self.whole, "the target", self.notes)
        self.shown = [self.frames.before, self.frames.after]
        if self.target is not None and self.target.data.dim == self.frames.before.dim:
            self.shown.append(self.target.data)
        elif self.target is not None:
            self.notes.append(
                f"The target has {self.target.data.dim} features and the flow "
                f"{self.frames.before.dim}: it is not drawn."
            )
        beside = None if self.target is None else self.target.data
        self.album = Album(self.frames.before, self.frames.after, beside, story.pictures)
        self.clouds: np.ndarray = np.empty((0, 0, 0))  # (frames, n, dim)
        self.there: np.ndarray | None = None  # (m, dim)

    def place(self, view: Callable[[LabeledDataset], np.ndarray]) -> list[np.ndarray]:
        """Read the frames once: their points, and their images."""
        clouds = []
        for rho in self.frames.read():
            clouds.append(view(rho))
            self.album.add(rho)
        self.clouds = np.stack(clouds)
        self.there = None if len(self.shown) < 3 else view(self.shown[2])
        return [self.clouds] if self.there is None else [self.clouds, self.there]

    def scene(self, box: Box, how: str, axes: list[str] | None, prefix: str) -> Scene:
        """The scene, for the template and for the player."""
        frames, story, target = self.frames, self.story, self.target
        before, after = frames.before, frames.after
        player: dict[str, Any] = {
            "prefix": prefix,
            "dim": self.clouds.shape[2],
            "n": len(before),
            "total": frames.n_all,
            "steps": frames.steps,
            "values": [number(value) for value in frames.values],
            "points": pack_integers(box.quantised(self.clouds), "<i2"),
            "extent": [max(float(size), 0.02) for size in box.extent],
            "centre": [float(c) for c in box.centre],
            "half": box.half,
            "axes": axes,
            **frames.packed(),
            "names": list(story.names),
            "target": None
            if target is None
            else _packed_target(target, frames.names, self.there, box),
            "partners": None
            if target is None
            else _packed_partners(after, target.data, story, self.notes),
        }
        classes = None
        if target is not None and before.has_classes and target.data.has_classes:
            classes = tables_for_page(before, after, target.data, story.cost, self.notes)
        player |= self.album.packed(self.notes)
        page = {
            **summary(story, frames, self.whole),
            "how": how,
            "classes": classes,
            "notes": self.notes,
            "images": player["grid"] is not None,
            "pictured": self.album.how,
        }
        return Scene(page, player, charts(story, frames))


def gather(story: Story) -> Scene:
    """Choose what is shown of a story, and bring it into the form that the page wants."""
    cast = _Cast(story)
    view, how, axes = view_of(cast.shown)
    box = Box.around(cast.place(view))
    return cast.scene(box, how, axes, "")


def gather_beside(stories: Sequence[Story]) -> list[Scene]:
    """The same of several stories, in one view where they have as many features: at one place is
    what is alike, and a class has one colour.
    """
    casts = [_Cast(story) for story in stories]
    dims = {data.dim for cast in casts for data in cast.shown}
    if len(dims) == 1:
        everything = [data for cast in casts for data in cast.shown]
        whose = "the first and last frames and the targets of all runs"
        views = [view_of(everything, whose)] * len(casts)
    else:
        views = [view_of(cast.shown) for cast in casts]
    clouds = [cast.place(view) for cast, (view, _, _) in zip(casts, views, strict=True)]
    boxes = [Box.around(part) for part in clouds]
    if len(dims) == 1:
        boxes = [Box.around([cloud for part in clouds for cloud in part])] * len(casts)
    known = dict.fromkeys(name for cast in casts for name in cast.frames.names)
    found = []
    for k, (cast, box, (_, how, axes)) in enumerate(zip(casts, boxes, views, strict=True)):
        cast.frames.names = list(known)
        found.append(cast.scene(box, how, axes, f"run{k}-"))
    return found


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
    shown: Sequence[LabeledDataset], whose: str = ""
) -> tuple[Callable[[LabeledDataset], np.ndarray], str, list[str] | None]:
    """How datasets become points of the page, a sentence that says how, and names of axes.

    With a continuous target in place of classes, and where all have one: features from left to
    right, the target upward."""
    first, ends = shown[0], "the first and last frame"
    whose = whose or (f"{ends} and the target" if len(shown) == 3 else ends)
    if any(data.has_classes or data.targets is None for data in shown):
        view, how = _view([data.x for data in shown], whose)
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


def _view(clouds: Sequence[Tensor], whose: str) -> tuple[Callable[[Tensor], np.ndarray], str]:
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

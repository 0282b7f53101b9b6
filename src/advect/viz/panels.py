"""One panel of particles: points, class ellipses and paths on given axes. Each returns its artists,
for films to remove.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.viz.states import State, as_array, some_rows
from advect.viz.theme import TEXT, Mark, dress, look, short

Marks = Mapping[Hashable, Mark]
Limits = list[tuple[float, float]]


def check_points(datasets: Sequence[LabeledDataset]) -> int:
    """The dimension of all of them, 2 or 3."""
    dims = {data.dim for data in datasets}
    if dims not in ({2}, {3}):
        remedy = "Project them all alike: view = viz.pca(frames, target), then draw view.frames and view.target."
        if min(dims) < 2:
            remedy = "Give samples a second feature, such as 0, to draw them on a line."
        raise InputError(
            "particles are drawn in 2 or in 3 dimensions", f"dimensions {sorted(dims)}", remedy
        )
    return dims.pop()


def limits_of(datasets: Sequence[LabeledDataset], ellipses: bool) -> Limits:
    """Ranges that hold all points (and ellipses) with a margin; in the plane, 0.45 to 0.8 times as
    high as wide.
    """
    points = [as_array(data.x) for data in datasets]
    if ellipses:
        for _, means, covariances in map(class_laws, datasets):
            reach = 2 * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2).clip(min=0))
            points += [means - reach, means + reach]
    low = np.min([part.min(axis=0) for part in points if len(part)], axis=0)
    high = np.max([part.max(axis=0) for part in points if len(part)], axis=0)
    centre, size = (low + high) / 2, high - low
    size = size + 0.1 * max(float(size.max()), 1e-6 * max(1.0, float(np.abs(centre).max())))
    if len(size) == 2:
        size = np.array([max(size[0], size[1] / 0.8), max(size[1], size[0] * 0.45)])
    return [(float(c - s / 2), float(c + s / 2)) for c, s in zip(centre, size, strict=True)]


def class_laws(data: LabeledDataset) -> tuple[list[Hashable], np.ndarray, np.ndarray]:
    """Name, mean and covariance of each class that has samples, as carried or estimated."""
    present = [position for position, count in enumerate(data.counts.values()) if count]
    if not present:
        return [], np.zeros((0, data.dim)), np.zeros((0, data.dim, data.dim))
    laws = (data if data.complete else data.subset(data.labeled)).class_laws()
    return (
        [data.classes[i] for i in present],
        as_array(laws.means)[present],
        as_array(laws.covariances())[present],
    )


def groups(data: LabeledDataset) -> Iterator[tuple[Hashable, np.ndarray]]:
    """Points of each class that has any, then under None those without a label."""
    points, codes = as_array(data.x), data.y.cpu().numpy()
    for code in (*range(len(data.classes)), -1):
        chosen = codes == code
        if chosen.any():
            yield (None if code < 0 else data.classes[code]), points[chosen]


def draw_points(
    axes: Any,
    data: LabeledDataset,
    marks: Marks,
    *,
    hollow: bool = False,
    size: float | None = None,
) -> list[Any]:
    """A cloud for each class: filled, or hollow and faint for what is only looked at."""
    now, in_space = look(), data.dim == 3
    area = size or (8 if in_space else 12) * min(1.0, max(0.25, math.sqrt(400 / len(data))))
    options: dict[str, Any] = {"s": area} | ({"depthshade": False} if in_space else {})
    if hollow:
        options |= {
            "facecolors": "none",
            "linewidths": 0.6,
            "alpha": 0.35 if in_space else 0.5,
            "zorder": 1,
        }
    else:
        options |= {"linewidths": 0.25, "edgecolors": now.ground, "zorder": 3}
    clouds = []
    for name, points in groups(data):
        mark = marks.get(name, Mark(now.grey, "o", ""))
        colour = {"edgecolors" if hollow else "color": mark.colour}
        clouds.append(axes.scatter(*points.T, marker=mark.marker, **colour, **options))
    return clouds


def draw_ellipses(
    axes: Any, data: LabeledDataset, marks: Marks, *, dashed: bool = False
) -> list[Any]:
    """The points within two standard deviations of each class law."""
    from matplotlib.patches import Ellipse

    line: dict[str, Any] = (
        {"linewidth": 1.0, "linestyle": (0, (4, 2))} if dashed else {"linewidth": 1.3}
    )
    patches = []
    for name, mean, covariance in zip(*class_laws(data), strict=True):
        variances, directions = np.linalg.eigh(covariance)
        width, height = 4 * np.sqrt(variances.clip(min=0))  # from −2σ to 2σ
        angle = math.degrees(math.atan2(directions[1, 0], directions[0, 0]))
        colour = marks[name].colour if name in marks else look().grey
        patch = Ellipse(
            mean, width, height, angle=angle, fill=False, edgecolor=colour, zorder=4, **line
        )
        patches.append(axes.add_patch(patch))
    return patches


def paths_of(states: Sequence[State], n: int = 60, seed: int = 0) -> tuple[np.ndarray, list[int]]:
    """(n, states, d) positions over time of some samples, and which these are. More lines than that
    are a blot.
    """
    datasets = [state.dataset for state in states]
    if len({data.x.shape for data in datasets}) > 1:
        raise InputError(
            "trails must follow the same samples",
            "frames of different sizes",
            "Take them from one flow.",
        )
    rows = some_rows(len(datasets[0]), n, seed)
    return np.stack([as_array(data.x)[rows] for data in datasets], axis=1), rows


def draw_paths(
    axes: Any, paths: np.ndarray, colours: Any = None, *, width: float = 0.4, alpha: float = 0.6
) -> list[Any]:
    """A thin line through each row of (n, states, d) positions."""
    if paths.shape[1] < 2:
        return []
    if paths.shape[2] == 3:
        from mpl_toolkits.mplot3d.art3d import Line3DCollection as Lines
    else:
        from matplotlib.collections import LineCollection as Lines
    lines: Any = Lines(
        list(paths),
        colors=look().grey if colours is None else colours,
        linewidths=width,
        alpha=alpha,
        zorder=2,
    )
    return [
        axes.add_collection3d(lines, autolim=False)
        if paths.shape[2] == 3
        else axes.add_collection(lines, autolim=False)
    ]


def until(states: Sequence[State], state: State) -> list[State]:
    """The states that are not later than this one; all of them where that is not known."""
    return [s for s in states if s.step is None or state.step is None or s.step <= state.step]


def finish_panel(axes: Any, limits: Limits, *, left: bool = True, name: str = "") -> None:
    """Limits, aspect, ticks and the look; the name of a row at the left of its first panel."""
    now = look()
    axes.set(xlim=limits[0], ylim=limits[1])
    if len(limits) == 3:
        axes.set(zlim=limits[2], xticklabels=[], yticklabels=[], zticklabels=[])
        axes.set_box_aspect([high - low for low, high in limits], zoom=1.22)
        axes.grid(False)
        axes.view_init(elev=16, azim=-50)
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.set_pane_color(now.pane)
            axis.line.set_color(now.line)
        if left and name.strip():
            options = {
                "rotation": 90,
                "va": "center",
                "ha": "right",
                "fontsize": TEXT,
                "color": now.ink,
            }
            axes.text2D(-0.04, 0.5, short(name, 28), transform=axes.transAxes, **options)
    else:
        axes.set_aspect("equal")
        axes.locator_params(nbins=4)
        axes.tick_params(labelleft=left)
        axes.set_ylabel(short(name, 28) if left and name.strip() else "")
    dress(axes)


def mark_handles(marks: Marks, *, target: bool, unlabeled: bool) -> list[Any]:
    """Legend entries for classes, the target and samples without a label."""
    from matplotlib.lines import Line2D

    def dot(label: str, colour: str, marker: str = "o", **options: Any) -> Line2D:
        return Line2D(
            [],
            [],
            linestyle="none",
            markersize=5,
            color=colour,
            marker=marker,
            label=label,
            **options,
        )

    handles = [
        dot(class_label(name), mark.colour, mark.marker, markeredgewidth=0)
        for name, mark in marks.items()
    ]
    if unlabeled:
        handles.append(dot("no label", look().grey, markeredgewidth=0))
    if target:
        handles.append(dot("target", look().grey, markerfacecolor="none"))
    return handles


def class_label(name: Hashable) -> str:
    """A name that is a word stands for itself; a number says what it numbers."""
    return (
        short(name)
        if isinstance(name, str) and not name.strip().isdigit()
        else short(f"class {name}")
    )

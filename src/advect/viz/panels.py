"""The parts of a figure: a figure without global state, its colours, and one panel of particles."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from advect.data import LabeledDataset
from advect.errors import AdvectError, InputError
from advect.trajectory import Frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's eight colours, which colour-blind readers tell apart too, and two more for sets of ten classes.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442", "#7A5C99", "#8C564B")
GREY, PALE, INK = "#8A8A8A", "#B8B8B8", "#333333"


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise AdvectError("drawing needs matplotlib; install it with pip install matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")


def style(axes: Any) -> None:
    axes.tick_params(color=PALE, labelcolor=INK, labelsize=7.5, width=0.7, length=2.5)
    axes.spines[:].set(color=PALE, linewidth=0.7)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set(fontsize=9, color=INK)


def dataset_of(frame: LabeledDataset | Frame) -> LabeledDataset:
    data = frame.dataset if isinstance(frame, Frame) else frame
    if not isinstance(data, LabeledDataset):
        raise InputError(
            "a frame must be a LabeledDataset or a recorded Frame", type(data).__name__, "Pass result.trajectory, for instance."
        )
    return data


def as_array(values: torch.Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()


def class_colours(datasets: Sequence[LabeledDataset]) -> dict[Hashable, str]:
    """A colour for each class that ever has samples, in order of appearance."""
    names = dict.fromkeys(name for data in datasets for name, count in data.counts.items() if count)
    return {name: PALETTE[position % len(PALETTE)] for position, name in enumerate(names)}


def limits_of(datasets: Sequence[LabeledDataset], ellipses: bool) -> list[tuple[float, float]]:
    """Ranges that hold all points (and ellipses) with a margin; in the plane, 0.45 to 0.8 times as high as wide."""
    points = [as_array(data.x) for data in datasets]
    if ellipses:
        for means, covariances in map(class_laws, datasets):
            reach = 2 * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2).clip(min=0))
            points += [means - reach, means + reach]
    low, high = np.concatenate(points).min(axis=0), np.concatenate(points).max(axis=0)
    centre, size = (low + high) / 2, high - low
    size = size + 0.1 * max(float(size.max()), 1e-6)
    if len(size) == 2:
        size = np.array([max(size[0], size[1] / 0.8), max(size[1], size[0] * 0.45)])
    return [(float(c - s / 2), float(c + s / 2)) for c, s in zip(centre, size, strict=True)]


def class_laws(data: LabeledDataset) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of each class: as carried, or estimated from the samples if there is a law for each of them."""
    laws = data.laws() if data.law_index is None else data.moments()
    present = [position for position, count in enumerate(data.counts.values()) if count]
    return as_array(laws.means)[present], as_array(laws.covariances())[present]


def draw_points(axes: Any, data: LabeledDataset, colours: Mapping[Hashable, str], *, hollow: bool = False) -> None:
    in_space = data.dim == 3
    options: dict[str, Any] = {"s": 7, "depthshade": False} if in_space else {"s": 11}
    if hollow:
        options |= {"facecolors": "none", "linewidths": 0.6, "alpha": 0.3 if in_space else 0.45, "zorder": 1}
    else:
        options |= {"linewidths": 0.25, "edgecolors": "white", "zorder": 3}
    for name, part in data.by_class():
        colour = colours.get(name, GREY)
        axes.scatter(*as_array(part.x).T, **{"edgecolors" if hollow else "color": colour}, **options)


def draw_trails(axes: Any, trails: list[LabeledDataset | Frame], frame: LabeledDataset | Frame) -> None:
    kept = [t for t in trails if not (isinstance(t, Frame) and isinstance(frame, Frame) and t.index > frame.index)]
    if len(kept) < 2:
        return
    if len({dataset_of(t).x.shape for t in kept}) > 1:
        raise InputError("trails must follow the same samples", "frames of different sizes", "Take them from one flow.")
    paths = np.stack([as_array(dataset_of(t).x) for t in kept], axis=1)  # (n, frames, d)
    for path in paths[np.random.default_rng(0).permutation(len(paths))[:60]]:  # more lines than that are a blot
        axes.plot(*path.T, color=GREY, linewidth=0.4, alpha=0.6, zorder=2)


def draw_ellipses(axes: Any, data: LabeledDataset, colours: Mapping[Hashable, str], *, dashed: bool = False) -> None:
    from matplotlib.patches import Ellipse

    names = [name for name, count in data.counts.items() if count]
    for name, mean, covariance in zip(names, *class_laws(data), strict=True):
        variances, directions = np.linalg.eigh(covariance)
        width, height = 4 * np.sqrt(variances.clip(min=0))  # from −2σ to 2σ
        angle = math.degrees(math.atan2(directions[1, 0], directions[0, 0]))
        line = {"linewidth": 1.0, "linestyle": (0, (4, 2))} if dashed else {"linewidth": 1.3}
        colour = colours.get(name, GREY)
        axes.add_patch(Ellipse(mean, width, height, angle=angle, fill=False, edgecolor=colour, zorder=4, **line))


def finish_panel(axes: Any, limits: list[tuple[float, float]], *, left: bool, name: str) -> None:
    axes.set(xlim=limits[0], ylim=limits[1])
    if len(limits) == 3:
        axes.set(zlim=limits[2], xticklabels=[], yticklabels=[], zticklabels=[])
        axes.set_box_aspect([high - low for low, high in limits], zoom=1.35)
        axes.grid(False)
        axes.view_init(elev=16, azim=-50)
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.set_pane_color((0.97, 0.97, 0.97))
            axis.line.set_color("#C8C8C8")
        if left and name:
            axes.text2D(-0.04, 0.5, name, transform=axes.transAxes, rotation=90, va="center", ha="right", fontsize=9, color=INK)
    else:
        axes.set_aspect("equal")
        axes.locator_params(nbins=4)
        axes.tick_params(labelleft=left)
        axes.set_ylabel(name if left else "")
    style(axes)


def add_legend(figure: Any, colours: Mapping[Hashable, str], *, target: bool) -> None:
    from matplotlib.lines import Line2D

    dot = {"linestyle": "none", "marker": "o", "markersize": 5}
    handles = [Line2D([], [], color=colour, label=f"class {name}", **dot) for name, colour in colours.items()]
    if target:
        handles.append(Line2D([], [], color=GREY, markerfacecolor="none", label="target", **dot))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 8), frameon=False, fontsize=8)

"""Datasets between datasets: a path in a row, a triangle of barycenters. Samples have the colours of
their soft labels, mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_count
from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import layout
from advect.errors import InputError
from advect.viz.images import bare, image_grid, in_turn, mosaic, pixels, scaled, show_mosaic
from advect.viz.panels import check_points, draw_points, limits_of, mark_handles
from advect.viz.projections import pca
from advect.viz.states import State, as_array, names_of
from advect.viz.theme import TEXT, add_legend, class_marks, dress, look, new_figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Soft = Sequence[Tensor]
_FAINT = 0.02  # mass of a label law below which its ellipse is not drawn


def path_figure(
    datasets: Sequence[LabeledDataset],
    times: Sequence[float],
    probabilities: Soft,
    *,
    rows: int = 10,
    ellipses: bool = True,
) -> Figure:
    """A path from one dataset to another: images in rows, points in panels, in many dimensions by
    their principal components.

    Args:
        datasets: with the same pairs of samples at each time.
        times: of the datasets.
        probabilities: soft labels of each, over one list of classes.
        rows: how many images.
        ellipses: whether to draw those of the label laws, in the plane.

    Example:
        >>> import advect as ad
        >>> from advect.viz.between import path_figure
        >>> digits = ad.datasets.load("digits", n=60)
        >>> path = ad.interpolate(digits.subset(range(30)), digits.subset(range(30, 60)), [0, 1])
        >>> len(path_figure(path.datasets, [0, 1], [state.probabilities for state in path]).axes)
        1
    """
    titles = [f"t = {time:g}" for time in times]
    if layout(datasets[0].sample_shape) is not None:
        return image_grid(datasets, rows=min(rows, len(datasets[0])), titles=titles)
    plane = in_the_plane(datasets)
    bounded = [_with_reach(data) if ellipses else data for data in plane]
    limits = limits_of([data.replace(law=None, law_index=None) for data in bounded], False)
    ratio = (limits[1][1] - limits[1][0]) / (limits[0][1] - limits[0][0])
    columns = min(len(plane), 5)
    lines = -(-len(plane) // columns)
    width = 2.6 if columns <= 3 else 2.2
    figure = new_figure(width * columns, (width * ratio + 0.35) * lines)
    cells = figure.add_gridspec(lines, columns)
    for at, (data, soft, title) in enumerate(zip(plane, probabilities, titles, strict=True)):
        axes = figure.add_subplot(cells[divmod(at, columns)])
        draw_soft(axes, data, soft, ellipses=ellipses)
        axes.set(xlim=limits[0], ylim=limits[1])
        axes.set_aspect("equal")
        axes.set_title(title, pad=4)
        axes.locator_params(nbins=4)
        axes.tick_params(labelleft=at % columns == 0)
        dress(axes)
    _legend(figure, plane[0], probabilities)
    return figure


def triangle_figure(
    datasets: Sequence[LabeledDataset],
    weights: Sequence[Sequence[float]],
    probabilities: Soft,
    *,
    names: Sequence[str] = ("a", "b", "c"),
    rows: Sequence[Sequence[int]] = (),
    side: float = 1.15,
) -> Figure:
    """Barycenters of three datasets where their weights are in a triangle: images in small sheets,
    points in panels.

    Args:
        datasets: one for each node.
        weights: three for each, that sum to one; the first dataset is at the top, the second at the
            left, the third at the right.
        probabilities: soft labels of each, over one list of classes.
        names: of the corners.
        rows: for images, which samples of each node to show, equally many.
        side: of a node, in inches.

    Example:
        >>> import advect as ad
        >>> sets = [ad.datasets.load(f"toy:gaussians?n=20&shift={at},0") for at in (0, 3, 9)]
        >>> len(ad.triangle(*sets, n=2).figure().axes)
        6
    """
    if len(names) != 3:
        raise InputError("a triangle has three corners", f"{len(names)} names", "Name three.")
    n = round(1 / min(one for node in weights for one in node if one > 0))
    images = layout(datasets[0].sample_shape) is not None and bool(rows)
    plane = list(datasets) if images else in_the_plane(datasets)
    gap, margin = 0.18, 0.24
    width, height = (n + 1) * (side + gap) + 2 * margin, (n + 1) * (side + gap) + 2 * margin
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    limits = [] if images else _square(plane)
    shown = scaled_all(plane, rows) if images else []
    for at, (data, node, soft) in enumerate(zip(plane, weights, probabilities, strict=True)):
        row, column = round((1 - node[0]) * n), round(node[2] * n)
        left = width / 2 + (column - row / 2) * (side + gap) - side / 2
        bottom = height - margin - gap - side - row * (side + gap)
        axes: Any = figure.add_axes((left / width, bottom / height, side / width, side / height))
        if images:
            show_mosaic(axes, shown[at])
            bare(axes)
        else:
            draw_soft(axes, data, soft, ellipses=False, size=5.0)
            axes.set(xlim=limits[0], ylim=limits[1])
            dress(axes)
        axes.set(xticks=[], yticks=[])
        if 1 in node:
            below = node[0] != 1
            axes.text(
                0.5,
                -0.05 if below else 1.05,
                short(names[list(node).index(1)], 24),
                transform=axes.transAxes,
                ha="center",
                va="top" if below else "bottom",
                fontsize=TEXT,
                color=look().ink,
            )
    return figure


def sets_figure(
    datasets: Sequence[LabeledDataset], titles: Sequence[str], *, each: int = 16
) -> Figure:
    """Several datasets side by side: some images of each, or points in panels with one range.

    Args:
        datasets: of one dimension.
        titles: of the panels.
        each: how many images.

    Example:
        >>> import advect as ad
        >>> from advect.viz.between import sets_figure
        >>> len(sets_figure([ad.datasets.moons(20), ad.datasets.rings(20)], ["moons", "rings"]).axes)
        2
    """
    images = layout(datasets[0].sample_shape) is not None
    plane = list(datasets) if images else in_the_plane(datasets)
    each = min(each, *(len(data) for data in plane))
    sheets = scaled_all(plane, [in_turn(data, each, 0) for data in plane]) if images else []
    limits = [] if images else _square(plane)
    marks = class_marks(names_of(plane))
    columns = min(len(plane), 4)
    lines = -(-len(plane) // columns)
    figure = new_figure(2.4 * columns, 2.6 * lines)
    cells = figure.add_gridspec(lines, columns)
    for at, (data, title) in enumerate(zip(plane, titles, strict=True)):
        axes: Any = figure.add_subplot(cells[divmod(at, columns)])
        if images:
            show_mosaic(axes, sheets[at])
            bare(axes)
        else:
            draw_points(axes, data, marks)
            axes.set(xlim=limits[0], ylim=limits[1])
            dress(axes)
        axes.set(xticks=[], yticks=[])
        axes.set_title(short(title, 24), pad=4)
    if not images:
        complete = all(data.complete for data in plane)
        add_legend(figure, mark_handles(marks, target=False, unlabeled=not complete))
    return figure


def in_the_plane(datasets: Sequence[LabeledDataset]) -> list[LabeledDataset]:
    """As they are in two dimensions; more become the first two principal components."""
    if datasets[0].dim == 2:
        return list(datasets)
    if datasets[0].dim < 2:
        check_points(datasets)  # says what to do
    return [State.of(frame).dataset for frame in pca(list(datasets)).frames]


def draw_soft(
    axes: Any, data: LabeledDataset, soft: Tensor, *, ellipses: bool = True, size: float = 9.0
) -> None:
    """Points in the mixed colours of their labels, larger where they have more mass; ellipses of two
    standard deviations for label laws.
    """
    colours, mass = mixed_colours(data, soft), as_array(data.weights)
    areas = size * np.clip(mass * len(mass), 0.15, 4.0)
    points = as_array(data.x)
    axes.scatter(*points.T, s=areas, c=colours, linewidths=0.2, edgecolors=look().ground, zorder=3)
    if ellipses and data.law is not None and data.dim == 2:
        _draw_laws(axes, data, colours, mass)


def _with_reach(data: LabeledDataset) -> LabeledDataset:
    """Its points and the corners of the ellipses that are drawn."""
    if data.law is None or data.dim != 2:
        return data
    mass = data.weights.new_zeros(len(data.law)).index_add(0, data.law_rows, data.weights)
    seen = mass >= _FAINT
    middle, reach = data.law.means[seen], 2 * data.law.covariance.scales()[seen]
    x = torch.cat([data.x.double(), middle.double() - reach, middle.double() + reach])
    return LabeledDataset(x)


def _draw_laws(axes: Any, data: LabeledDataset, colours: np.ndarray, mass: np.ndarray) -> None:
    from matplotlib.patches import Ellipse

    assert data.law is not None
    rows, means = data.law_rows.cpu().numpy(), as_array(data.law.means)
    covariances = as_array(data.law.covariances())
    for law in np.unique(rows):
        own = rows == law
        if mass[own].sum() < _FAINT:
            continue
        variances, directions = np.linalg.eigh(covariances[law])
        wide, high = 4 * np.sqrt(variances.clip(min=0))
        angle = np.degrees(np.arctan2(directions[1, 0], directions[0, 0]))
        colour = np.average(colours[own], axis=0, weights=mass[own]).clip(0, 1)
        options = {"fill": False, "edgecolor": colour, "linewidth": 1.1, "zorder": 4}
        middle = (float(means[law, 0]), float(means[law, 1]))
        axes.add_patch(Ellipse(middle, wide, high, angle=float(angle), **options))


def mixed_colours(data: LabeledDataset, soft: Tensor) -> np.ndarray:
    """(n, 3): the colours of classes by their shares; what is unknown is grey."""
    marks = class_marks(data.classes)
    palette = np.array([_rgb(mark.colour) for mark in marks.values()]).reshape(-1, 3)
    shares = as_array(soft)
    rest = (1 - shares.sum(axis=1, keepdims=True)).clip(0, 1)
    return (shares @ palette + rest * _rgb(look().grey)).clip(0, 1)


def _rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def scaled_all(datasets: Sequence[LabeledDataset], rows: Sequence[Sequence[int]]) -> list[Any]:
    """A small sheet of images for each dataset, all with one range of shades."""
    counts = {len(own) for own in rows}
    if len(rows) != len(datasets) or len(counts) != 1:
        raise InputError(
            "each node needs as many samples as every other", sorted(counts), "Pass rows alike."
        )
    wide = max(1, round(check_count("rows", counts.pop()) ** 0.5))
    pictures = [pixels(data, list(own)) for data, own in zip(datasets, rows, strict=True)]
    whole = scaled(np.stack(pictures))
    sheets = []
    for part in whole:
        part = part[: len(part) // wide * wide]
        sheets.append(mosaic(part.reshape(-1, wide, *part.shape[1:])))
    return sheets


def _square(datasets: Sequence[LabeledDataset]) -> list[tuple[float, float]]:
    points = np.concatenate([as_array(data.x) for data in datasets])
    low, high = points.min(axis=0), points.max(axis=0)
    half = 0.54 * max(float((high - low).max()), 1e-12)
    return [(float(c - half), float(c + half)) for c in (low + high) / 2]


def _legend(figure: Any, data: LabeledDataset, probabilities: Soft) -> None:
    used = np.max([as_array(soft).max(axis=0) for soft in probabilities], axis=0) > 0
    marks = class_marks(data.classes)
    shown = {name: mark for (name, mark), one in zip(marks.items(), used, strict=True) if one}
    plain = {name: type(mark)(mark.colour, "o", "") for name, mark in shown.items()}
    unlabeled = any(bool((soft.sum(dim=1) < 1 - 1e-6).any()) for soft in probabilities)
    add_legend(figure, mark_handles(plain, target=False, unlabeled=unlabeled))

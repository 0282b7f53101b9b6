"""Which sample goes where: a transport plan as lines between points, or as a matrix sorted by
class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from advect._util.checks import check_count, check_kind
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.transport.distance import Distance
from advect.viz.panels import check_points, draw_paths, draw_points, limits_of
from advect.viz.particle_figures import single_panel
from advect.viz.projections import View
from advect.viz.states import as_array, names_of, states_of
from advect.viz.tables import add_bar
from advect.viz.theme import (
    SMALL,
    class_marks,
    dress,
    heat_colours,
    look,
    new_figure,
    short,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def coupling(
    distance: Distance, *, view: View | None = None, lines: int = 400, seed: int = 0
) -> Figure:
    """Lines between coupled samples of two datasets in the plane or in space, stronger the more
    mass they carry.

    Filled marks are the source, hollow ones the target; a line has the colour of its source class.
    Of a plan with more pairs than ``lines``, some are drawn at random, each as likely as its mass,
    so that the picture is a fair sample of the plan.

    Args:
        distance: what ``ad.otdd`` returned.
        view: the two datasets in fewer dimensions, from ``pca([source], target)`` or
            ``tsne([source], target)`` with all of their samples.
        lines: how many pairs at most.
        seed: of the choice of pairs.

    Raises:
        InputError: not a distance, samples that are not of 2 or 3 dimensions, a view of other
            datasets.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> a = ad.LabeledDataset([[0.0, 0.0], [0.0, 1.0]], ["low", "high"])
        >>> distance = ad.otdd(a, a.replace(x=a.x + 3), solver=ad.ExactOT())
        >>> viz.coupling(distance).axes[0].get_title()
        '2 pairs, all of the mass'
    """
    plan, source, target = _plan(distance, view)
    dim = check_points([source, target])
    i, j = drawn_pairs(plan, check_count("lines", lines), check_count("seed", seed, least=0))
    mass = plan[i, j]
    marks = class_marks(names_of([source]))
    figure, axes = single_panel(
        limits_of([source, target], False), marks, target=True, unlabeled=not source.complete
    )
    draw_points(axes, target, marks, hollow=True)
    ends = np.stack([as_array(source.x)[i], as_array(target.x)[j]], axis=1)  # (lines, 2, d)
    colours = [marks[name].colour if name in marks else look().grey for name in source.labels]
    strength = (0.15 + 0.65 * mass / mass.max()).tolist()
    draw_paths(axes, ends, [colours[k] for k in i], width=0.6, alpha=strength if dim == 2 else 0.4)
    draw_points(axes, source, marks)
    whole = len(mass) < lines or mass.sum() > 0.999 * plan.sum()
    axes.title.set_text(
        f"{len(mass)} pairs, {'all of the mass' if whole else 'drawn by their mass'}"
    )
    return figure


def coupling_matrix(distance: Distance) -> Figure:
    """The transport plan of two datasets as a matrix, samples sorted by class, with lines between
    classes.

    Of large plans, neighbouring samples of a class are added up, so that single entries do not
    vanish.

    Args:
        distance: what ``ad.otdd`` returned; samples need not be points of a plane.

    Raises:
        InputError: not a distance.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> data = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> axes = viz.coupling_matrix(ad.otdd(data, data, solver=ad.ExactOT())).axes[0]
        >>> [label.get_text() for label in axes.get_yticklabels()]
        ['0', '1', '2']
    """
    from matplotlib.colors import PowerNorm

    plan, source, target = _plan(distance, None)
    sides = [_sorted_bins(data) for data in (source, target)]
    (rows, row_edges, row_names), (columns, column_edges, column_names) = sides
    pooled = np.add.reduceat(
        np.add.reduceat(plan[rows][:, columns], row_edges[:-1], axis=0), column_edges[:-1], axis=1
    )
    now = look()
    names = [[short(name) for name, _, _ in parts] for parts in (row_names, column_names)]
    figure = new_figure(4.6 + text_width(names[0]), 4.0 + text_width(names[1]))
    axes: Any = figure.add_subplot()
    # spread-out mass shows beside single pairs
    norm = PowerNorm(0.5, 0, max(float(pooled.max()), 1e-300))
    mesh = axes.pcolormesh(
        column_edges, row_edges, pooled, cmap=heat_colours(), norm=norm, rasterized=True
    )
    for draw, parts in ((axes.axhline, row_names), (axes.axvline, column_names)):
        for _, begin, _ in parts[1:]:
            draw(begin, color=now.grey, linewidth=0.6)
    axes.set(
        xlim=(0, len(target)),
        ylim=(len(source), 0),
        xlabel="target samples by class",
        ylabel="source samples by class",
    )
    dress(axes)
    _class_ticks(axes.xaxis, column_names, 3.6 / len(target), vertical=True)
    _class_ticks(axes.yaxis, row_names, 3.3 / len(source), vertical=False)
    axes.tick_params(length=0)
    add_bar(figure, mesh, axes)
    return figure


def _plan(
    distance: Distance, view: View | None
) -> tuple[np.ndarray, LabeledDataset, LabeledDataset]:
    remedy = "Pass what ad.otdd returned."
    check_kind("a coupling is drawn of a Distance", distance, Distance, remedy)
    source, target = distance.source, distance.target
    if view is not None:
        if len(view.frames) != 1 or view.target is None:
            raise InputError(
                "a view of a coupling has one frame and a target",
                f"{len(view.frames)} frames",
                "Use viz.pca([source], target).",
            )
        sizes = len(source), len(target)
        source, target = states_of(view.frames)[0].dataset, view.target
        if (len(source), len(target)) != sizes:
            raise InputError(
                f"the view must hold the {sizes} samples of the distance",
                (len(source), len(target)),
                "View these.",
            )
    return as_array(distance.plan()), source, target


def drawn_pairs(plan: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of n entries drawn without replacement, as likely as their mass; of all that have
    any, if these are fewer.

    The n largest of log P + Gumbel noise are such a draw.
    """
    known = np.flatnonzero(plan.ravel() > 1e-12 * plan.max())
    keys = np.log(plan.ravel()[known]) + np.random.default_rng(seed).gumbel(size=len(known))
    i, j = np.unravel_index(known[np.argsort(-keys)[:n]], plan.shape)
    return i, j


def _sorted_bins(
    data: LabeledDataset, most: int = 160
) -> tuple[np.ndarray, np.ndarray, list[tuple[object, int, int]]]:
    """Samples in order of class; edges of bins, none across classes; (name, first, last) of each
    class.
    """
    codes = data.y.cpu().numpy()
    order, size = np.argsort(codes, kind="stable"), math.ceil(len(codes) / most)
    edges, parts, begin = [], [], 0
    for code in np.unique(codes).tolist():
        end = begin + int((codes == code).sum())
        edges += range(begin, end, size)
        parts.append(("no label" if code < 0 else data.classes[code], begin, end))
        begin = end
    return order, np.array([*edges, begin]), parts


def _class_ticks(
    axis: Any, parts: Sequence[tuple[object, int, int]], inches: float, *, vertical: bool
) -> None:
    """Names in the middle of their classes, those that have the room; upright if all are short
    enough.
    """
    names = [short(name) for name, _, _ in parts]
    narrowest = min(end - begin for _, begin, end in parts) * inches
    turned = vertical and text_width(names) > narrowest
    middles, shown, last = [], [], -math.inf
    for name, (_, begin, end) in zip(names, parts, strict=True):
        middle = (begin + end) / 2
        if (middle - last) * inches >= (
            0.13 if turned or not vertical else text_width([name]) * 1.1
        ):
            middles.append(middle)
            shown.append(name)
            last = middle
    axis.set_ticks(middles, shown, rotation=90 if turned else 0, fontsize=SMALL)

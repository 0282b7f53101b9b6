"""Numbers along a flow: the objective and its terms, metrics, and how many samples each class
has.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from advect.datasets.trajectory import Trajectory
from advect.errors import InputError
from advect.flows.loop import FlowResult
from advect.viz.panels import class_label
from advect.viz.states import Curve, Frames, curves_of, names_of, states_of
from advect.viz.theme import SMALL, add_legend, class_marks, dress, look, new_figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))


def curves(result: FlowResult | Trajectory) -> Figure:
    """The objective of a flow and its terms against the steps, then one panel for each metric.

    The scale of the objective is logarithmic where it and its terms are positive throughout. A
    trajectory knows the objective at its frames alone.

    Raises:
        InputError: neither the result of a flow nor a trajectory with frames.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> spread = ad.Metric("spread", lambda rho: rho.x.max() - rho.x.min())
        >>> result = ad.flow(data, ad.Potential(ad.norm()), n_steps=5, callbacks=[spread])
        >>> [axes.get_ylabel() for axes in viz.curves(result).axes]
        ['objective', 'spread']
    """
    objective, terms, metrics = curves_of(result)
    parts = {"objective": objective, **terms}
    n, across = 1 + len(metrics), min(3, 1 + len(metrics))
    down = math.ceil(n / across)
    figure = new_figure(3.3 * across, 2.4 * down)
    panels: Any = [figure.add_subplot(down, across, position + 1) for position in range(n)]
    now, colours = look(), itertools.cycle(look().palette)
    for position, (name, points) in enumerate(parts.items()):
        total = position == 0
        line = (
            {"color": now.ink, "linewidth": 2.0}
            if total
            else {"color": next(colours), "linewidth": 1.4}
        )
        dashes = "-" if total else _DASHES[position % len(_DASHES)]
        _plot(panels[0], points, label=short(name, 28), linestyle=dashes, **line)
    if len(parts) > 1:
        add_legend(figure, panels[0].get_lines())
    for axes, points in zip(panels[1:], metrics.values(), strict=True):
        _plot(axes, points, color=now.palette[1], linewidth=1.6)
    if min(value for points in parts.values() for _, value in points) > 0:
        panels[0].set_yscale("log")
    for axes, label in zip(panels, ("objective", *metrics), strict=True):
        _finish(axes, "step", short(label, 28))
    return figure


def _plot(axes: Any, points: Curve, **line: Any) -> None:
    dots = {"marker": "o", "markersize": 3} if len(points) <= 12 else {}
    axes.plot(*zip(*points, strict=True), **line, **dots)


def class_counts(frames: Frames) -> Figure:
    """How many samples each class has over time, stacked: under ``JointVariableLabels`` classes are
    born, grow and die.

    Args:
        frames: datasets or recorded frames, a trajectory or the result of a flow.

    Raises:
        InputError: no frames, or none with labels.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> data = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> merged = data.replace(y=data.y.clamp(min=1))
        >>> figure = viz.class_counts([data, data, merged])
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['class 2', 'class 1', 'class 0']
    """
    from matplotlib.patches import Patch

    states = states_of(frames)
    counts = [state.dataset.counts for state in states]
    names = names_of(state.dataset for state in states)
    if not names:
        raise InputError(
            "counts of classes need labels", "samples without any", "ad.pseudo_labels finds some."
        )
    marks, now = class_marks(names), look()
    recorded = all(state.step is not None for state in states)
    steps: list[Any] = [
        position if state.step is None else state.step for position, state in enumerate(states)
    ]
    if len(steps) == 1:  # a single state is a bar
        steps, counts = [steps[0] - 0.5, steps[0] + 0.5], counts * 2
    # (frames, classes)
    tops = np.cumsum([[count.get(name, 0) for name in names] for count in counts], axis=1)
    floors = np.column_stack([np.zeros(len(counts)), tops[:, :-1]])
    figure = new_figure(5.2, 2.6)
    axes = figure.add_subplot()
    bands = {"step": "mid", "edgecolor": now.ground, "linewidth": 0.6}
    handles = []
    for position, (name, mark) in enumerate(marks.items()):
        axes.fill_between(
            steps,
            floors[:, position],
            tops[:, position],
            facecolor=mark.colour,
            hatch=mark.hatch,
            label=class_label(name),
            **bands,
        )
        handles.append(
            Patch(
                facecolor=mark.colour,
                hatch=mark.hatch,
                edgecolor=now.ground,
                label=class_label(name),
            )
        )
    axes.set(xlim=(steps[0], steps[-1]), ylim=(0, tops.max()))
    _finish(axes, "step" if recorded else "frame", "samples")
    axes.grid(False)
    _legend_beside(figure, handles[::-1])
    return figure


def _legend_beside(figure: Any, handles: list[Any]) -> None:
    """In the order of the bands, from the top."""
    if len(handles) > 12:
        add_legend(figure, handles)
        return
    options = {"frameon": False, "fontsize": SMALL, "labelcolor": look().ink}
    figure.legend(handles=handles, loc="outside right center", **options)


def _finish(axes: Any, horizontal: str, vertical: str) -> None:
    axes.set(xlabel=horizontal, ylabel=vertical)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_axisbelow(True)
    axes.grid(color=look().grid, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    dress(axes)

"""Numbers along a flow: the objective and its terms, metrics, and class counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from advect.flows.loop import FlowResult
from advect.io.trajectory import Trajectory
from advect.viz.states import Curve, curves_of, names_of, states_of
from advect.viz.theme import add_legend, class_label, class_marks, dress, look, new_figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
_COUNTS = "samples of each class"


def curves(flow: FlowResult | Trajectory | Mapping[str, FlowResult | Trajectory]) -> Figure:
    """The objective of a flow and its terms against the steps, then a panel for each metric.

    The scale of the objective is logarithmic if it and its terms are positive. Where the numbers of
    samples of the classes change, a panel shows them. Of several flows, the objectives and metrics
    are drawn on common axes.

    Args:
        flow: the result of a flow, a trajectory, or a mapping from names to these.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> spread = ad.Metric("spread", lambda rho: rho.x.max() - rho.x.min())
        >>> result = ad.flow(data, ad.Potential(ad.norm()), n_steps=5, callbacks=[spread])
        >>> [axes.get_ylabel() for axes in viz.curves(result).axes]
        ['objective', 'spread']
    """
    several = isinstance(flow, Mapping)
    flows = flow if isinstance(flow, Mapping) else {"objective": flow}
    panels: dict[str, dict[str, Curve]] = {"objective": {}}
    colours: dict[str, str] = {}
    for name, each in flows.items():
        objective, terms, metrics = curves_of(each)
        panels["objective"] |= {name: objective, **({} if several else terms)}
        for metric, points in metrics.items():
            panels.setdefault(metric, {})[name] = points
        if not several and (counts := _class_counts(each)):
            panels[_COUNTS] = {class_label(k): line for k, line in counts.items()}
            colours = {class_label(k): mark.colour for k, mark in class_marks(counts).items()}
    across = min(3, len(panels))
    figure = new_figure(3.3 * across, 2.4 * math.ceil(len(panels) / across))
    ink, palette, handles = look().ink, look().palette, []
    for position, (label, lines) in enumerate(panels.items()):
        axes: Any = figure.add_subplot(-(-len(panels) // across), across, position + 1)
        inks = palette if several else palette[1:] if position else (ink, *palette)
        for k, (name, points) in enumerate(lines.items()):
            style = {"linestyle": _DASHES[k % len(_DASHES)], "color": inks[k % len(inks)]}
            if label == _COUNTS:
                style = {"color": colours[name]}
            marker = "o" if len(points) <= 12 else ""
            style |= {"label": short(name, 28), "linewidth": 1.6, "markersize": 3, "marker": marker}
            axes.plot(*zip(*points, strict=True), **style)
        axes.set(xlabel="step", ylabel=short(label, 28))
        axes.xaxis.get_major_locator().set_params(integer=True)
        dress(axes, grid=True)
        if position == 0 and min(y for points in lines.values() for _, y in points) > 0:
            axes.set_yscale("log")
        if len(lines) > 1 and (position == 0 or not several):
            handles += axes.get_lines()
    add_legend(figure, handles)
    return figure


def _class_counts(flow: FlowResult | Trajectory) -> Mapping[Any, Curve]:
    """Samples of each class at the recorded frames, if they change."""
    states = states_of(flow, 100, of_flow=100)
    counts = [(state.step or 0, state.dataset.counts) for state in states]
    names = names_of(state.dataset for state in states)
    lines = {name: [(step, count.get(name, 0)) for step, count in counts] for name in names}
    moving = any(len({value for _, value in line}) > 1 for line in lines.values())
    return lines if moving else {}

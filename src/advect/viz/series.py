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
    panels: dict[str, dict[str, Curve]] = {"objective": {}}
    counts: dict[Any, Curve] = {}
    if isinstance(flow, Mapping):
        for name, each in flow.items():
            objective, _, metrics = curves_of(each)
            panels["objective"][name] = objective
            for metric, points in metrics.items():
                panels.setdefault(metric, {})[name] = points
    else:
        objective, terms, metrics = curves_of(flow)
        panels["objective"] = {"objective": objective, **terms}
        panels |= {name: {name: points} for name, points in metrics.items()}
        counts = _class_counts(flow)
    n = len(panels) + bool(counts)
    across = min(3, n)
    figure = new_figure(3.3 * across, 2.4 * math.ceil(n / across))
    axes: list[Any] = [figure.add_subplot(-(-n // across), across, k + 1) for k in range(n)]
    now = look()
    for position, (axis, (label, lines)) in enumerate(zip(axes, panels.items(), strict=False)):
        inks = (
            now.palette
            if several
            else (now.ink, *now.palette)
            if position == 0
            else now.palette[1:]
        )
        for k, (name, points) in enumerate(lines.items()):
            looks = {"color": inks[k % len(inks)], "linestyle": _DASHES[k % len(_DASHES)]}
            _plot(axis, points, short(name, 28), **looks)
        _finish(axis, label)
    if min(value for points in panels["objective"].values() for _, value in points) > 0:
        axes[0].set_yscale("log")
    handles = list(axes[0].get_lines()) if len(panels["objective"]) > 1 else []
    if counts:
        for name, mark in class_marks(counts).items():
            _plot(axes[-1], counts[name], class_label(name), color=mark.colour)
        _finish(axes[-1], "samples of each class")
        handles += axes[-1].get_lines()
    add_legend(figure, handles)
    return figure


def _class_counts(flow: FlowResult | Trajectory) -> dict[Any, Curve]:
    """Samples of each class at the recorded frames, if they change."""
    states = states_of(flow, 100, of_flow=100)
    counts = [state.dataset.counts for state in states]
    names = names_of(state.dataset for state in states)
    lines = {name: [count.get(name, 0) for count in counts] for name in names}
    if all(len(set(line)) == 1 for line in lines.values()):
        return {}
    steps = [state.step or 0 for state in states]
    return {name: list(zip(steps, line, strict=True)) for name, line in lines.items()}


def _plot(axes: Any, points: Curve, label: str, **line: Any) -> None:
    marker = "o" if len(points) <= 12 else ""
    axes.plot(
        *zip(*points, strict=True), marker=marker, label=label, linewidth=1.6, markersize=3, **line
    )


def _finish(axes: Any, label: str) -> None:
    axes.set(xlabel="step", ylabel=short(label, 28))
    axes.xaxis.get_major_locator().set_params(integer=True)
    dress(axes, grid=True)

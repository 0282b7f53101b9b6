"""Flows over time: datasets as points in the plane (paper, figures 1 to 3, appendix D), and curves of
the objective, its terms and metrics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advect._util import refuse_if
from advect.data.dataset import LabeledDataset
from advect.flows.loop import FlowResult
from advect.io.trajectory import Trajectory
from advect.viz.states import (
    Curve,
    Frames,
    State,
    as_array,
    check_titles,
    curves_of,
    names_of,
    others,
    project,
    some_rows,
    states_of,
)
from advect.viz.theme import (
    LIGHT,
    Mark,
    add_legend,
    class_label,
    class_marks,
    dress,
    new_figure,
    short,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_TRAILS = 60  # more lines cover the points
_DASHES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))


def particles(
    frames: Frames | Mapping[str, Frames],
    target: LabeledDataset | None = None,
    *,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
    ellipses: bool = True,
    trails: bool = False,
    feature: str | None = None,
) -> Figure:
    """Panels over time: particles in the plane, coloured by class.

    Filled marks are the particles, hollow marks the target. A target class has the colour of the
    class of the same name in the frames, and is grey if there is none. Ellipses contain the points
    within two standard deviations of each class law, dashed for the target. Samples of more than
    two features are projected on two principal components of all frames and the target. Data with a
    continuous target instead of classes show the target against a feature.

    Args:
        frames: a list of datasets or recorded frames, a trajectory, or the result of a flow. A
            mapping from names to these draws one row for each.
        target: the dataset that the flow moves to.
        columns: maximal number of panels of a row, evenly spaced in time. By default all frames of
            a list, and six of a flow.
        titles: titles of the columns; by default the step numbers.
        ellipses: whether to draw ellipses. They are drawn only for samples of two features.
        trails: whether to draw thin lines through all frames of a flow up to that of the panel.
        feature: a column on the horizontal axis and the first continuous target on the vertical
            axis; by default, for data without classes, the first principal component.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> target = source.replace(x=source.x + 8)
        >>> result = ad.flow(source, ad.OTDD(target), n_steps=4, callbacks=[ad.Recorder(every=2)])
        >>> figure = viz.particles(result, target, trails=True)
        >>> [axes.get_title() for axes in figure.axes]
        ['step 0', 'step 2', 'step 4']
    """
    rows = frames if isinstance(frames, Mapping) else {"": frames}
    grid = {name: states_of(row, columns, of_flow=6) for name, row in rows.items()}
    paths = {name: states_of(row) for name, row in rows.items()} if trails else {}
    widths = {len(states) for states in grid.values()}
    refuse_if(
        len(widths) != 1,
        "every row needs the same number of frames",
        sorted(widths),
        "Pass columns=, for instance.",
    )
    (width,) = widths
    check_titles(titles, width)
    groups = [*grid.values(), *paths.values()]
    datasets = [state.dataset for states in groups for state in states]
    projected, axis_names = project([*datasets, *others(target)], feature)
    projections = iter(projected)
    for states in groups:
        states[:] = [replace(state, dataset=next(projections)) for state in states]
    goal = next(projections, None)
    drawn = {name: [state.dataset for state in states] for name, states in grid.items()}
    marks = class_marks(names_of(itertools.chain(*drawn.values())))
    panels = [Panel.around(row, goal, marks, ellipses, axis_names) for row in drawn.values()]
    side = 2.9 if width <= 3 else 2.3
    heights = [side * panel.ratio for panel in panels]
    named = 0.3 if any(grid) or axis_names else 0
    figure = new_figure(side * width + named, sum(heights) + 0.3 * len(heights) + 0.1)
    cells = figure.add_gridspec(len(grid), width, height_ratios=heights)
    for r, (name, states) in enumerate(grid.items()):
        for c, state in enumerate(states):
            end = math.inf if state.step is None else state.step
            passed = [each for each in paths.get(name, ()) if (each.step or 0) <= end]
            title = state.caption if titles is None else titles[c] if r == 0 else ""
            axes = figure.add_subplot(cells[r, c])
            panels[r].draw(axes, state.dataset, passed, title=title, left=c == 0, name=name)
    add_legend(figure, panels[0].handles(itertools.chain(*drawn.values())))
    return figure


@dataclass(frozen=True)
class Panel:
    """What the panels of one flow share: limits, marks, the target and the names of the axes."""

    limits: np.ndarray  # (2, 2): low and high
    marks: Mapping[Hashable, Mark]
    target: LabeledDataset | None
    ellipses: bool
    axis_names: tuple[str, str] | None

    @classmethod
    def around(
        cls,
        datasets: Sequence[LabeledDataset],
        target: LabeledDataset | None,
        marks: Mapping[Hashable, Mark],
        ellipses: bool,
        axis_names: tuple[str, str] | None,
    ) -> Panel:
        """Limits that contain all points and ellipses with a margin."""
        ellipses = ellipses and axis_names is None
        points = []
        for data in (*datasets, *others(target)):
            points.append(as_array(data.x))
            if ellipses:
                _, means, covariances = _class_laws(data)
                reach = 2 * np.sqrt(np.diagonal(covariances, axis1=1, axis2=2).clip(min=0))
                points += [means - reach, means + reach]
        cloud = np.concatenate(points)
        low, high = cloud.min(axis=0), cloud.max(axis=0)
        centre, size = (low + high) / 2, high - low
        least = 1e-6 * np.maximum(1.0, np.abs(centre))
        if axis_names is not None:  # each axis has its own unit
            size = 1.1 * np.maximum(size, least)
        else:
            size += 0.1 * max(size.max(), least.max())
            size = np.maximum(size, [size[1] / 0.8, size[0] * 0.45])
        limits = np.stack([centre - size / 2, centre + size / 2])
        return cls(limits, marks, target, ellipses, axis_names)

    @property
    def ratio(self) -> float:
        """Height of a panel by its width."""
        width, height = self.limits[1] - self.limits[0]
        return 0.88 if self.axis_names else float(height / width)

    def mark(self, name: Hashable) -> Mark:
        return self.marks.get(name, Mark(LIGHT.grey, "o"))

    def draw(
        self,
        axes: Any,
        data: LabeledDataset,
        trail: Sequence[State] = (),
        *,
        title: str = "",
        left: bool = True,
        name: str = "",
    ) -> None:
        """Points, ellipses and trails of one state, over the target."""
        from matplotlib.collections import LineCollection

        if self.target is not None:
            faint = {"facecolors": "none", "linewidths": 0.6, "alpha": 0.5, "zorder": 1}
            self._points(axes, self.target, "edgecolors", faint)
            self._ellipses(axes, self.target, linewidth=1.0, linestyle=(0, (4, 2)))
        sizes = {tuple(state.dataset.x.shape) for state in trail}
        refuse_if(
            len(sizes) > 1,
            "trails must follow the same samples",
            sizes,
            "Take the frames from one flow.",
        )
        if len(trail) > 1:
            rows = some_rows(len(data), _MAX_TRAILS)
            lines = np.stack([as_array(state.dataset.x)[rows] for state in trail], axis=1)
            grey = {"colors": LIGHT.grey, "linewidths": 0.4, "alpha": 0.6, "zorder": 2}
            axes.add_collection(LineCollection(list(lines), **grey), autolim=False)
        solid = {"linewidths": 0.25, "edgecolors": LIGHT.ground, "zorder": 3}
        self._points(axes, data, "color", solid)
        self._ellipses(axes, data, linewidth=1.3)
        across, up = self.axis_names or ("", "")
        label = (name or up) if left else ""
        axes.set(xlim=self.limits[:, 0], ylim=self.limits[:, 1], title=title)
        axes.set(xlabel=across and short(across, 28), ylabel=label and short(label, 28))
        axes.set_aspect("auto" if self.axis_names else "equal")
        axes.locator_params(nbins=4)
        axes.tick_params(labelleft=left)
        dress(axes)

    def _points(
        self, axes: Any, data: LabeledDataset, coloured: str, style: Mapping[str, Any]
    ) -> None:
        area = 12 * min(1.0, max(0.25, math.sqrt(400 / len(data))))
        points, codes = as_array(data.x), data.y.cpu().numpy()
        for code in np.unique(codes):
            mark = self.mark(data.classes[code] if code >= 0 else None)
            colour = {**style, coloured: mark.colour}
            axes.scatter(*points[codes == code].T, s=area, marker=mark.marker, **colour)

    def _ellipses(self, axes: Any, data: LabeledDataset, **line: Any) -> None:
        from matplotlib.patches import Ellipse

        for name, mean, covariance in zip(*_class_laws(data), strict=True) if self.ellipses else ():
            variances, directions = np.linalg.eigh(covariance)
            sides = 4 * np.sqrt(variances.clip(min=0))  # from −2σ to 2σ
            line["angle"] = math.degrees(math.atan2(directions[1, 0], directions[0, 0]))
            line["edgecolor"] = self.mark(name).colour
            axes.add_patch(Ellipse(mean, *sides, fill=False, zorder=4, **line))

    def handles(self, datasets: Iterable[LabeledDataset]) -> list[Any]:
        """Legend entries for classes, samples without a label, and the target."""
        from matplotlib.lines import Line2D

        grey = Mark(LIGHT.grey, "o")
        entries = [(class_label(name), mark, {}) for name, mark in self.marks.items()]
        if not all(bool(data.labeled.all()) for data in datasets):
            entries.append(("no label" if self.marks else "flow", grey, {}))
        if self.target is not None:
            entries.append(("target", grey, {"markerfacecolor": "none", "markeredgewidth": 1}))
        style = {"linestyle": "none", "markersize": 5, "markeredgewidth": 0}
        return [
            Line2D([], [], label=label, marker=mark.marker, color=mark.colour, **style | more)
            for label, mark, more in entries
        ]


def _class_laws(data: LabeledDataset) -> tuple[list[Hashable], np.ndarray, np.ndarray]:
    """Name, mean and covariance of each class that has samples."""
    present = [position for position, count in enumerate(data.counts.values()) if count]
    if not present:
        return [], np.zeros((0, data.dim)), np.zeros((0, data.dim, data.dim))
    laws = (data if bool(data.labeled.all()) else data.subset(data.labeled)).class_laws()
    names = [data.classes[i] for i in present]
    return names, as_array(laws.means)[present], as_array(laws.covariances())[present]


def curves(flow: FlowResult | Trajectory | Mapping[str, FlowResult | Trajectory]) -> Figure:
    """The objective of a flow and its terms against the steps, then a panel for each metric.

    The scale of the objective is logarithmic if it and its terms are positive. Of several flows, the
    objectives and metrics are drawn on common axes.

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
    flows = flow if isinstance(flow, Mapping) else {"objective": flow}
    several = flows is flow
    panels: dict[str, dict[str, Curve]] = {"objective": {}}
    for name, each in flows.items():
        objective, terms, metrics = curves_of(each)
        panels["objective"] |= {name: objective, **({} if several else terms)}
        for metric, points in metrics.items():
            panels.setdefault(metric, {})[name] = points
    across = min(3, len(panels))
    figure = new_figure(3.3 * across, 2.4 * math.ceil(len(panels) / across))
    ink, palette, handles = LIGHT.ink, LIGHT.palette, []
    for position, (label, lines) in enumerate(panels.items()):
        axes: Any = figure.add_subplot(-(-len(panels) // across), across, position + 1)
        inks = palette if several else palette[1:] if position else (ink, *palette)
        for k, (name, points) in enumerate(lines.items()):
            style = {"linestyle": _DASHES[k % len(_DASHES)], "color": inks[k % len(inks)]}
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

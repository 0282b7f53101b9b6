"""Figures of datasets on the move (paper, figures 1 to 3 and appendices D and E): particles, curves, images, class tables.

Every function returns a matplotlib ``Figure`` of its own and touches no global state, so drawing works without a display
and in threads; ``save`` writes one. What is drawn is read from datasets and results, never computed here.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from advect._checks import check_count
from advect.data import LabeledDataset
from advect.errors import InputError
from advect.flow import FlowResult
from advect.storage import write_atomically
from advect.tables import ClassTable
from advect.trajectory import Frame, Trajectory
from advect.viz.panels import (
    INK,
    PALETTE,
    add_legend,
    class_colours,
    dataset_of,
    draw_ellipses,
    draw_points,
    draw_trails,
    finish_panel,
    limits_of,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Frames = Sequence[LabeledDataset | Frame] | Trajectory


def particles(
    frames: Frames,
    target: LabeledDataset | None = None,
    *,
    titles: Sequence[str] | None = None,
    ellipses: bool = True,
    trails: Frames | None = None,
) -> Figure:
    """A row of panels over time: particles in the plane or in space, coloured by class.

    Filled dots are the particles, hollow ones the target. A target class has the colour of the class of that name in
    the frames, and is grey if there is none. Ellipses hold the points within two standard deviations of each class
    law: the law that the dataset carries if it has one for each class, otherwise the one estimated from its samples; dashed
    for the target. They are drawn in the plane only.

    Args:
        frames: datasets or recorded frames, one for each panel.
        target: where they are going.
        titles: one for each panel; by default the step number of a recorded frame.
        ellipses: whether to draw them.
        trails: frames to draw thin lines through, such as the whole trajectory; a panel of a recorded frame shows
            them up to its step.

    Raises:
        InputError: no frames, samples that are not of 2 or 3 dimensions, a wrong number of titles.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> target = source.replace(x=source.x + 8)
        >>> result = ad.flow(source, ad.OTDD(target), n_steps=4, callbacks=[ad.Recorder(every=2)])
        >>> figure = viz.particles(result.trajectory, target, trails=result.trajectory)
        >>> [axes.get_title() for axes in figure.axes]
        ['step 0', 'step 2', 'step 4']
    """
    return particle_grid(
        {"": frames}, target, titles=titles, ellipses=ellipses, trails=None if trails is None else {"": trails}
    )


def particle_grid(
    rows: Mapping[str, Frames],
    target: LabeledDataset | None = None,
    *,
    titles: Sequence[str] | None = None,
    ellipses: bool = True,
    trails: Mapping[str, Frames] | None = None,
) -> Figure:
    """Rows of ``particles``, one for each named flow; the panels of a row share their axes.

    Args:
        rows: frames of each row by the name at its left; equally many in each.
        target, ellipses: as for ``particles``.
        titles: above the first row; by default each panel has its step number.
        trails: by the names of rows.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> rows = {"there": [source, source.replace(x=source.x + 8)], "back": [source.replace(x=source.x + 8), source]}
        >>> len(viz.particle_grid(rows, titles=["before", "after"]).axes)
        4
    """
    grid = {name: _as_list(frames) for name, frames in rows.items()}
    width = _check_grid(grid, titles)
    drawn = [dataset_of(frame) for frames in grid.values() for frame in frames]
    dim = _check_points(drawn if target is None else [*drawn, target])
    colours, with_ellipses = class_colours(drawn), ellipses and dim == 2
    others = [] if target is None else [target]
    limits = [limits_of([*map(dataset_of, frames), *others], with_ellipses) for frames in grid.values()]
    panel = 2.9 if width <= 3 else 2.3
    heights = [0.88 * panel if dim == 3 else panel * (y[1] - y[0]) / (x[1] - x[0]) for x, y, *_ in limits]
    figure = new_figure(panel * width + (0.3 if any(grid) else 0), sum(heights) + 0.3 * len(heights) + 0.3)
    cells = figure.add_gridspec(len(grid), width, height_ratios=heights)
    for r, (name, frames) in enumerate(grid.items()):
        for c, frame in enumerate(frames):
            axes: Any = figure.add_subplot(cells[r, c], projection="3d" if dim == 3 else None)
            if target is not None:
                draw_points(axes, target, colours, hollow=True)
            if target is not None and with_ellipses:
                draw_ellipses(axes, target, colours, dashed=True)
            if trails is not None and name in trails:
                draw_trails(axes, _as_list(trails[name]), frame)
            draw_points(axes, dataset_of(frame), colours)
            if with_ellipses:
                draw_ellipses(axes, dataset_of(frame), colours)
            step = f"step {frame.index}" if isinstance(frame, Frame) else ""
            axes.set_title(step if titles is None else titles[c] if r == 0 else "", pad=0 if dim == 3 else 4)
            finish_panel(axes, limits[r], left=c == 0, name=name)
    add_legend(figure, colours, target=target is not None)
    return figure


def curves(result: FlowResult) -> Figure:
    """The objective of a flow and its terms against the steps, then one panel for each metric.

    The scale of the objective is logarithmic where it and its terms are positive throughout.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> data = ad.LabeledDataset([[4.0], [8.0]], ["a", "b"])
        >>> spread = ad.Metric("spread", lambda rho: rho.x.max() - rho.x.min())
        >>> result = ad.flow(data, ad.Potential(ad.norm()), n_steps=5, callbacks=[spread])
        >>> [axes.get_ylabel() for axes in viz.curves(result).axes]
        ['objective', 'spread']
    """
    if not isinstance(result, FlowResult):
        raise InputError("curves are drawn of a FlowResult", type(result).__name__, "Pass what ad.flow returned.")
    metrics = {name: points for name, points in result.metrics.items() if points}
    steps = range(result.n_steps + 1 - len(result.values), result.n_steps + 1)
    parts = {"objective": result.values, **(result.terms if len(result.terms) > 1 else {})}
    figure = new_figure(3.4 * (1 + len(metrics)), 2.6)
    panels: Any = figure.subplots(1, 1 + len(metrics), squeeze=False)[0]
    for (name, values), colour in zip(parts.items(), itertools.chain([INK], itertools.cycle(PALETTE)), strict=False):
        panels[0].plot(steps, values, color=colour, linewidth=2.2 if colour == INK else 1.3, label=name)
    if len(parts) > 1:
        panels[0].legend(frameon=False, fontsize=7.5)
    for axes, points, colour in zip(panels[1:], metrics.values(), itertools.cycle(PALETTE), strict=False):
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.8)
    if min(itertools.chain(*parts.values())) > 0:
        panels[0].set_yscale("log")
    for axes, label in zip(panels, ("objective", *metrics), strict=True):
        axes.set(xlabel="step", ylabel=label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(color="#E6E6E6", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        style(axes)
    return figure


def image_grid(frames: Frames, *, rows: int = 10, seed: int = 0) -> Figure:
    """The same samples over time as images: one row for each sample, one column for each frame.

    Args:
        frames: datasets or recorded frames with samples of shape (H, W), drawn in grey, or (H, W, 3).
        rows: how many samples, taken in turn from each class of the first frame.
        seed: of the choice of samples.

    Raises:
        InputError: samples that are not images, or frames that do not hold the same samples.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> digits = ad.datasets.load("digits", n=20)
        >>> figure = viz.image_grid([digits, digits.replace(x=1 - digits.x)], rows=5)
        >>> [len(axes.get_yticklabels()) for axes in figure.axes]
        [5]
    """
    steps = _as_list(frames)
    if not steps:
        raise InputError("there must be a frame to draw", "none", "Record some with ad.Recorder().")
    data = [dataset_of(step) for step in steps]
    first, shape = data[0], data[0].sample_shape
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3):
        raise InputError("images have shape (H, W) or (H, W, 3)", f"sample shape {shape}", "Draw points with viz.particles.")
    if any(d.sample_shape != shape or len(d) != len(first) for d in data):
        raise InputError(
            "frames must hold the same samples", f"{[(len(d), d.sample_shape) for d in data]}", "Take them from one flow."
        )
    chosen = _in_turn(first, min(check_count("rows", rows), len(first)), seed)
    images = torch.stack([d.samples[chosen] for d in data], dim=1).detach().cpu().double().numpy()  # (rows, frames, H, W, …)
    low, high = min(0.0, float(images.min())), max(1.0, float(images.max()))
    height, width = shape[0] + 1, shape[1] + 1  # one pixel between images
    mosaic = np.ones((len(chosen) * height - 1, len(data) * width - 1, *shape[2:]))
    for r, line in enumerate(images):
        for c, image in enumerate(line):
            mosaic[r * height : r * height + shape[0], c * width : c * width + shape[1]] = (image - low) / (high - low)
    cell = min(0.62, 6.5 / len(data))
    figure = new_figure(cell * len(data) + 0.8, cell * shape[0] / shape[1] * len(chosen) + 0.4)
    axes = figure.add_subplot()
    axes.imshow(mosaic, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    names = [f"{s.index}" if isinstance(s, Frame) else f"{position}" for position, s in enumerate(steps)]
    axes.set_xticks([c * width + shape[1] / 2 - 0.5 for c in range(len(data))], names)
    axes.set_yticks([r * height + shape[0] / 2 - 0.5 for r in range(len(chosen))], [str(first.labels[i]) for i in chosen])
    axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.set(title="step" if isinstance(steps[0], Frame) else "frame", ylabel="class")
    style(axes)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def class_table(table: ClassTable, *, title: str | None = None) -> Figure:
    """A heat map with names and numbers: rows are the source's classes, columns the target's.

    Example:
        >>> import numpy as np, advect as ad
        >>> from advect import viz
        >>> figure = viz.class_table(ad.ClassTable(np.array([[0.0, 1.5], [2.0, 0.25]]), ("cat", "dog"), (0, 1)))
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0', '1.5', '2', '0.25']
    """
    if not isinstance(table, ClassTable):
        raise InputError("a table must be a ClassTable", type(table).__name__, "Use distance.class_distances, for instance.")
    if 0 in table.shape:
        raise InputError("a table needs rows and columns to be drawn", f"shape {table.shape}", "Check the classes.")
    values = np.asarray(table, dtype=float)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    longest = max(len(str(name)) for name in (*table.rows, *table.columns))
    upright = longest <= 6
    figure = new_figure(
        0.5 * len(table.columns) + 0.09 * longest + 0.7, 0.36 * len(table.rows) + (0.3 if upright else 0.09 * longest) + 0.8
    )
    axes = figure.add_subplot()
    axes.imshow(values, cmap="Blues", vmin=low, vmax=high if high > low else low + 1, aspect="auto")
    axes.set_xticks(range(len(table.columns)), [str(name) for name in table.columns], rotation=0 if upright else 90)
    axes.set_yticks(range(len(table.rows)), [str(name) for name in table.rows])
    for (r, c), value in np.ndenumerate(values):
        dark = math.isfinite(value) and value - low > 0.6 * (high - low)
        text = f"{value:.3g}" if math.isfinite(value) else "–"
        axes.text(c, r, text, ha="center", va="center", fontsize=7.5, color="white" if dark else INK)
    axes.set(xlabel="target class", ylabel="source class", title=title or "")
    style(axes)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def save(figure: Figure, path: str | Path, *, dpi: float = 150) -> Path:
    """Write a figure, whole or not at all, in the format that the suffix names; folders on the way are made.

    Example:
        >>> import tempfile, pathlib, numpy as np, advect as ad
        >>> from advect import viz
        >>> figure = viz.class_table(ad.ClassTable(np.eye(2), ("a", "b"), ("a", "b")))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     viz.save(figure, pathlib.Path(folder) / "new" / "table.png").name
        'table.png'
    """
    path = Path(path)
    known = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in known:
        raise InputError("a figure needs the suffix of a format", repr(path.name), f"Known: {', '.join(sorted(known))}.")
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=dpi, facecolor="white")
    write_atomically(path, content.getvalue())
    return path


def _as_list(frames: Frames) -> list[Any]:
    if not isinstance(frames, (Sequence, Trajectory)):
        raise InputError("frames must be a list or a trajectory", type(frames).__name__, "Put a single dataset in a list.")
    return list(frames)


def _check_grid(grid: Mapping[str, list[Any]], titles: Sequence[str] | None) -> int:
    widths = {len(frames) for frames in grid.values()}
    if len(widths) != 1 or 0 in widths:
        raise InputError(
            "every row needs the same number of frames, at least one",
            sorted(widths) or "no rows",
            "Record some with ad.Recorder().",
        )
    width = widths.pop()
    if titles is not None and len(titles) != width:
        raise InputError(f"there must be a title for each of the {width} panels", len(titles), "Give one for each frame.")
    return width


def _check_points(datasets: Sequence[LabeledDataset]) -> int:
    dims = {data.dim for data in datasets}
    if dims not in ({2}, {3}):
        raise InputError(
            "particles are drawn in 2 or in 3 dimensions",
            f"dimensions {sorted(dims)}",
            "Project the features first, all in the same way.",
        )
    return dims.pop()


def _in_turn(data: LabeledDataset, n: int, seed: int) -> list[int]:
    """n positions, taken in turn from each class in a random order, sorted by class."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(check_count("seed", seed, least=0))).tolist()
    codes = data.y.tolist()
    by_class = [[i for i in order if codes[i] == code] for code in range(-1, len(data.classes))]
    turns = (i for turn in itertools.zip_longest(*by_class) for i in turn if i is not None)
    return sorted(itertools.islice(turns, n), key=codes.__getitem__)

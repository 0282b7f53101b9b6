"""Datasets on the move in the plane or in space (paper, figures 1 to 3, appendix D): panels over
time, rows of them, paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from advect._util.checks import check_count, check_kind
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.viz.panels import (
    Limits,
    Marks,
    check_points,
    draw_ellipses,
    draw_paths,
    draw_points,
    finish_panel,
    limits_of,
    mark_handles,
    paths_of,
    until,
)
from advect.viz.states import Frames, State, names_of, others, states_of
from advect.viz.theme import TEXT, add_legend, class_marks, look, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def particles(
    frames: Frames,
    target: LabeledDataset | None = None,
    *,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
    ellipses: bool = True,
    trails: Frames | None = None,
) -> Figure:
    """A row of panels over time: particles in the plane or in space, coloured by class.

    Filled marks are the particles, hollow ones the target. A target class has the mark of the class
    of that name in the frames, and is grey if there is none. Ellipses hold the points within two
    standard deviations of each class law: the law that the dataset carries if it has one for each
    class, otherwise the one estimated from its samples; dashed for the target. They are drawn in
    the plane only.

    Args:
        frames: a list of datasets or recorded frames, a trajectory, or the result of a flow;
            samples of 2 or 3 dimensions. ``pca`` and ``tsne`` bring others there.
        target: where they are going.
        columns: how many panels at most, evenly spread over time; by default one for each frame of
            a list, and six for a trajectory or a result.
        titles: one for each panel; by default the step number of a recorded frame.
        ellipses: whether to draw them.
        trails: frames to draw thin lines through, such as the whole trajectory; a panel of a
            recorded frame shows them up to its step.

    Raises:
        InputError: no frames, samples that are not of 2 or 3 dimensions, a wrong number of titles.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> target = source.replace(x=source.x + 8)
        >>> result = ad.flow(source, ad.OTDD(target), n_steps=4, callbacks=[ad.Recorder(every=2)])
        >>> figure = viz.particles(result, target, trails=result)
        >>> [axes.get_title() for axes in figure.axes]
        ['step 0', 'step 2', 'step 4']
    """
    rows, lines = {"": frames}, None if trails is None else {"": trails}
    return particle_grid(
        rows, target, columns=columns, titles=titles, ellipses=ellipses, trails=lines
    )


def particle_grid(
    rows: Mapping[str, Frames],
    target: LabeledDataset | None = None,
    *,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
    ellipses: bool = True,
    trails: Mapping[str, Frames] | None = None,
) -> Figure:
    """Rows of ``particles``, one for each named flow; the panels of a row share their axes.

    Args:
        rows: frames of each row by the name at its left; equally many in each.
        target, columns, ellipses: as for ``particles``.
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
    beside, remedy = others(target), "A single flow is viz.particles(frames)."
    check_kind('rows must be frames by name, {"a flow": frames}', rows, Mapping, remedy)
    grid = {name: states_of(frames, columns, of_flow=6) for name, frames in rows.items()}
    width = _check_grid(grid, titles)
    drawn = [state.dataset for states in grid.values() for state in states]
    dim, marks = check_points([*drawn, *beside]), class_marks(names_of(drawn))
    outlines = ellipses and dim == 2
    limits = [limits_of([*(s.dataset for s in row), *beside], outlines) for row in grid.values()]
    panel = 2.9 if width <= 3 else 2.3
    heights = [
        0.88 * panel if dim == 3 else panel * (y[1] - y[0]) / (x[1] - x[0]) for x, y, *_ in limits
    ]
    named = any(name.strip() for name in grid)
    figure = new_figure(
        panel * width + (0.3 if named else 0), sum(heights) + 0.3 * len(heights) + 0.1
    )
    cells = figure.add_gridspec(len(grid), width, height_ratios=heights)
    for r, (name, states) in enumerate(grid.items()):
        lines = states_of(trails[name]) if trails is not None and name in trails else []
        for c, state in enumerate(states):
            axes: Any = figure.add_subplot(cells[r, c], projection="3d" if dim == 3 else None)
            draw_target(axes, target, marks, outlines)
            passed = until(lines, state)
            if passed:
                draw_paths(axes, paths_of(passed)[0])
            draw_state(axes, state, marks, outlines)
            title = state.caption() if titles is None else titles[c] if r == 0 else ""
            axes.set_title(title, pad=0 if dim == 3 else 4)
            finish_panel(axes, limits[r], left=c == 0, name=name)
    complete = all(data.complete for data in drawn)
    add_legend(figure, mark_handles(marks, target=target is not None, unlabeled=not complete))
    return figure


def paths(
    frames: Frames,
    target: LabeledDataset | None = None,
    *,
    n: int = 60,
    ellipses: bool = False,
    seed: int = 0,
) -> Figure:
    """One panel: the paths of some particles through all frames, in the colour of their first
    class; all of them at the end.

    Where a path begins there is a small hollow mark.

    Args:
        frames, target: as for ``particles``; all frames are used.
        n: how many paths at most.
        ellipses: whether to draw those of the last frame and of the target; in the plane only.
        seed: of the choice of particles.

    Raises:
        InputError: no frames, samples that are not of 2 or 3 dimensions, frames that do not hold
            the same samples.

    Example:
        >>> import torch, advect as ad
        >>> from advect import viz
        >>> source = ad.datasets.gaussians(30, generator=torch.Generator().manual_seed(0))
        >>> result = ad.flow(source, ad.Potential(ad.norm()), n_steps=4, callbacks=[ad.Recorder()])
        >>> figure = viz.paths(result, n=10)
        >>> figure.axes[0].get_title()
        'steps 0 to 4'
    """
    states = states_of(frames)
    datasets = [state.dataset for state in states]
    together = [*datasets, *others(target)]
    dim, marks = check_points(together), class_marks(names_of([datasets[0], datasets[-1]]))
    outlines = ellipses and dim == 2
    walked, rows = paths_of(states, check_count("n", n), seed)
    limits = limits_of(together, outlines)
    complete = all(data.complete for data in datasets)
    figure, axes = single_panel(limits, marks, target=target is not None, unlabeled=not complete)
    draw_target(axes, target, marks, outlines)
    first, grey = datasets[0].labels, look().grey
    draw_paths(
        axes,
        walked,
        [marks[first[row]].colour if first[row] in marks else grey for row in rows],
        width=0.7,
    )
    draw_points(axes, datasets[0].subset(rows), marks, hollow=True, size=5)
    draw_state(axes, states[-1], marks, outlines)
    begin, end = states[0].step, states[-1].step
    axes.title.set_text("" if begin is None or end is None else f"steps {begin} to {end}")
    return figure


def draw_target(
    axes: Any, target: LabeledDataset | None, marks: Marks, outlines: bool
) -> list[Any]:
    """The target, faint, behind everything else."""
    if target is None:
        return []
    return draw_points(axes, target, marks, hollow=True) + (
        draw_ellipses(axes, target, marks, dashed=True) if outlines else []
    )


def draw_state(axes: Any, state: State, marks: Marks, outlines: bool) -> list[Any]:
    """The particles of one state and the ellipses of its classes."""
    data = state.dataset
    return draw_points(axes, data, marks) + (draw_ellipses(axes, data, marks) if outlines else [])


def single_panel(
    limits: Limits, marks: Marks, *, target: bool, unlabeled: bool
) -> tuple[Figure, Any]:
    """A figure of one panel with its legend, ready for a state; its title has its place already."""
    in_space = len(limits) == 3
    ratio = 0.88 if in_space else (limits[1][1] - limits[1][0]) / (limits[0][1] - limits[0][0])
    figure = new_figure(4.8, 4.8 * ratio + 0.3)
    axes: Any = figure.add_subplot(projection="3d" if in_space else None)
    finish_panel(axes, limits)
    axes.set_title(" ", pad=0 if in_space else 4, fontsize=TEXT)
    add_legend(figure, mark_handles(marks, target=target, unlabeled=unlabeled))
    return figure, axes


def _check_grid(grid: Mapping[str, list[State]], titles: Sequence[str] | None) -> int:
    widths = {len(states) for states in grid.values()}
    if len(widths) != 1:
        raise InputError(
            "every row needs the same number of frames, at least one",
            sorted(widths) or "no rows",
            "Pass columns=, for instance.",
        )
    width = widths.pop()
    if titles is not None and len(titles) != width:
        raise InputError(
            f"there must be a title for each of the {width} panels",
            len(titles),
            "Give one for each frame.",
        )
    return width

"""Distances between many datasets at a glance: a heat map in the order of a tree of likeness, and a
map of the plane.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from advect.errors import InputError
from advect.viz.heat import cell_sizes, draw_heat, has_numbers, name_room
from advect.viz.tables import add_bar
from advect.viz.theme import SMALL, add_legend, class_marks, dress, look, new_figure, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NAMED = 150  # points that names are looked for a place for
_MOST_REFINED = 300  # points for which the map is refined until it stands still


def pairwise(
    values: Any, names: Sequence[Hashable] | None = None, *, title: str | None = None
) -> Figure:
    """Distances between k things: a heat map ordered by a dendrogram, and a map on which near
    things are near.

    The tree joins groups by the average distance between them. The map is the one of least squared
    error of distances (metric scaling); its title gives what is left of it, Kruskal's stress √(Σ (δ
    − d)² / Σ d²).

    Args:
        values: (k, k) symmetric array of distances; NaN for a pair that failed, which is drawn
            hatched. Things with failed pairs come last, and tree and map leave them out. What
            ``ad.pairwise`` found will do, and has the names.
        names: one for each.
        title: of the heat map.

    Raises:
        InputError: not square, not symmetric, negative or infinite, or a wrong number of names.

    Example:
        >>> import numpy as np
        >>> from advect import viz
        >>> places = np.array([0.0, 10.0, 1.0, 11.0])
        >>> figure = viz.pairwise(abs(places[:, None] - places), ["a", "x", "b", "y"])
        >>> sorted(label.get_text() for label in figure.axes[0].get_yticklabels()[:2]) in (["a", "b"], ["x", "y"])
        True
    """
    if names is None:
        names = getattr(values, "names", None)
        if names is None:
            remedy = "Pass names, or what ad.pairwise returned."
            raise InputError("a picture of distances needs names", type(values).__name__, remedy)
        values = values.values
    distances = _check(values, names)
    complete = complete_part(distances)
    order, tree = _ordered(distances, complete)
    rows = [names[position] for position in order]
    k, cell, (left, below) = len(rows), cell_sizes(len(rows), len(rows)), name_room(rows, rows)
    side, numbers, mapped = max(cell[0] * k, 1.6), has_numbers(k, k), len(complete) >= 3
    heat_width, tall = side + left + (0.15 if numbers else 0.65), max(cell[1] * k, 1.2)
    room = min(5.0, max(3.4, tall + 0.6)) if mapped else 0
    figure = new_figure(heat_width + room + 0.3, max(tall + below + 0.9, 3.0 if mapped else 0))
    outer: Any = (
        figure.subfigures(1, 2, width_ratios=[heat_width, room], wspace=0.02)
        if mapped
        else [figure]
    )
    grid = outer[0].add_gridspec(2, 1, height_ratios=[0.6, tall])
    heat = outer[0].add_subplot(grid[1])
    image = draw_heat(heat, distances[np.ix_(order, order)], rows, rows, lowest=0.0)
    branches = outer[0].add_subplot(grid[0])
    _draw_tree(branches, tree, k)
    if title:
        branches.set_title(title)
    dress(branches)
    branches.spines[["top", "right", "bottom"]].set_visible(False)
    if not numbers:
        add_bar(outer[0], image, heat)
    if mapped:
        _draw_map(
            figure,
            outer[1].add_subplot(),
            distances[np.ix_(complete, complete)],
            [names[i] for i in complete],
        )
    return figure


def complete_part(distances: np.ndarray) -> list[int]:
    """Positions that know all distances between them: those with most failed pairs are left out
    until no pair is missing.
    """
    kept = list(range(len(distances)))
    while True:
        missing = np.isnan(distances[np.ix_(kept, kept)]).sum(axis=1)
        if not missing.any():
            return kept
        kept.pop(int(len(kept) - 1 - missing[::-1].argmax()))


def plane_map(distances: np.ndarray, dim: int = 2, n_iter: int = 500) -> tuple[np.ndarray, float]:
    """Points whose distances come closest to the given ones in least squares, and Kruskal's stress.

    Classical scaling places them (it is exact where the plane can hold them), then Guttman's
    transform X ← B(X) X / k, with B_ij = −d_ij / δ_ij(X) off the diagonal and rows summing to zero,
    never raises the error."""
    k = len(distances)
    centred = np.eye(k) - 1 / k
    values, vectors = np.linalg.eigh(-0.5 * centred @ distances**2 @ centred)
    points = (vectors[:, ::-1] * np.sqrt(values[::-1].clip(min=0)))[:, :dim]
    points = np.pad(points, ((0, 0), (0, dim - points.shape[1])))
    for _ in range(n_iter):
        apart = np.linalg.norm(points[:, None] - points, axis=2)
        pull = -np.divide(
            distances,
            apart,
            out=np.zeros_like(apart),
            where=apart > 1e-12 * apart.max(initial=1e-300),
        )
        np.fill_diagonal(pull, 0)
        np.fill_diagonal(pull, -pull.sum(axis=1))
        moved = pull @ points / k
        still = np.abs(moved - points).max() <= 1e-9 * np.abs(points).max()
        points = moved
        if still:
            break
    apart, total = np.linalg.norm(points[:, None] - points, axis=2), (distances**2).sum()
    return points, float(np.sqrt(((apart - distances) ** 2).sum() / total)) if total > 0 else 0.0


def _check(values: Any, names: Sequence[Hashable]) -> np.ndarray:
    try:
        distances = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "distances must be an array of numbers",
            type(values).__name__,
            "Use NaN for failed pairs.",
        ) from None
    if distances.ndim != 2 or len(set(distances.shape)) != 1 or len(distances) < 2:
        raise InputError(
            "distances must be (k, k) for k of at least 2",
            f"shape {distances.shape}",
            "Pass one number for each pair.",
        )
    if isinstance(names, str) or len(names) != len(distances):
        raise InputError(
            f"there must be a name for each of the {len(distances)}",
            len(names),
            "Give one for each row.",
        )
    diagonal = np.diagonal(distances)
    if (
        np.isinf(distances).any()
        or (distances < 0).any()
        or (np.nan_to_num(diagonal) > 1e-6 * np.nanmax([1e-300, *distances.flat])).any()
    ):
        raise InputError(
            "distances must be finite, not negative, and 0 from a thing to itself",
            "others",
            "Use NaN for failed pairs.",
        )
    if not np.allclose(
        distances,
        distances.T,
        rtol=1e-4,
        atol=1e-6 * np.nanmax([1e-300, *distances.flat]),
        equal_nan=True,
    ):
        raise InputError(
            "distances must be symmetric",
            "values that depend on the order",
            "Average with the transpose.",
        )
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0)
    return distances


def likeness_order(distances: np.ndarray) -> list[int]:
    """Positions in the order of a tree of likeness; those with failed pairs, NaN, come last.

    Example:
        >>> places = np.array([0.0, 10.0, 1.0, 11.0])
        >>> sorted(likeness_order(abs(places[:, None] - places))[:2]) in ([0, 2], [1, 3])
        True
    """
    return _ordered(distances, complete_part(distances))[0]


def _ordered(distances: np.ndarray, complete: list[int]) -> tuple[list[int], dict[str, Any] | None]:
    """Positions in the order of the tree, those outside it last; and the tree as lines, if two or
    more are in it.
    """
    if len(complete) < 2:
        return list(range(len(distances))), None
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    condensed = squareform(distances[np.ix_(complete, complete)], checks=False)
    tree = dendrogram(linkage(condensed, "average", optimal_ordering=True), no_plot=True)
    inside = [complete[leaf] for leaf in tree["leaves"]]
    return inside + [i for i in range(len(distances)) if i not in set(inside)], tree


def _draw_tree(axes: Any, tree: dict[str, Any] | None, k: int) -> None:
    from matplotlib.collections import LineCollection

    axes.set(xlim=(-0.5, k - 0.5), xticks=[], ylim=(0, 1))
    axes.locator_params(axis="y", nbins=3)
    if tree is None:
        axes.set(yticks=[])
        return
    # leaves are ten apart there, one apart on the heat map
    across = (np.array(tree["icoord"]) - 5) / 10
    up = np.array(tree["dcoord"])
    axes.add_collection(
        LineCollection(list(np.stack([across, up], axis=2)), colors=look().ink, linewidths=0.9)
    )
    axes.set(ylim=(0, 1.05 * max(up.max(), 1e-12)))


def dataset_map(
    values: Any,
    names: Sequence[Hashable],
    *,
    title: str | None = None,
    groups: Sequence[Hashable] | None = None,
    size: tuple[float, float] = (6.4, 6.0),
) -> Figure:
    """A map of k things on which near ones are near, in the colours of their groups: the map of
    ``pairwise`` alone, for more things than a heat map has room for.

    Args:
        values: (k, k) symmetric array of distances; things with failed pairs, NaN, are left out.
        names: one for each.
        title: of the map; Kruskal's stress is always said.
        groups: one for each, of the same colour; by default what stands in a name before the first
            "/".
        size: of the figure, in inches; letters keep theirs.

    Raises:
        InputError: fewer than three things, or distances that are none (see ``pairwise``).

    Example:
        >>> import numpy as np
        >>> from advect import viz
        >>> places = np.array([0.0, 10.0, 1.0, 11.0])
        >>> figure = viz.dataset_map(abs(places[:, None] - places), ["a/1", "b/1", "a/2", "b/2"])
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['a', 'b']
    """
    distances = _check(values, names)
    complete = complete_part(distances)
    if len(complete) < 3:
        raise InputError(
            "a map needs three things with known distances", len(complete), "Add some."
        )
    given = [group_of(name) for name in names] if groups is None else list(groups)
    if len(given) != len(names):
        raise InputError("there must be a group for each name", len(given), "Give one for each.")
    figure = new_figure(*size)
    axes, kept = figure.add_subplot(), [given[at] for at in complete]
    shown = [names[at] for at in complete]
    _draw_map(figure, axes, distances[np.ix_(complete, complete)], shown, kept)
    if title:
        axes.set_title(f"{title} ({axes.get_title()})")
    return figure


def group_of(name: Hashable) -> str:
    """What stands in a name before the first "/".

    Example:
        >>> group_of("usps/rotated"), group_of("usps")
        ('usps', 'usps')
    """
    return str(name).partition("/")[0]


def _draw_map(
    figure: Any,
    axes: Any,
    distances: np.ndarray,
    names: Sequence[Hashable],
    groups: Sequence[Hashable] = (),
) -> None:
    points, stress = plane_map(distances, n_iter=500 if len(distances) <= _MOST_REFINED else 20)
    now = look()
    middle, span = (
        (points.max(axis=0) + points.min(axis=0)) / 2,
        max(float(np.ptp(points, axis=0).max()), 1e-12),
    )
    if 1 < len(set(groups)) < len(points):
        _draw_groups(figure, axes, points, groups)
    else:
        axes.scatter(*points.T, s=22, color=now.palette[1], linewidths=0, zorder=3)
    # half as much again, for names
    (left, bottom), (right, top) = middle - 0.75 * span, middle + 0.75 * span
    axes.set(
        xlim=(left, right), ylim=(bottom, top), box_aspect=1, title=f"map, stress {stress:.2f}"
    )
    axes.locator_params(nbins=4)
    axes.set_axisbelow(True)
    axes.grid(color=now.grid, linewidth=0.6)
    dress(axes)
    if len(names) <= _MOST_NAMED:
        _place_names(figure, axes, points, [short(name) for name in names])


def _draw_groups(figure: Any, axes: Any, points: np.ndarray, groups: Sequence[Hashable]) -> None:
    handles = []
    for name, mark in class_marks(groups).items():
        mine = points[[group == name for group in groups]]
        looks: dict[str, Any] = {"color": mark.colour, "marker": mark.marker, "linewidths": 0}
        handles.append(axes.scatter(*mine.T, s=24, zorder=3, label=short(name), **looks))
    add_legend(figure, handles)


def _place_names(figure: Any, axes: Any, points: np.ndarray, names: Sequence[str]) -> None:
    """Names beside their points where nothing else is, with a thin line if that is not near;
    without room, left out.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.draw_without_rendering()  # the layout decides where the points are on the page
    renderer, scale = FigureCanvasAgg(figure).get_renderer(), figure.dpi / 72
    spots, frame = axes.transData.transform(points), axes.get_window_extent(renderer)
    taken = [(x - 4 * scale, y - 4 * scale, x + 4 * scale, y + 4 * scale) for x, y in spots]
    size = SMALL if len(names) <= 15 else 5.5
    crowd = np.linalg.norm(spots[:, None] - spots, axis=2).sum(axis=1)
    # outer ones first, towards the free side
    for position in np.argsort(-crowd, kind="stable").tolist():
        x, y = spots[position]
        text = axes.text(
            *points[position],
            names[position],
            fontsize=size,
            color=look().ink,
            ha="center",
            va="center",
            zorder=4,
        )
        text.set_in_layout(False)
        box = text.get_window_extent(renderer)
        # widths change a little with the resolution
        half = box.width / 2 + 2 * scale, box.height / 2 + scale
        for gap, (right, up) in (
            (gap, way) for gap in (4.5, 12, 20, 30, 42, 56, 72) for way in _WAYS
        ):
            centre = x + right * (half[0] + gap * scale), y + up * (half[1] + gap * scale)
            place = (
                centre[0] - half[0],
                centre[1] - half[1],
                centre[0] + half[0],
                centre[1] + half[1],
            )
            inside = (
                frame.x0 < place[0]
                and frame.y0 < place[1]
                and place[2] < frame.x1
                and place[3] < frame.y1
            )
            if inside and not any(_overlap(place, other) for other in taken):
                text.set_position(axes.transData.inverted().transform(centre))
                taken.append(place)
                if gap > 5:
                    end = axes.transData.inverted().transform(
                        (centre[0] - right * half[0], centre[1] - up * half[1])
                    )
                    axes.plot(
                        *np.stack([points[position], end]).T,
                        color=look().grey,
                        linewidth=0.5,
                        zorder=2,
                    )
                break
        else:
            text.remove()


_WAYS = ((1, 0), (-1, 0), (0, 1), (0, -1), (0.8, 0.8), (-0.8, 0.8), (0.8, -0.8), (-0.8, -0.8))


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]

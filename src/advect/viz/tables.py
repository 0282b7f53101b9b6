"""Distances as heat maps and maps of the plane: between classes, and between datasets."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import pdist, squareform

from advect._util.checks import check_kind, refuse_if
from advect.classes.matching import ClassMatching
from advect.data.class_table import ClassTable
from advect.transport.distance import Distance
from advect.viz.theme import (
    HEAT,
    LIGHT,
    SMALL,
    TEXT,
    add_legend,
    class_marks,
    dress,
    new_figure,
    short,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_NUMBERED = 15  # rows and columns up to which numbers fit their cells
_DARK_SHADE = 0.7  # numbers are white on shades above this one
_MAX_NAMED = 150  # points of a map with names


def class_table(
    table: ClassTable | Distance | ClassMatching, *, title: str | None = None
) -> Figure:
    """A heat map with the names of classes: rows are the source's, columns the target's.

    Tables of up to 15 × 15 classes have numbers, larger tables a colour bar. Hatched cells have no
    value. In a matching, a frame marks the target class that receives most of the mass of a row.

    Args:
        table: a table, a ``Distance`` (class distances), or a ``ClassMatching`` (soft matching).
        title: by default the kind of the table, if it is known.

    Example:
        >>> import numpy as np, advect as ad
        >>> from advect.data.class_table import ClassTable
        >>> from advect import viz
        >>> figure = viz.class_table(ClassTable(np.array([[0.0, 1.5], [2.0, 0.25]]), ("cat", "dog"), (0, 1)))
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0', '1.5', '2', '0.25']
    """
    from matplotlib.patches import Rectangle

    partners, default = {}, ""
    match table:
        case Distance():
            table, default = table.class_distances, "W₂ between classes"
        case ClassMatching():
            table, partners, default = table.soft, table.hard, "share of each class"
    what = "a table must be a ClassTable, a Distance or a ClassMatching"
    check_kind(what, table, ClassTable, "Use distance.class_distances, for instance.")
    refuse_if(0 in table.shape, "a table needs rows and columns", table.shape, "Check the classes.")
    values, title = np.asarray(table, dtype=float), default if title is None else title
    figure, axes = _heat_map(values, table.rows, table.columns, title)
    for name, partner in partners.items():
        corner = table.columns.index(partner) - 0.5, table.rows.index(name) - 0.5
        frame = {"edgecolor": LIGHT.palette[0], "linewidth": 1.5, "zorder": 3}
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, **frame))
    axes.set(xlabel="target class", ylabel="source class")
    return figure


def _heat_map(
    values: np.ndarray,
    rows: Sequence[Hashable],
    columns: Sequence[Hashable],
    title: str,
    *,
    lowest: float | None = None,
) -> tuple[Figure, Any]:
    """A heat map with names on both sides, in a figure that fits it; hatched cells have no number."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.patches import Rectangle

    numbered, width, height = _cell(*values.shape)
    across, down = (text_width([short(name) for name in names]) for names in (columns, rows))
    below = SMALL / 72 if across < width else across
    wide = width * len(columns) + down + (0 if numbered else 0.6) + 0.5
    tall = height * len(rows) + below + (0.75 if title else 0.5)
    figure = new_figure(max(wide, text_width([title], TEXT) + 0.2), tall)
    axes = figure.add_subplot()
    if title:
        figure.suptitle(title, fontsize=TEXT, color=LIGHT.ink)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    low = low if lowest is None else min(low, lowest)
    scale = Normalize(low, high if high > low else low + 1)
    colours = LinearSegmentedColormap.from_list("heat", HEAT).with_extremes(bad=LIGHT.ground)
    image = axes.imshow(values, cmap=colours, norm=scale, aspect="auto", interpolation="nearest")
    for r, c in np.argwhere(~np.isfinite(values)):
        hatch = {"facecolor": LIGHT.grid, "edgecolor": LIGHT.line, "hatch": "////", "linewidth": 0}
        axes.add_patch(Rectangle((c - 0.5, r - 0.5), 1, 1, **hatch))
    for r, c in np.argwhere(np.isfinite(values) & numbered):
        number = float(values[r, c])
        colour = "#FEFEFE" if scale(number) > _DARK_SHADE else "#000000"
        place = {"ha": "center", "va": "center", "fontsize": SMALL}
        axes.text(c, r, _number(number, high), color=colour, **place)
    dress(axes, bare=True)
    for axis, names, room in ((axes.xaxis, columns, width), (axes.yaxis, rows, height)):
        step = max(1, math.ceil(0.065 / room))  # names of the smallest readable size
        size = min(SMALL, max(4.0, 72 * room * 0.8))
        texts = [short(name) for name in names[::step]]
        turned = axis is axes.xaxis and text_width(texts) >= width
        places = range(0, len(names), step)
        axis.set_ticks(places, texts, fontsize=size, rotation=90 if turned else 0)
    if not numbered:
        bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.05, aspect=30)
        bar.outline.set_visible(False)
        dress(bar.ax)
    return figure, axes


def _number(value: float, high: float) -> str:
    """Three digits, and 0 for values that vanish next to the largest."""
    text = f"{0.0 if abs(value) < 5e-4 * abs(high) else value:.3g}"
    return text.replace("e-0", "e-").replace("e+0", "e")


def _cell(rows: int, columns: int) -> tuple[bool, float, float]:
    """Whether a cell has a number, its width and its height in inches."""
    if max(rows, columns) <= _MAX_NUMBERED:
        return True, 0.46, 0.34
    return False, min(0.2, 5.5 / columns), min(0.18, 5.0 / rows)


def pairwise(
    values: Any,
    names: Sequence[Hashable] | None = None,
    *,
    title: str | None = None,
    heat: bool = True,
) -> Figure:
    """Distances between k datasets: a heat map, or a map on which near datasets are near.

    The heat map has near datasets next to each other (hierarchical clustering by average distances).
    The map minimizes the squared error of the distances (metric scaling); its title has Kruskal's
    stress √(Σ (δ − d)² / Σ d²).

    Args:
        values: (k, k) symmetric array of distances, or what ``ad.pairwise`` returned. NaN marks a
            pair that failed: its cell is hatched, and the map leaves the dataset out.
        names: the name of each dataset; results of ``ad.pairwise`` have them.
        title: the title of the figure.
        heat: True draws the heat map, False the map.

    Example:
        >>> import numpy as np
        >>> from advect import viz
        >>> places = np.array([0.0, 10.0, 1.0, 11.0])
        >>> figure = viz.pairwise(abs(places[:, None] - places), ["a", "x", "b", "y"])
        >>> sorted(label.get_text() for label in figure.axes[0].get_yticklabels()[:2]) in (["a", "b"], ["x", "y"])
        True
    """
    if names is None:
        has_names, remedy = hasattr(values, "names"), "Pass names, or what ad.pairwise returned."
        refuse_if(not has_names, "a figure of distances needs names", type(values).__name__, remedy)
        values, names = values.values, values.names
    names = list(names or ())
    distances = _check(values, names)
    complete = complete_part(distances)
    known, shown = distances[np.ix_(complete, complete)], [names[i] for i in complete]
    if not heat:
        refuse_if(len(complete) < 3, "a map needs three datasets", len(complete), "Add some.")
        return _map(known, shown, title)
    if len(complete) > 1:
        tree = linkage(squareform(known, checks=False), "average", optimal_ordering=True)
        complete = [complete[leaf] for leaf in leaves_list(tree)]
    order = complete + [i for i in range(len(distances)) if i not in complete]
    rows = [names[position] for position in order]
    figure, _ = _heat_map(distances[np.ix_(order, order)], rows, rows, title or "", lowest=0.0)
    return figure


def complete_part(distances: np.ndarray) -> list[int]:
    """Positions without a missing distance between them: those with most missing distances are left
    out one after the other.
    """
    rest = list(range(len(distances)))
    while (missing := np.isnan(distances[np.ix_(rest, rest)]).sum(axis=1)).any():
        rest.pop(int(len(rest) - 1 - missing[::-1].argmax()))
    return rest


def plane_map(distances: np.ndarray) -> tuple[np.ndarray, float]:
    """Points of the plane whose distances are nearest in least squares, and Kruskal's stress.

    Classical scaling, which is exact for distances in the plane, is the start."""
    from sklearn.decomposition import KernelPCA
    from sklearn.manifold import smacof

    start = KernelPCA(2, kernel="precomputed", eigen_solver="dense").fit_transform(
        -0.5 * distances**2
    )
    start = np.pad(start, ((0, 0), (0, 2 - start.shape[1])))
    options = {"n_init": 1, "max_iter": 500, "eps": 1e-12, "normalized_stress": False}
    points = np.asarray(smacof(distances, n_components=2, init=start, **options)[0])
    error, total = squareform(pdist(points)) - distances, (distances**2).sum()
    return points, float(np.sqrt((error**2).sum() / total)) if total > 0 else 0.0


def _check(values: Any, names: Sequence[Hashable]) -> np.ndarray:
    distances = np.array(values, dtype=np.float64)
    k = len(names)
    what = "distances must be (k, k), with k names and k at least 2"
    got = f"shape {distances.shape}, {k} names"
    refuse_if(k < 2 or distances.shape != (k, k), what, got, "Check both.")
    size = 1e-6 * np.nanmax(distances, initial=1e-300)
    bad = np.isinf(distances).any() or (distances < 0).any() or np.diagonal(distances).max() > size
    even = np.allclose(distances, distances.T, rtol=1e-4, atol=size, equal_nan=True)
    what = "distances must be finite, not negative, symmetric and 0 on the diagonal"
    refuse_if(not even or bad, what, "other values", "Use NaN for failed pairs.")
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0)
    return distances


def _map(distances: np.ndarray, names: Sequence[Hashable], title: str | None) -> Figure:
    """Points with names."""
    points, stress = plane_map(distances)
    figure = new_figure(6.4, 6.0)
    axes = figure.add_subplot()
    axes.scatter(*points.T, s=24, color=LIGHT.palette[0], linewidths=0, zorder=3)
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    half = 0.75 * max(float(np.ptp(points, axis=0).max()), 1e-12)  # with room for names
    (left, bottom), (right, top) = middle - half, middle + half
    kind = f"map, stress {stress:.2f}"
    axes.set(xlim=(left, right), ylim=(bottom, top), box_aspect=1)
    axes.set_title(f"{title} ({kind})" if title else kind)
    axes.locator_params(nbins=4)
    dress(axes, grid=True)
    looks = {"fontsize": SMALL if len(names) <= 15 else 5.5, "color": LIGHT.ink, "zorder": 4}
    for name, point in zip(names, points, strict=True) if len(names) <= _MAX_NAMED else ():
        label = axes.annotate(short(name), point, (3, 2), textcoords="offset points", **looks)
        label.set_in_layout(False)
    return figure

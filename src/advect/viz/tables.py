"""Distances as heat maps: between classes, and between datasets."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from advect._util import check_kind, refuse_if
from advect.classes.matching import ClassMatching
from advect.data.class_table import ClassTable
from advect.transport.distance import Distance
from advect.viz.theme import (
    HEAT,
    LIGHT,
    SMALL,
    TEXT,
    dress,
    new_figure,
    short,
    text_width,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_NUMBERED = 15  # rows and columns up to which numbers fit their cells
_DARK_SHADE = 0.7  # numbers are white on shades above this one


def class_table(
    table: ClassTable | Distance | ClassMatching, *, title: str | None = None
) -> Figure:
    """A heat map with the names of classes: rows are the source's, columns the target's.

    Tables of up to 15 × 15 classes have numbers, larger tables a colour bar. Hatched cells have no
    value.

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
    default = ""
    match table:
        case Distance():
            table, default = table.class_distances, "W₂ between classes"
        case ClassMatching():
            table, default = table.soft, "share of each class"
    check_kind(
        "a table must be a ClassTable, a Distance or a ClassMatching",
        table,
        ClassTable,
        "Use distance.class_distances, for instance.",
    )
    refuse_if(0 in table.shape, "a table needs rows and columns", table.shape, "Check the classes.")
    values, title = np.asarray(table, dtype=float), default if title is None else title
    figure = _heat_map(values, table.rows, table.columns, title)
    figure.axes[0].set(xlabel="target class", ylabel="source class")
    return figure


def _heat_map(
    values: np.ndarray,
    rows: Sequence[Hashable],
    columns: Sequence[Hashable],
    title: str,
    *,
    lowest: float | None = None,
) -> Figure:
    """A heat map with names on both sides, in a figure that fits it; hatched cells have no number."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.patches import Rectangle

    numbered = max(values.shape) <= _MAX_NUMBERED
    width = 0.46 if numbered else min(0.2, 5.5 / len(columns))  # of a cell, in inches
    height = 0.34 if numbered else min(0.18, 5.0 / len(rows))
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
        text = f"{0.0 if abs(number) < 5e-4 * abs(high) else number:.3g}"
        axes.text(c, r, text, color=colour, **place)
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
    return figure


def pairwise(found: Any) -> Figure:
    """The distances of ``ad.pairwise`` as a heat map.

    Near datasets are next to each other (hierarchical clustering by average distances). Cells of
    pairs that failed are hatched.

    Args:
        found: what ``ad.pairwise`` returned.

    Example:
        >>> import advect as ad
        >>> from advect import viz
        >>> sets = {name: f"toy:{name[:5]}?n=30&seed={name[5:]}" for name in ("moons0", "rings0", "moons1")}
        >>> figure = viz.pairwise(ad.pairwise(sets, progress=False))
        >>> figure.axes[0].get_yticklabels()[1].get_text() != "rings0"      # the moons are neighbours
        True
    """
    refuse_if(
        not (hasattr(found, "names") and hasattr(found, "values")),
        "a figure of distances needs names",
        type(found).__name__,
        "Pass what ad.pairwise returned.",
    )
    known = np.where(np.isnan(found.values), np.nanmax(found.values), found.values)
    order = leaves_list(linkage(squareform(known), "average", optimal_ordering=True))
    names = [found.names[position] for position in order]
    return _heat_map(found.values[np.ix_(order, order)], names, names, "", lowest=0.0)

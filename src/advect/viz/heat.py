"""A heat map with names on both sides: numbers in its cells when they are few, hatched cells where
a number is missing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from advect.viz.images import bare
from advect.viz.theme import SMALL, heat_colours, look, short, text_width

_FEW = 15  # rows and columns up to which numbers fit their cells


def cell_sizes(rows: int, columns: int) -> tuple[float, float]:
    """Width and height of a cell in inches: room for a number, or as much as the page has."""
    if has_numbers(rows, columns):
        return 0.46, 0.34
    return min(0.2, 5.5 / columns), min(0.18, 5.0 / rows)


def has_numbers(rows: int, columns: int) -> bool:
    return max(rows, columns) <= _FEW


def draw_heat(
    axes: Any,
    values: np.ndarray,
    rows: Sequence[Hashable],
    columns: Sequence[Hashable],
    *,
    lowest: float | None = None,
) -> Any:
    """The map on its axes, which have cells of ``cell_sizes``; gives the image, for a colour
    bar.
    """
    from matplotlib.colors import Normalize

    now, known = look(), values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    low = low if lowest is None else min(low, lowest)
    scale, colours = Normalize(low, high if high > low else low + 1), heat_colours()
    image = axes.imshow(
        values,
        cmap=colours.with_extremes(bad=now.ground),
        norm=scale,
        aspect="auto",
        interpolation="nearest",
    )
    for (r, c), value in np.ndenumerate(values):
        if not math.isfinite(value):
            _hatch(axes, r, c)
        elif has_numbers(*values.shape):
            options = {
                "ha": "center",
                "va": "center",
                "fontsize": SMALL,
                "color": _readable_on(colours(scale(value))),
            }
            axes.text(c, r, number(value), **options)
    width, height = cell_sizes(*values.shape)
    across = [short(name) for name in columns]
    upright = text_width(across) < width
    _names(axes.xaxis, across, width, 0 if upright else 90)
    _names(axes.yaxis, [short(name) for name in rows], height, 0)
    bare(axes)
    for axis, room in ((axes.xaxis, math.inf if upright else width), (axes.yaxis, height)):
        axis.set_tick_params(labelsize=min(SMALL, max(4.0, 72 * room * 0.8)))
    return image


def name_room(rows: Sequence[Hashable], columns: Sequence[Hashable]) -> tuple[float, float]:
    """Inches for the names at the left of a heat map and below it."""
    across, width = [short(name) for name in columns], cell_sizes(len(rows), len(columns))[0]
    below = text_width(across)
    return text_width([short(name) for name in rows]), SMALL / 72 if below < width else below


def number(value: float) -> str:
    """Three figures, in at most six characters or so."""
    return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")


def _readable_on(colour: tuple[float, ...]) -> str:
    """White or black, whichever has the larger ratio of luminances to a colour; it is never below
    4.5.
    """
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour[:3]
    ]
    return "#FFFFFF" if np.dot(linear, (0.2126, 0.7152, 0.0722)) < 0.179 else "#000000"


def _names(axis: Any, names: list[str], room: float, rotation: float) -> None:
    step = max(1, math.ceil(0.065 / room))  # lines of the smallest size that is read
    axis.set_ticks(range(0, len(names), step), names[::step], rotation=rotation)


def _hatch(axes: Any, row: int, column: int) -> None:
    from matplotlib.patches import Rectangle

    look_of = {"facecolor": look().pane, "edgecolor": look().line, "hatch": "////", "linewidth": 0}
    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **look_of))

"""What is known about pairs of classes, as a heat map: distances, matchings, any ``ClassTable``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from advect._util.checks import check_kind
from advect.classes.matching import ClassMatching
from advect.data.class_table import ClassTable
from advect.errors import InputError
from advect.transport.distance import Distance
from advect.viz.heat import cell_sizes, draw_heat, has_numbers, name_room
from advect.viz.theme import SMALL, TEXT, look, new_figure, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def class_table(
    table: ClassTable | Distance | ClassMatching, *, title: str | None = None
) -> Figure:
    """A heat map with the names of classes: rows are the source's, columns the target's.

    Numbers are written in the cells of up to 15 × 15 classes; larger tables have a colour bar.
    Hatched cells have no number. In a matching, a frame marks the class that most of each row's
    mass goes to.

    Args:
        table: a table; of a ``Distance`` its class distances, of a ``ClassMatching`` its soft
            matching.
        title: by default it says what is shown, if that is known.

    Raises:
        InputError: not a table, or one without rows or columns.

    Example:
        >>> import numpy as np, advect as ad
        >>> from advect import viz
        >>> figure = viz.class_table(ad.ClassTable(np.array([[0.0, 1.5], [2.0, 0.25]]), ("cat", "dog"), (0, 1)))
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['0', '1.5', '2', '0.25']
    """
    from matplotlib.patches import Rectangle

    partners, otherwise = {}, ""
    match table:
        case Distance():
            table, otherwise = table.class_distances, "W₂ between classes"
        case ClassMatching():
            table, partners, otherwise = table.soft, table.hard, "share of each class"
    what = "a table must be a ClassTable, a Distance or a ClassMatching"
    check_kind(what, table, ClassTable, "Use distance.class_distances, for instance.")
    if 0 in table.shape:
        raise InputError(
            "a table needs rows and columns to be drawn",
            f"shape {table.shape}",
            "Check the classes.",
        )
    title, now = otherwise if title is None else title, look()
    cell, (left, below) = cell_sizes(*table.shape), name_room(table.rows, table.columns)
    numbers = has_numbers(*table.shape)
    width = cell[0] * len(table.columns) + left + 0.5 + (0 if numbers else 0.6)
    figure = new_figure(
        max(width, text_width([title], TEXT) + 0.2),
        cell[1] * len(table.rows) + below + (0.75 if title else 0.5),
    )
    axes = figure.add_subplot()
    image = draw_heat(axes, np.asarray(table, dtype=float), table.rows, table.columns)
    for name, partner in partners.items():
        corner = table.columns.index(partner) - 0.5, table.rows.index(name) - 0.5
        frame = {"fill": False, "edgecolor": now.palette[0], "linewidth": 1.5, "zorder": 3}
        axes.add_patch(Rectangle(corner, 1, 1, **frame))
    if not numbers:
        add_bar(figure, image, axes)
    axes.set(xlabel="target class", ylabel="source class")
    figure.suptitle(title, fontsize=TEXT, color=now.ink) if title else None
    return figure


def add_bar(figure, image, axes) -> None:
    """A thin colour bar at the right of a heat map."""
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.05, aspect=30)
    bar.outline.set_visible(False)
    bar.ax.tick_params(
        color=look().line, labelcolor=look().ink, labelsize=SMALL, width=0.7, length=2.5
    )

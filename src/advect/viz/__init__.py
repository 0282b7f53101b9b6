"""Figures of datasets, flows and distances: ``from advect import viz``.

Every function returns a matplotlib ``Figure`` of its own and touches no global state, so drawing
works without a display and in threads. ``save`` writes a figure and ``animation`` a film.
matplotlib is imported on first use."""

from advect.viz.images import animation, image_grid
from advect.viz.points import curves, particles
from advect.viz.tables import class_table, pairwise
from advect.viz.theme import save

__all__ = [
    "animation",
    "class_table",
    "curves",
    "image_grid",
    "pairwise",
    "particles",
    "save",
]

"""Pictures of flows: the only room that draws. ``from advect import viz``; matplotlib is imported on first use."""

from advect.viz.panels import PALETTE
from advect.viz.plots import class_table, curves, image_grid, particle_grid, particles, save

__all__ = ["PALETTE", "class_table", "curves", "image_grid", "particle_grid", "particles", "save"]

"""Pictures of flows: the only room that draws. ``from advect import viz``; matplotlib is imported
on first use.

Every function returns a matplotlib ``Figure`` of its own and touches no global state, so drawing
works without a display and in threads; ``save`` writes one, ``animation`` a film, ``style`` sets
the look. What is drawn is read from datasets and results, never computed anew."""

from advect.viz.animations import animation
from advect.viz.couplings import coupling, coupling_matrix
from advect.viz.images import image_grid
from advect.viz.pairwise_map import dataset_map, pairwise
from advect.viz.particle_figures import particle_grid, particles, paths
from advect.viz.projections import View, pca, tsne
from advect.viz.regressions import regression
from advect.viz.saving import save
from advect.viz.series import class_counts, curves
from advect.viz.tables import class_table
from advect.viz.theme import PALETTE, style

__all__ = [
    "PALETTE",
    "View",
    "animation",
    "class_counts",
    "class_table",
    "coupling",
    "coupling_matrix",
    "curves",
    "dataset_map",
    "image_grid",
    "pairwise",
    "particle_grid",
    "particles",
    "paths",
    "pca",
    "regression",
    "save",
    "style",
    "tsne",
]

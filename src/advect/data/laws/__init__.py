"""Gaussian label laws: their covariances, distances between them, and estimates from samples."""

from advect.data.laws.between import detached, geodesic
from advect.data.laws.covariance import Covariance, Diagonal, Factored, Full, root, symmetric_root
from advect.data.laws.gaussians import (
    Gaussians,
    centred,
    class_rows,
    class_shares,
    estimate_gaussians,
    estimate_soft,
    group_shares,
    mass_centre,
    squared_distances,
)
from advect.data.laws.linalg import principal_axes
from advect.data.laws.wasserstein import SMALL_FACTORS, bures, squared_gaps

__all__ = [
    "SMALL_FACTORS",
    "Covariance",
    "Diagonal",
    "Factored",
    "Full",
    "Gaussians",
    "bures",
    "centred",
    "class_rows",
    "class_shares",
    "detached",
    "estimate_gaussians",
    "estimate_soft",
    "geodesic",
    "group_shares",
    "mass_centre",
    "principal_axes",
    "root",
    "squared_distances",
    "squared_gaps",
    "symmetric_root",
]

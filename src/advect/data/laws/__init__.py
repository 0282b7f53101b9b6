"""Gaussian label laws: their covariances, distances between them, and estimates from samples."""

from advect.data.laws.covariance import Covariance, Diagonal, Factored, Full
from advect.data.laws.gaussians import Gaussians, class_shares, estimate_gaussians, group_shares
from advect.data.laws.wasserstein import bures

__all__ = [
    "Covariance",
    "Diagonal",
    "Factored",
    "Full",
    "Gaussians",
    "bures",
    "class_shares",
    "estimate_gaussians",
    "group_shares",
]

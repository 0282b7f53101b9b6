"""advect moves labeled datasets along gradient flows in probability space.

The whole public surface is here; see README.md for a first look and docs/paper.md for where each equation lives.
"""

from advect import datasets, ot
from advect.cost import Bures, Embedding, ExactLabelOT, GroundCost, MeansOnly, NoLabels, PairCost, SquaredEuclidean
from advect.data import LabeledDataset
from advect.distance import Distance, otdd
from advect.errors import AdvectError, ConvergenceWarning, InputError
from advect.gaussians import Diagonal, Factored, Full, Gaussians, bures
from advect.ot import ExactOT, Relative, Sinkhorn, Solution
from advect.space import harmonize
from advect.tables import ClassTable

__version__ = "0.1.0"

__all__ = [
    "AdvectError",
    "Bures",
    "ClassTable",
    "ConvergenceWarning",
    "Diagonal",
    "Distance",
    "Embedding",
    "ExactLabelOT",
    "ExactOT",
    "Factored",
    "Full",
    "Gaussians",
    "GroundCost",
    "InputError",
    "LabeledDataset",
    "MeansOnly",
    "NoLabels",
    "PairCost",
    "Relative",
    "Sinkhorn",
    "Solution",
    "SquaredEuclidean",
    "bures",
    "datasets",
    "harmonize",
    "ot",
    "otdd",
]

"""The ground cost between two labeled samples: features, and the laws of their labels."""

from advect.cost.features import Embedding, FeatureCost, Sketch, SketchError, SquaredEuclidean
from advect.cost.ground import GroundCost, PairCost
from advect.cost.labels import Bures, ExactLabelOT, LabelCost, MeansOnly, NoLabels

__all__ = [
    "Bures",
    "Embedding",
    "ExactLabelOT",
    "FeatureCost",
    "GroundCost",
    "LabelCost",
    "MeansOnly",
    "NoLabels",
    "PairCost",
    "Sketch",
    "SketchError",
    "SquaredEuclidean",
]

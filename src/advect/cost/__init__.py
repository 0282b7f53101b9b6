"""The ground cost between two labeled samples, by their features and the laws of their labels."""

from advect.cost.features import Embedding, FeatureCost, SquaredEuclidean
from advect.cost.ground import GroundCost, check_cost, check_features, cost_for
from advect.cost.label_costs import ExactLabelOT, MeansOnly, NoLabels
from advect.cost.labels import Bures, LabelCost
from advect.cost.names import ByName, same_names, spelled, unmatched_classes
from advect.cost.pair import PairCost
from advect.cost.targets import TargetValues

__all__ = [
    "Bures",
    "ByName",
    "Embedding",
    "ExactLabelOT",
    "FeatureCost",
    "GroundCost",
    "LabelCost",
    "MeansOnly",
    "NoLabels",
    "PairCost",
    "SquaredEuclidean",
    "TargetValues",
    "check_cost",
    "check_features",
    "cost_for",
    "same_names",
    "spelled",
    "unmatched_classes",
]

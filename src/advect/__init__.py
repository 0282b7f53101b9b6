"""advect moves labeled datasets along gradient flows in probability space.

The whole public surface is here; see README.md for a first look and docs/paper.md for where each equation lives.
"""

from typing import TYPE_CHECKING as _CHECKING

from advect import apps, datasets, maps, ot, pseudo, viz
from advect.callbacks import Checkpoint, Metric, Progress, Recorder, StopWhen
from advect.cost import Bures, Embedding, ExactLabelOT, GroundCost, MeansOnly, NoLabels, PairCost, SquaredEuclidean
from advect.data import LabeledDataset
from advect.distance import Distance, otdd
from advect.dynamics import FeatureDriven, JointFixedLabels, JointVariableLabels
from advect.errors import AdvectError, ConvergenceWarning, InputError
from advect.flow import FlowResult, Step, flow, iterate
from advect.functionals import (
    OTDD,
    Functional,
    Interaction,
    Internal,
    Potential,
    Radial,
    Scaled,
    Sum,
    affine_norm,
    attraction,
    ball,
    collapse,
    hinge,
    norm,
    repulsion,
    spreading,
)
from advect.gaussians import Diagonal, Factored, Full, Gaussians, bures
from advect.integrators import Adagrad, Adam, Decay, Euler, EulerMaruyama, Momentum
from advect.labels import DBSCAN, AnyClusterer, KMeans
from advect.matching import ClassMatching
from advect.motion import BuresMotion, DiagonalMotion, EuclideanMotion, FactoredMotion
from advect.ot import ExactOT, Relative, Sinkhorn, Solution
from advect.pairwise import Pairwise, pairwise
from advect.pseudo import HDBSCAN, GaussianMixture, PseudoLabels, Spectral, Ward, fill_labels, pseudo_labels
from advect.space import FeatureSpace, harmonize
from advect.statistics import ClassStatistics
from advect.sweep import Sweep, sweep
from advect.tables import ClassTable
from advect.trajectory import Trajectory

if _CHECKING:
    from advect.estimators import DatasetTransport

__version__ = "0.1.0"

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "OTDD",
    "Adagrad",
    "Adam",
    "AdvectError",
    "AnyClusterer",
    "Bures",
    "BuresMotion",
    "Checkpoint",
    "ClassMatching",
    "ClassStatistics",
    "ClassTable",
    "ConvergenceWarning",
    "DatasetTransport",
    "Decay",
    "Diagonal",
    "DiagonalMotion",
    "Distance",
    "Embedding",
    "EuclideanMotion",
    "Euler",
    "EulerMaruyama",
    "ExactLabelOT",
    "ExactOT",
    "Factored",
    "FactoredMotion",
    "FeatureDriven",
    "FeatureSpace",
    "FlowResult",
    "Full",
    "Functional",
    "GaussianMixture",
    "Gaussians",
    "GroundCost",
    "InputError",
    "Interaction",
    "Internal",
    "JointFixedLabels",
    "JointVariableLabels",
    "KMeans",
    "LabeledDataset",
    "MeansOnly",
    "Metric",
    "Momentum",
    "NoLabels",
    "PairCost",
    "Pairwise",
    "Potential",
    "Progress",
    "PseudoLabels",
    "Radial",
    "Recorder",
    "Relative",
    "Scaled",
    "Sinkhorn",
    "Solution",
    "Spectral",
    "SquaredEuclidean",
    "Step",
    "StopWhen",
    "Sum",
    "Sweep",
    "Trajectory",
    "Ward",
    "affine_norm",
    "apps",
    "attraction",
    "ball",
    "bures",
    "collapse",
    "datasets",
    "fill_labels",
    "flow",
    "harmonize",
    "hinge",
    "iterate",
    "maps",
    "norm",
    "ot",
    "otdd",
    "pairwise",
    "pseudo",
    "pseudo_labels",
    "repulsion",
    "spreading",
    "sweep",
    "viz",
]


def __getattr__(name: str):
    if name == "DatasetTransport":  # scikit-learn is slow to import: only for those who use it
        from advect.estimators import DatasetTransport

        return DatasetTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

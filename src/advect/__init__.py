"""advect moves labeled datasets along gradient flows in probability space.

The whole public surface is here; see README.md for a first look and docs/paper.md for where each equation lives. Names are
imported when they are first used, so that ``advect --help`` answers before torch could be loaded.
"""

import sys as _sys
from importlib import import_module as _import
from importlib.util import find_spec as _find
from types import ModuleType as _Module
from typing import TYPE_CHECKING as _CHECKING

if _CHECKING:
    from advect import apps, datasets, distributed, maps, ot, pseudo, viz
    from advect.callbacks import Checkpoint, Metric, Progress, Recorder, StopWhen
    from advect.control import Backtracking, FixedSteps
    from advect.cost import Bures, Embedding, ExactLabelOT, GroundCost, MeansOnly, NoLabels, PairCost, Sketch, SquaredEuclidean
    from advect.data import LabeledDataset
    from advect.distance import Distance, otdd
    from advect.dynamics import FeatureDriven, JointFixedLabels, JointVariableLabels
    from advect.errors import AdvectError, ConvergenceWarning, DamageWarning, InputError
    from advect.estimators import DatasetTransport
    from advect.flow import FlowResult, Step, flow, iterate
    from advect.functionals import (
        OTDD,
        Functional,
        Interaction,
        Internal,
        Potential,
        Radial,
        Scaled,
        SlicedDistance,
        SlicedOTDD,
        Sum,
        affine_norm,
        attraction,
        ball,
        collapse,
        hinge,
        norm,
        repulsion,
        sliced_otdd,
        spreading,
    )
    from advect.gaussians import Diagonal, Factored, Full, Gaussians, bures
    from advect.integrators import Adagrad, Adam, Decay, Euler, EulerMaruyama, Momentum
    from advect.labels import DBSCAN, AnyClusterer, KMeans
    from advect.matching import ClassMatching
    from advect.memory import ScaleWarning
    from advect.motion import BuresMotion, DiagonalMotion, EuclideanMotion, FactoredMotion
    from advect.notes import Note
    from advect.ot import ExactOT, MiniBatch, NystromSinkhorn, Relative, Sinkhorn, Solution
    from advect.pairwise import Pairwise, pairwise
    from advect.pseudo import HDBSCAN, GaussianMixture, PseudoLabels, Spectral, Ward, fill_labels, pseudo_labels
    from advect.space import FeatureSpace, harmonize
    from advect.statistics import ClassStatistics
    from advect.sweep import Sweep, sweep
    from advect.tables import ClassTable
    from advect.trajectory import Trajectory

__version__ = "0.1.0"

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "OTDD",
    "Adagrad",
    "Adam",
    "AdvectError",
    "AnyClusterer",
    "Backtracking",
    "Bures",
    "BuresMotion",
    "Checkpoint",
    "ClassMatching",
    "ClassStatistics",
    "ClassTable",
    "ConvergenceWarning",
    "DamageWarning",
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
    "FixedSteps",
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
    "MiniBatch",
    "Momentum",
    "NoLabels",
    "Note",
    "NystromSinkhorn",
    "PairCost",
    "Pairwise",
    "Potential",
    "Progress",
    "PseudoLabels",
    "Radial",
    "Recorder",
    "Relative",
    "ScaleWarning",
    "Scaled",
    "Sinkhorn",
    "Sketch",
    "SlicedDistance",
    "SlicedOTDD",
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
    "distributed",
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
    "sliced_otdd",
    "spreading",
    "sweep",
    "viz",
]

_NAMES = {
    "callbacks": "Checkpoint Metric Progress Recorder StopWhen",
    "control": "Backtracking FixedSteps",
    "cost": "Bures Embedding ExactLabelOT GroundCost MeansOnly NoLabels PairCost Sketch SquaredEuclidean",
    "data": "LabeledDataset",
    "distance": "Distance otdd",
    "dynamics": "FeatureDriven JointFixedLabels JointVariableLabels",
    "errors": "AdvectError ConvergenceWarning DamageWarning InputError",
    "estimators": "DatasetTransport",
    "flow": "FlowResult Step flow iterate",
    "functionals": (
        "OTDD Functional Interaction Internal Potential Radial Scaled SlicedDistance SlicedOTDD Sum "
        "affine_norm attraction ball collapse hinge norm repulsion sliced_otdd spreading"
    ),
    "gaussians": "Diagonal Factored Full Gaussians bures",
    "integrators": "Adagrad Adam Decay Euler EulerMaruyama Momentum",
    "labels": "DBSCAN AnyClusterer KMeans",
    "matching": "ClassMatching",
    "memory": "ScaleWarning",
    "motion": "BuresMotion DiagonalMotion EuclideanMotion FactoredMotion",
    "notes": "Note",
    "ot": "ExactOT MiniBatch NystromSinkhorn Relative Sinkhorn Solution",
    "pairwise": "Pairwise pairwise",
    "pseudo": "HDBSCAN GaussianMixture PseudoLabels Spectral Ward fill_labels pseudo_labels",
    "space": "FeatureSpace harmonize",
    "statistics": "ClassStatistics",
    "sweep": "Sweep sweep",
    "tables": "ClassTable",
    "trajectory": "Trajectory",
}
_WHERE = {name: room for room, names in _NAMES.items() for name in names.split()}


class _Package(_Module):
    """A package in which a function goes before the module of its name: ``advect.flow`` is the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, _Module) and _WHERE.get(name) == name:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __reduce__(self):
        return _import, (self.__name__,)  # functions that refer to it go to other processes by its name


_sys.modules[__name__].__class__ = _Package


def __getattr__(name: str):
    if name in _WHERE:
        value = globals()[name] = getattr(_import(f"advect.{_WHERE[name]}"), name)
        return value
    if not name.startswith("_") and _find(f"advect.{name}") is not None:  # a room, such as advect.datasets
        return _import(f"advect.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

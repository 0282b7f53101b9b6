"""The one registry of names: what a word on the command line or in a TOML file stands for in
``advect``.

Names exist only at this edge; everything behind it takes objects. A value is where an object is
found: ``Adam`` is ``advect.Adam``, ``maps.NearestMap`` is ``advect.maps.NearestMap``."""

from __future__ import annotations

REGISTRY: dict[str, dict[str, str]] = {
    "dynamics": {
        "fd": "FeatureDriven",
        "jd-fl": "JointFixedLabels",
        "jd-vl": "JointVariableLabels",
    },
    "laws": {
        "euclidean": "EuclideanMotion",
        "bures": "BuresMotion",
        "factored": "FactoredMotion",
        "diagonal": "DiagonalMotion",
    },
    "clustering": {"kmeans": "KMeans", "dbscan": "DBSCAN"},
    "integrator": {
        "euler": "Euler",
        "momentum": "Momentum",
        "adam": "Adam",
        "adagrad": "Adagrad",
        "euler-maruyama": "EulerMaruyama",
    },
    "control": {"backtracking": "Backtracking", "fixed": "FixedSteps"},
    "solver": {
        "sinkhorn": "Sinkhorn",
        "exact": "ExactOT",
        "mini-batch": "MiniBatch",
        "nystrom": "NystromSinkhorn",
    },
    "label cost": {
        "bures": "Bures",
        "exact": "ExactLabelOT",
        "means": "MeansOnly",
        "none": "NoLabels",
    },
    "map": {
        "entropic": "maps.EntropicMap",
        "nearest": "maps.NearestMap",
        "neural": "maps.NeuralMap",
    },
    "functional": {"otdd": "OTDD", "sliced": "SlicedOTDD", "internal": "Internal"},
    "potential": {
        "norm": "norm",
        "affine_norm": "affine_norm",
        "ball": "ball",
        "hinge": "hinge",
        "collapse": "collapse",
    },
    "interaction": {"attraction": "attraction", "repulsion": "repulsion", "spreading": "spreading"},
}
TERMS = ("functional", "potential", "interaction")  # the kinds that a sum of functionals is made of


def known(kind: str) -> tuple[str, ...]:
    """The names of a kind, in order.

    Example:
        >>> known("solver")
        ('sinkhorn', 'exact', 'mini-batch', 'nystrom')
    """
    return tuple(REGISTRY[kind])

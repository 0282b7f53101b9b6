"""Labels for data that lacks them: clusters as pseudo-labels, known labels spread to the rest
(paper, section 5.3).

``pseudo_labels`` is for data without any label, ``fill_labels`` for data with some (``spread_labels``
gives their scores); ``OrientedGradients`` is where small images are best compared; ``align`` gives
clusters the names of another dataset's classes; ``borrow`` gives classes of few samples the
diversity of another dataset's. The scores compare clusters with the truth and are
for evaluation alone. The paper's other way for partly labeled data, to flow the labeled part and
fit a map that carries the rest, is in ``maps``."""

from advect.classes.alignment import align
from advect.classes.borrowing import borrow, borrowed_laws
from advect.classes.clusterers import (
    DBSCAN,
    HDBSCAN,
    AnyClusterer,
    GaussianMixture,
    KMeans,
    Spectral,
    Ward,
)
from advect.classes.clustering import Clusterer
from advect.classes.fill import fill_labels
from advect.classes.gradients import OrientedGradients
from advect.classes.pseudo import PseudoLabels, pseudo_labels
from advect.classes.scores import best_permutation, clustering_accuracy, purity
from advect.classes.spread import spread_labels

__all__ = [
    "DBSCAN",
    "HDBSCAN",
    "AnyClusterer",
    "Clusterer",
    "GaussianMixture",
    "KMeans",
    "OrientedGradients",
    "PseudoLabels",
    "Spectral",
    "Ward",
    "align",
    "best_permutation",
    "borrow",
    "borrowed_laws",
    "clustering_accuracy",
    "fill_labels",
    "pseudo_labels",
    "purity",
    "spread_labels",
]

"""Classes of datasets: pseudo-labels, label spreading, matching and proportions (paper, section 5.3).

``pseudo_labels`` labels data without labels, ``fill_labels`` data with some, ``name_clusters`` gives
clusters the names of another dataset's classes, and ``borrow`` adds samples to classes of few."""

from advect.classes.borrowing import borrow, borrowed_laws
from advect.classes.naming import name_clusters
from advect.data.few_samples import shrunk_laws, smoothed

__all__ = [
    "borrow",
    "borrowed_laws",
    "name_clusters",
    "shrunk_laws",
    "smoothed",
]

"""Classes of datasets: pseudo-labels, label spreading, matching and proportions (paper, section 5.3).

``pseudo_labels`` labels data without labels, ``fill_labels`` data with some, ``ClassMatching`` relates
the classes of two datasets, and ``borrow`` adds samples to classes of few."""

from advect.classes.borrowing import borrow, borrowed_laws
from advect.data.few_samples import shrunk_laws, smoothed

__all__ = ["borrow", "borrowed_laws", "shrunk_laws", "smoothed"]

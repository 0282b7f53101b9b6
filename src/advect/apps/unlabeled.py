"""Labels for data that has none, for a model that may or may not know such data.

Three can stand in: clusters of the samples, clusters of the model's features, and the model's answers.
Cohen's κ of the answers and the clusters tells whether the model knows the data; it is 0 for chance.
Above 0.6, "substantial" in the words of Landis and Koch (1977), its features or answers are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from advect.classes.matching import ClassMatching
from advect.classes.pseudo import pseudo_labels, renumbered
from advect.data.dataset import LabeledDataset
from advect.data.labels import estimated_laws

CLUSTERS, FEATURE_CLUSTERS, ANSWERS = "clusters", "clusters of features", "answers"
_MIN_AGREEMENT = 0.6  # κ from which a model is said to know the data
_ADVICE = {
    CLUSTERS: "Flow by clusters of the samples: the model does not know such data. Without labels "
    "nothing can tell whether a cluster is what the model calls it",
    FEATURE_CLUSTERS: "Flow by clusters of the model's features: it knows such data",
    ANSWERS: "Do not flow: ask the model directly, which knows such data",
}


@dataclass(frozen=True, eq=False)
class Labeling:
    """The labels that stand in, and why.

    Attributes:
        kind: ``"clusters"`` (of the samples), ``"clusters of features"`` or ``"answers"``.
        dataset: what flows, with these labels.
        agreement: Cohen's κ of the model's answers and the clusters named by the class matching.
    """

    kind: str
    dataset: LabeledDataset = field(repr=False)
    agreement: float

    @property
    def advice(self) -> str:
        """What follows for the flow."""
        return (
            f"{_ADVICE[self.kind]} (agreement of answers and clusters: κ = {self.agreement:.2f})."
        )


def choose_labeling(
    data: LabeledDataset,
    reference: LabeledDataset,
    encoded: LabeledDataset,
    encoded_reference: LabeledDataset,
    answers: np.ndarray,
) -> Labeling:
    """The labels that a flow without labels goes by.

    If the model knows the data: clusters of its features, or its answers where samples flow as they
    are. Otherwise clusters of the samples. ``encoded`` is the data in the model's features, or the same
    object without any.
    """
    clusters = pseudo_labels(data, target=reference).dataset
    labels, kind = (answers, reference.classes), ANSWERS
    known = clusters
    if encoded is not data:
        known = clusters_from_classes(encoded, encoded_reference)
        labels, kind = (known.y, known.classes), FEATURE_CLUSTERS
    matching = ClassMatching.between(known, encoded_reference)
    positions = matching.coupling.values.argmax(axis=1)[known.y.cpu().numpy()]
    kappa = _agreement(positions, answers)
    if kappa < _MIN_AGREEMENT:
        labels, kind = (clusters.y, clusters.classes), CLUSTERS
    y = torch.as_tensor(labels[0], device=encoded.x.device)
    moving = encoded.replace(y=y, classes=labels[1], law=None, law_index=None)
    return Labeling(kind, moving, kappa)


def clusters_from_classes(data: LabeledDataset, reference: LabeledDataset) -> LabeledDataset:
    """Clusters of k-means that starts at the class means of a reference, moved to the data's mean."""
    from sklearn.cluster import KMeans

    x = data.x.double().cpu().numpy()
    means = estimated_laws(reference.balanced()).means.double().cpu().numpy()
    present = [code for code, count in enumerate(reference.counts.values()) if count]
    start = means[present] - means[present].mean(axis=0) + x.mean(axis=0)
    k = min(len(present), len(np.unique(x, axis=0)))
    codes = renumbered(np.asarray(KMeans(k, init=start[:k]).fit(x).labels_))
    y, classes = torch.as_tensor(codes, device=data.x.device), tuple(range(codes.max() + 1))
    return data.replace(y=y, classes=classes, law=None, law_index=None)


def _agreement(one: np.ndarray, other: np.ndarray) -> float:
    from sklearn.metrics import cohen_kappa_score

    if len(np.unique(np.concatenate([one, other]))) < 2:
        return 0.0
    return float(cohen_kappa_score(one, other))

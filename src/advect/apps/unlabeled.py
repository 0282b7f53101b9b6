"""Labels for data that has none, for a model that may or may not know such data.

Three can stand in: clusters of the samples, clusters of the model's features, and the model's answers.
Cohen's κ of the answers and the clusters tells whether the model knows the data; it is 0 for chance.
Above 0.6, "substantial" in the words of Landis and Koch (1977), its answers and features are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from advect.classes.matching import ClassMatching
from advect.classes.pseudo import PseudoLabels, pseudo_labels, renumbered
from advect.data.dataset import LabeledDataset
from advect.data.labels import estimated_laws

CLUSTERS, FEATURE_CLUSTERS, ANSWERS = "clusters", "clusters of features", "answers"
_MIN_AGREEMENT = 0.6  # κ from which a model is said to know the data
_MAX_SCORED = 2000  # samples that silhouettes are measured on


@dataclass(frozen=True, eq=False)
class Labeling:
    """The labels that stand in, and why.

    Attributes:
        kind: ``"clusters"`` (of the samples), ``"clusters of features"`` or ``"answers"``.
        pseudo: the labels.
        agreement: Cohen's κ of the model's answers and the clusters named by the class matching.
        silhouettes: of answers and clusters in the model's features, where these were compared.
    """

    kind: str
    pseudo: PseudoLabels
    agreement: float
    silhouettes: dict[str, float] = field(default_factory=dict)

    @property
    def advice(self) -> str:
        """What follows for the flow, in one sentence."""
        kappa = f"its answers agree with clusters, κ = {self.agreement:.2f}"
        if self.kind == CLUSTERS:
            return (
                "Flow by clusters of the samples: the model does not know such data (its answers "
                f"agree little with clusters, κ = {self.agreement:.2f}). Without labels nothing can "
                "tell whether a cluster is what the model calls it."
            )
        scores = ""
        if self.silhouettes:
            best, other = sorted(self.silhouettes.values(), reverse=True)
            scores = f", silhouette {best:.2f} against {other:.2f}"
        if self.kind == ANSWERS:
            return f"Do not flow: ask the model directly. It knows such data ({kappa}{scores})."
        return f"Flow by clusters of the model's features. It knows such data ({kappa}{scores})."


def choose_labeling(
    data: LabeledDataset,
    reference: LabeledDataset,
    encoded: LabeledDataset,
    encoded_reference: LabeledDataset,
    answers: np.ndarray,
) -> Labeling:
    """The labels that a flow without labels goes by.

    If the model knows the data: its answers or clusters of its features, by their silhouette in these
    features. Otherwise clusters of the samples. ``encoded`` is the data in the model's features, or the
    same object without any.
    """
    clusters = pseudo_labels(data, target=reference)
    if encoded is data:
        kappa = _agreement(_class_positions(clusters.dataset, reference), answers)
        if kappa >= _MIN_AGREEMENT:
            return Labeling(ANSWERS, _from_answers(encoded, encoded_reference, answers), kappa)
        return Labeling(CLUSTERS, clusters, kappa)
    feature_clusters = clusters_from_classes(encoded, encoded_reference)
    kappa = _agreement(_class_positions(feature_clusters.dataset, encoded_reference), answers)
    if kappa < _MIN_AGREEMENT:
        named = clusters.dataset
        moved = encoded.replace(y=named.y, classes=named.classes, law=None, law_index=None)
        found = PseudoLabels(moved, clusters.codes, clusters.n_clusters, clusters.method)
        return Labeling(CLUSTERS, found, kappa)
    candidates = {
        FEATURE_CLUSTERS: feature_clusters,
        ANSWERS: _from_answers(encoded, encoded_reference, answers),
    }
    scores = {kind: _silhouette(encoded, one.codes) for kind, one in candidates.items()}
    best = max(scores, key=lambda kind: scores[kind])
    return Labeling(best, candidates[best], kappa, scores)


def clusters_from_classes(data: LabeledDataset, reference: LabeledDataset) -> PseudoLabels:
    """Clusters of k-means that starts at the class means of a reference, moved to the data's mean."""
    from sklearn.cluster import KMeans

    x = data.x.double().cpu().numpy()
    means = estimated_laws(reference.balanced()).means.double().cpu().numpy()
    present = [code for code, count in enumerate(reference.counts.values()) if count]
    start = means[present] - means[present].mean(axis=0) + x.mean(axis=0)
    k = min(len(present), len(np.unique(x, axis=0)))
    codes = renumbered(np.asarray(KMeans(k, init=start[:k]).fit(x).labels_))
    n_clusters = int(codes.max()) + 1
    y = torch.as_tensor(codes, device=data.x.device)
    labeled = data.replace(y=y, classes=tuple(range(n_clusters)), law=None, law_index=None)
    return PseudoLabels(labeled, codes, n_clusters, "KMeans from classes")


def _from_answers(
    data: LabeledDataset, reference: LabeledDataset, answers: np.ndarray
) -> PseudoLabels:
    y = torch.as_tensor(answers, device=data.x.device)
    labeled = data.replace(y=y, classes=reference.classes, law=None, law_index=None)
    return PseudoLabels(labeled, answers, len(np.unique(answers)), ANSWERS)


def _class_positions(clusters: LabeledDataset, reference: LabeledDataset) -> np.ndarray:
    """The reference class that the cluster of each sample is matched to."""
    matching = ClassMatching.between(clusters, reference)
    return matching.coupling.values.argmax(axis=1)[clusters.y.cpu().numpy()]


def _agreement(one: np.ndarray, other: np.ndarray) -> float:
    from sklearn.metrics import cohen_kappa_score

    if len(np.unique(np.concatenate([one, other]))) < 2:
        return 0.0
    return float(cohen_kappa_score(one, other))


def _silhouette(data: LabeledDataset, codes: np.ndarray) -> float:
    from sklearn.metrics import silhouette_score

    rows = np.arange(len(codes))
    if len(rows) > _MAX_SCORED:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), _MAX_SCORED, replace=False))
    if not 2 <= len(np.unique(codes[rows])) < len(rows):
        return -1.0
    return float(silhouette_score(data.x[rows].double().cpu().numpy(), codes[rows]))

"""Labels for data that has none, for a model that may or may not know such data.

Three may stand in: clusters of the samples, clusters of the model's features, and the model's own
answers. Whether the model knows the data is told by the agreement of its answers with clusters that
it had no part in naming one by one: Cohen's κ, which is 0 for chance. Above 0.6, "substantial" in
the words of Landis and Koch (1977), its answers and features are taken at their word."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from advect.classes import PseudoLabels, pseudo_labels
from advect.classes.matching import ClassMatching
from advect.data.dataset import LabeledDataset

CLUSTERS, FEATURE_CLUSTERS, ANSWERS = "clusters", "clusters of features", "answers"
_KNOWN = 0.6  # κ from which a model is said to know the data
_SCORED = 2000  # samples that silhouettes are measured on


@dataclass(frozen=True, eq=False)
class Labeling:
    """What stands in for labels, and why.

    Attributes:
        kind: ``"clusters"`` (of the samples), ``"clusters of features"`` or ``"answers"`` (the
            model's own).
        pseudo: the labels.
        agreement: of the model's answers with clusters named by the class matching, Cohen's κ.
        known: whether that is enough to say that the model knows the data.
        silhouettes: in the model's features, of what was compared there; empty otherwise.

    Example:
        >>> import advect as ad
        >>> data = ad.datasets.load("toy:gaussians?n=90&seed=1")
        >>> means = data.moments().means
        >>> answers = (data.x[:, None] - means).square().sum(2).argmin(1).numpy()
        >>> choose_labeling(data, data, data, data, answers).kind
        'answers'
    """

    kind: str
    pseudo: PseudoLabels
    agreement: float
    known: bool
    silhouettes: dict[str, float] = field(default_factory=dict)


def choose_labeling(
    data: LabeledDataset,
    reference: LabeledDataset,
    inside: LabeledDataset,
    there: LabeledDataset,
    answers: np.ndarray,
    clusterer: Any = None,
) -> Labeling:
    """The labels that a flow without labels goes by.

    A model that knows the data has the choice of its own answers and of clusters of its features,
    where there are any, by their silhouette in these features. Otherwise clusters of the samples.

    Args:
        data, reference: samples as they came.
        inside, there: the same in the model's features; the same objects where there are none.
        answers: position of the model's answer among the reference's classes for each sample.
        clusterer: see ``pseudo_labels``; by default spectral clustering for samples, and k-means
            begun at the means of the reference's classes for features.
    """
    plain = pseudo_labels(data, clusterer, target=reference)
    if inside is data:
        kappa = _agreement(_named(plain.dataset, reference), answers)
        if kappa >= _KNOWN:
            return Labeling(ANSWERS, _answered(inside, there, answers), kappa, True)
        return Labeling(CLUSTERS, plain, kappa, False)
    own = (
        clusters_from_classes(inside, there)
        if clusterer is None
        else pseudo_labels(inside, clusterer, target=there)
    )
    kappa = _agreement(_named(own.dataset, there), answers)
    if kappa < _KNOWN:
        moved = PseudoLabels(_relabeled(inside, plain), plain.codes, plain.n_clusters, plain.method)
        return Labeling(CLUSTERS, moved, kappa, False)
    found = {FEATURE_CLUSTERS: own, ANSWERS: _answered(inside, there, answers)}
    scores = {kind: _silhouette(inside, one.codes) for kind, one in found.items()}
    best = max(scores, key=lambda kind: scores[kind])
    return Labeling(best, found[best], kappa, True, scores)


def clusters_from_classes(data: LabeledDataset, reference: LabeledDataset) -> PseudoLabels:
    """Clusters of k-means that begins at the class means of a reference, moved to the data's mean;
    they are numbered by size as all clusters are.
    """
    from sklearn.cluster import KMeans

    from advect.classes.pseudo import renumbered

    x = data.x.double().cpu().numpy()
    means = reference.balanced().moments().means.double().cpu().numpy()
    present = [code for code, count in enumerate(reference.counts.values()) if count]
    begin = means[present] - means[present].mean(axis=0) + x.mean(axis=0)
    k = min(len(present), len(np.unique(x, axis=0)))
    codes = renumbered(np.asarray(KMeans(k, init=begin[:k]).fit(x).labels_))
    number = int(codes.max()) + 1
    y = torch.as_tensor(codes, device=data.x.device)
    labeled = data.replace(y=y, classes=tuple(range(number)), law=None, law_index=None)
    return PseudoLabels(labeled, codes, number, "KMeans from classes")


def _answered(data: LabeledDataset, reference: LabeledDataset, answers: np.ndarray) -> PseudoLabels:
    """The model's answers as labels, classes of the reference."""
    y = torch.as_tensor(answers, device=data.x.device)
    labeled = data.replace(y=y, classes=reference.classes, law=None, law_index=None)
    return PseudoLabels(labeled, answers, len(np.unique(answers)), ANSWERS)


def _relabeled(data: LabeledDataset, pseudo: PseudoLabels) -> LabeledDataset:
    return data.replace(
        y=pseudo.dataset.y, classes=pseudo.dataset.classes, law=None, law_index=None
    )


def _named(clusters: LabeledDataset, reference: LabeledDataset) -> np.ndarray:
    """Positions of the reference's classes that clusters are matched to."""
    matching = ClassMatching.between(clusters, reference)
    return matching.coupling.values.argmax(axis=1)[clusters.y.cpu().numpy()]


def _agreement(one: np.ndarray, other: np.ndarray) -> float:
    from sklearn.metrics import cohen_kappa_score

    if len(np.unique(np.concatenate([one, other]))) < 2:
        return 0.0  # nothing is told apart
    return float(cohen_kappa_score(one, other))


def _silhouette(data: LabeledDataset, codes: np.ndarray) -> float:
    from sklearn.metrics import silhouette_score

    rows = np.arange(len(codes))
    if len(rows) > _SCORED:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), _SCORED, replace=False))
    if not 2 <= len(np.unique(codes[rows])) < len(rows):
        return -1.0
    return float(silhouette_score(data.x[rows].double().cpu().numpy(), codes[rows]))

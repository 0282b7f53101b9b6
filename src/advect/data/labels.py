"""Questions about the labels of a dataset, asked by the rooms above."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from advect.data.conversions import has_classes
from advect.data.dataset import LabeledDataset, require_labels
from advect.data.laws import Gaussians
from advect.data.laws.gaussians import class_rows
from advect.errors import InputError


def require_classes(data: LabeledDataset, who: str) -> None:
    """Raise an error that names ``who`` for data with targets and no labels."""
    if not has_classes(data):
        raise InputError(
            f"{who} needs classes",
            f"{len(data)} samples with continuous targets and no labels",
            "Pass labels too, for example binned targets: ad.LabeledDataset(x, bins, targets=y).",
        )


def require_targets(data: LabeledDataset, who: str) -> Tensor:
    """The targets, (n, q), or an error that names ``who``."""
    if data.targets is None:
        raise InputError(
            f"{who} needs continuous targets",
            f"{len(data)} samples without",
            "Pass targets=y (?target=column for a file), or label=ad.NoLabels() to compare features.",
        )
    return data.targets


def require_hard(data: LabeledDataset, who: str) -> None:
    """Raise an error that names ``who`` for soft labels."""
    if data.has_soft_labels:
        raise InputError(
            f"{who} needs one label for each sample",
            "soft labels",
            "Take the most probable class with data.hard().",
        )


def memberships(data: LabeledDataset) -> Tensor:
    """Probability of each class for each sample, (n, k); one-hot rows for hard labels."""
    if data.probabilities is not None:
        return data.probabilities
    require_labels(data, "class membership")
    return one_hot(data.y, len(data.classes)).to(data.weights)


def label_confidence(data: LabeledDataset) -> Tensor:
    """The probability of each sample's label, (n,): 1 for a hard label, 0 for a missing one."""
    if data.probabilities is None:
        return data.labeled.to(data.weights)
    return data.probabilities.gather(1, data.y[:, None])[:, 0]


def label_samples(data: LabeledDataset) -> tuple[Tensor, Tensor, Tensor]:
    """Features, classes and masses that label laws are of. With soft labels a sample appears
    once for each class of positive probability.
    """
    x = law_features(data)
    if data.probabilities is None:
        require_labels(data, "the estimate of label laws")
        return x, data.y, data.weights
    rows, codes, mass = class_rows(data.probabilities, data.weights)
    return x[rows], codes, mass


def occurring_classes(data: LabeledDataset) -> list[bool]:
    """Whether each class has a sample of positive probability."""
    if data.probabilities is not None:
        return (data.probabilities.amax(dim=0) > 0).tolist()
    return [count > 0 for count in data.counts.values()]


def law_features(data: LabeledDataset) -> Tensor:
    """The features that label laws are estimated from: detached if laws are fixed."""
    return data._law_features


def law_rows(data: LabeledDataset) -> Tensor:
    """For each sample, the row of ``data.laws()`` of its label, (n,)."""
    if data.law_index is not None:
        return data.law_index
    require_hard(data, "the law of a label")
    require_labels(data, "a label cost")
    return data.y


def estimated_laws(data: LabeledDataset) -> Gaussians:
    """Class laws estimated from the samples, also if the dataset has others."""
    return (data if data.law is None else data._replace(law=None, law_index=None)).laws()


def diagonal_laws(data: LabeledDataset) -> Gaussians:
    """``data.laws()`` without correlations. Of estimates, only the diagonals are cached."""
    if data.law is not None or law_features(data).requires_grad:
        return data.laws().diagonal()
    return data._estimated_diagonal


def with_class_laws(data: LabeledDataset) -> LabeledDataset:
    """The same samples with one law for each class instead of laws of single samples."""
    if data.law_index is None:
        return data
    return data._replace(law=data.class_laws(), law_index=None)


def with_shared_laws(data: LabeledDataset) -> LabeledDataset:
    """The same without unused laws; equal laws become one, unless they have gradients."""
    if data.law is None or data.law_index is None:
        return data
    used, index = torch.unique(data.law_index, return_inverse=True)
    law = data.law if len(used) == len(data.law) else data.law.take(used)
    if not law.requires_grad:
        law, place = law.distinct()
        index = place[index]
    return data if len(law) == len(data.law) else data._replace(law=law, law_index=index)

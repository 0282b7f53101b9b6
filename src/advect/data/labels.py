"""The labeled dataset, and functions of its labels."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import one_hot

from advect._util import InputError, refuse_if
from advect.data.dataset import (
    LabeledDataset,
    law_rows,
    require_hard,
    require_labels,
    with_shared_laws,
)
from advect.data.laws import Gaussians, class_rows

__all__ = [
    "LabeledDataset",
    "diagonal_laws",
    "estimated_laws",
    "label_samples",
    "law_features",
    "law_rows",
    "memberships",
    "occurring_classes",
    "require_classes",
    "require_hard",
    "require_labels",
    "require_targets",
    "with_class_laws",
    "with_shared_laws",
]


def require_classes(data: LabeledDataset, who: str) -> None:
    """Raise an error that names ``who`` for data with targets and no labels."""
    refuse_if(
        not data.has_classes,
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


def memberships(data: LabeledDataset) -> Tensor:
    """Probability of each class for each sample, (n, k); one-hot rows for hard labels."""
    if data.probabilities is not None:
        return data.probabilities
    require_labels(data, "class membership")
    return one_hot(data.y, len(data.classes)).to(data.weights)


def label_samples(data: LabeledDataset) -> tuple[Tensor, Tensor, Tensor]:
    """Features, classes and masses from which label laws are estimated. With soft labels, a sample appears
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
    return data.x.detach() if data.fixed_laws else data.x


def estimated_laws(data: LabeledDataset) -> Gaussians:
    """Class laws estimated from the samples, also if the dataset has others."""
    return (data if data.law is None else data._replace(law=None, law_index=None)).laws()


def diagonal_laws(data: LabeledDataset) -> Gaussians:
    """``data.laws()`` without correlations. Of estimates, only the diagonals are cached."""
    if data.law is not None or law_features(data).requires_grad:
        return data.laws().diagonal()
    return data._diagonal_laws


def with_class_laws(data: LabeledDataset) -> LabeledDataset:
    """The same samples with one law for each class instead of laws of single samples."""
    if data.law_index is None:
        return data
    return data._replace(law=data.class_laws(), law_index=None)

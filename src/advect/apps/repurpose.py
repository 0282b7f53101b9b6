"""A frozen model put to use on other data: the data flows to where the model works, and is read
there (paper, section 6.3).

The model is queried and never changed. Labels of the data are used where they are known,
pseudo-labels where none are, and a map carries the samples without labels, and new ones, along."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_kind
from advect.apps.carry import CarryOptions, carrier, carry
from advect.apps.query import query
from advect.classes import PseudoLabels, pseudo_labels
from advect.classes.matching import ClassMatching
from advect.data.dataset import LabeledDataset
from advect.flows.callbacks import Metric
from advect.flows.loop import FlowResult
from advect.maps.base import Map


@dataclass(frozen=True)
class RepurposeOptions(CarryOptions):
    """How data is carried to a model: ``CarryOptions``, and what stands in for labels.

    The defaults read Fashion-MNIST by an MNIST model within 30 steps. Accuracy is measured at
    ``every`` so many steps.

    Args:
        clusterer: for data without labels; see ``pseudo_labels``.

    Example:
        >>> import advect as ad
        >>> ad.apps.RepurposeOptions(n_steps=10).step_size
        0.2
    """

    clusterer: Any = None


@dataclass(frozen=True, eq=False)
class Repurposed:
    """A model read on other data.

    Attributes:
        predictions: a class of the data for each of its samples (of its clusters, where it came
            without labels); None, with a warning, where the model answered with a class that has no
            samples in the reference, which counts as wrong.
        answers: what the model said about the flowed samples, (n, k) probabilities or n labels.
        flowed: the data where the model was asked.  matching: between its classes and the model's.
        accuracy: share of labeled samples that are predicted right; None without labels. The flow
            used these labels: it says how well the flow reaches the model, not how well new samples
            are read. For that, ``predict`` held-out ones.
        accuracies: the same along the flow, (index, value).  result: the flow.  map: carries new
            samples.
        pseudo: the clusters that stood in for labels, if they did.
    """

    predictions: list[Hashable]
    answers: np.ndarray
    flowed: LabeledDataset
    matching: ClassMatching
    accuracy: float | None
    accuracies: list[tuple[int, float]]
    result: FlowResult
    map: Map
    pseudo: PseudoLabels | None
    model: Any

    def predict(self, samples: Any) -> list[Hashable]:
        """Classes of new samples in the data's feature space, whose labels nobody knows: carried by
        the map, then asked.

        None, with a warning, where the model answers with a class that has no samples in the
        reference."""
        if isinstance(samples, LabeledDataset):
            samples = samples.samples
        moved = torch.as_tensor(self.map.transform(samples))
        answers = query(self.model, moved.reshape(len(moved), *self.flowed.sample_shape))
        return _predictions(self.matching, answers)

    def __repr__(self) -> str:
        scored = "" if self.accuracy is None else f", accuracy {self.accuracy:.3f}"
        return f"Repurposed({len(self.predictions)} samples, {len(self.matching.data_classes)} classes{scored})"


@overload
def repurpose(
    model: Any,
    reference: LabeledDataset,
    data: LabeledDataset,
    options: RepurposeOptions | None = ...,
) -> Repurposed: ...
@overload
def repurpose(
    model: Any,
    reference: LabeledDataset,
    data: Mapping[str, LabeledDataset],
    options: RepurposeOptions | None = ...,
) -> dict[str, Repurposed]: ...
def repurpose(
    model: Any,
    reference: LabeledDataset,
    data: LabeledDataset | Mapping[str, LabeledDataset],
    options: RepurposeOptions | None = None,
) -> Repurposed | dict[str, Repurposed]:
    """Classify data with a model that was made for other data, by moving the data and not the
    model.

    Args:
        model: any callable from samples to scores or labels: a torch module, a scikit-learn
            estimator, a function. Labels it returns are class names of the reference; scores are in
            the order of the reference's classes.
        reference: a labeled sample of what the model was trained on.
        data: what to classify, in the same feature space (see ``ad.harmonize``): labeled, partly
            labeled or unlabeled; or several datasets by name, which share the one model.
        options: how; see ``RepurposeOptions``.

    Example:
        >>> import advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=120&seed=1")
        >>> data = reference.replace(x=reference.x * 0.5 + 20, classes=("x", "y", "z"))
        >>> nearest = lambda x: (x[:, None] - reference.moments().means).square().sum(2).argmin(1)
        >>> found = ad.apps.repurpose(nearest, reference, data)
        >>> found.accuracy, found.predict(data.x[:2]) == data.labels[:2]
        (1.0, True)
    """
    options = options or RepurposeOptions()
    if isinstance(data, Mapping):
        return {name: repurpose(model, reference, part, options) for name, part in data.items()}
    what = "data must be a LabeledDataset, or several by name"
    check_kind(what, data, LabeledDataset, "Wrap arrays first.")
    reference.require_labels("the reference of a model")
    pseudo = None
    if not bool(data.labeled.any()):
        pseudo = pseudo_labels(data, options.clusterer, target=reference)
        moving = pseudo.dataset
    else:
        moving = data if data.complete else data.subset(data.labeled)
    # a model that cannot answer should say so before a long flow
    query(model, reference.samples[:1])
    result = _carry(model, reference, moving, options, scored=pseudo is None)
    follow = carrier(options).fit(result)
    flowed = result.dataset if len(moving) == len(data) else _carry_rest(data, result, follow)
    matching = ClassMatching.between(result.dataset, reference)
    answers = query(model, flowed.samples)
    predictions = _predictions(matching, answers)
    accuracy = None if pseudo is not None else _accuracy(predictions, data)
    history = result.metrics.get("accuracy", [])
    return Repurposed(
        predictions, answers, flowed, matching, accuracy, history, result, follow, pseudo, model
    )


def _carry(
    model: Any,
    reference: LabeledDataset,
    data: LabeledDataset,
    options: RepurposeOptions,
    scored: bool,
) -> FlowResult:
    def accuracy(rho: LabeledDataset) -> float:
        matching = ClassMatching.between(rho, reference)
        return _accuracy(matching.predict(query(model, rho.samples), unknown=None), rho)

    callbacks = [Metric("accuracy", accuracy, every=options.every)] if scored else []
    return carry(data, reference, options, callbacks)


def _predictions(matching: ClassMatching, answers: np.ndarray) -> list[Hashable]:
    """One odd answer must not cost a long flow, nor a batch its other predictions."""
    found = matching.predict(answers, unknown=None)
    lost = found.count(None)
    if lost:
        warnings.warn(
            f"for {lost} of {len(found)} samples the model answered with a class that has no "
            "samples in the reference: their "
            "prediction is None. Add samples of these classes to the reference, or let the model "
            "answer with probabilities.",
            stacklevel=3,
        )
    return found


def _carry_rest(data: LabeledDataset, result: FlowResult, follow: Map) -> LabeledDataset:
    """The paper's recipe for partly labeled data: the labeled part has flowed, the rest follows by
    the map.
    """
    x = torch.empty_like(data.x)
    x[data.labeled] = result.dataset.x.to(x.dtype)
    rest: Tensor = torch.as_tensor(follow.transform(data.samples[~data.labeled]))
    x[~data.labeled] = rest.reshape(len(rest), -1).to(x)
    return data.replace(x=x)


def _accuracy(predictions: list[Hashable], data: LabeledDataset) -> float:
    truth = data.labels
    known = [i for i, label in enumerate(truth) if label is not None]
    return float(np.mean([predictions[i] == truth[i] for i in known]))

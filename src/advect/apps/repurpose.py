"""A frozen model put to use on other data: the data flows to where the model works, and is read
there (paper, section 6.3).

The model is queried and never changed. Labels of the data are used where they are known,
pseudo-labels where none are, and a map carries the samples without labels, and new ones, along. All
of it happens in the space of the samples or in the features of one of the model's layers. Whether
it was worth it is measured on labels that are kept aside, and said."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_kind, check_known
from advect._util.html import facts_table
from advect.apps.carry import CarryOptions, carrier, carry
from advect.apps.comparison import (
    FLOW,
    NO_FLOW,
    POSTERIOR,
    WAYS,
    Comparison,
    compared,
    too_few,
    without_labels,
)
from advect.apps.labelings import Labeling, choose_labeling
from advect.apps.module_features import Halves, split_model
from advect.apps.pages import write_page
from advect.apps.query import answer_codes, query
from advect.classes import PseudoLabels
from advect.classes.matching import ClassMatching
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.flows.callbacks import Metric
from advect.flows.loop import FlowResult
from advect.maps import EntropicMap
from advect.maps.base import Map, Samples, check_columns
from advect.maps.posteriors import Posterior, check_posterior, folds_of

_ASIDE = 5  # every fifth labeled sample is kept aside for a comparison
_LEAST = 10  # labeled samples for one


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
class _Task:
    """A model, the reference in the space of the flow, and how data gets there."""

    halves: Halves
    shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    reference: LabeledDataset
    options: RepurposeOptions
    posterior: Posterior

    def inside(self, samples: Any) -> Any:
        """New samples as they came, or their features where these flow."""
        check_columns(samples, self.columns)
        if isinstance(samples, LabeledDataset):
            samples = samples.samples
        given = tuple(getattr(samples, "shape", ()))[1:]
        if given != self.shape and _sides(given) == _sides(self.shape):
            samples = samples.reshape(len(samples), *self.shape)  # a channel more or less
        if self.halves.body is None:
            return samples  # whose shape the map looks at
        values = Samples.of(samples).values
        if tuple(values.shape[1:]) not in (self.shape, (math.prod(self.shape),)):
            raise InputError(
                f"samples must have the shape of the data, {self.shape}",
                f"shape {tuple(values.shape)}",
                "Bring them to the space of the data first.",
            )
        return self.halves.features(values.reshape(len(values), *self.shape))

    def flow(self, data: LabeledDataset, scored: bool) -> FlowResult:
        def accuracy(rho: LabeledDataset) -> float:
            return _accuracy(self.read(rho).predict(self.ask(rho.samples), unknown=None), rho)

        callbacks = [Metric("accuracy", accuracy, every=self.options.every)] if scored else []
        return carry(data, self.reference, self.options, callbacks)

    def read(self, data: LabeledDataset) -> ClassMatching:
        return ClassMatching.between(data, self.reference)

    def ask(self, samples: Tensor) -> np.ndarray:
        return query(self.halves.head, samples)

    def follower(self, result: FlowResult) -> Map:
        return copy.deepcopy(carrier(self.options, self.posterior)).fit(result)

    def carried(self, follow: Map, samples: Any) -> Tensor:
        return self.shaped(follow.transform(samples))

    def shaped(self, samples: Any) -> Tensor:
        """Samples of the flow's space, in the shape that is asked about."""
        values = Samples.of(samples).values
        if values[:1].numel() not in (0, self.reference.dim):
            raise InputError(
                f"samples must have {self.reference.dim} features",
                f"shape {tuple(values.shape)}",
                "Bring them to the space of the data first: the FeatureSpace of ad.harmonize does.",
            )
        return values.reshape(len(values), *self.reference.sample_shape)


@dataclass(frozen=True, eq=False)
class Repurposed:
    """A model read on other data.

    Attributes:
        predictions: for each sample a class of the data, or of the model where the data came
            without labels; None, with a warning, where the model answered with a class that has no
            samples in the reference, which counts as wrong.
        answers: what the model said about the flowed samples, (n, k) probabilities or n labels.
        flowed: the data where the model was asked, or the features of the model that it was asked
            about.  matching: between the data's classes and the model's.
        accuracy: share of labeled samples that are predicted right; None without labels. The flow
            used these labels: it says how well the flow reaches the model, not how well new samples
            are read. For that, see ``comparison``.
        accuracies: the same along the flow, (index, value).  result: the flow.  map: carries new
            samples.
        labeling: what stood in for labels, and why, if the data came without.
        comparison: what is right of labels kept aside after the flow, without it, and by the map's
            posterior alone. It takes another flow, with four fifths of the labels, when it is first
            looked at; without labels it says what the agreement of the model with clusters says.
    """

    predictions: list[Hashable]
    answers: np.ndarray
    flowed: LabeledDataset
    matching: ClassMatching
    accuracy: float | None
    accuracies: list[tuple[int, float]]
    result: FlowResult
    map: Map
    labeling: Labeling | None
    model: Any
    _task: _Task

    def _repr_html_(self) -> str:
        facts = {"predictions": f"{len(self.predictions):,}", "flow": repr(self.result)}
        if self.accuracy is not None:
            facts["accuracy of the flow's own labels"] = f"{self.accuracy:.3f}"
        if self.labeling is not None:
            facts["labels"] = "stood in for: see labeling"
        return facts_table("Repurposed", facts) + self.matching._repr_html_()

    @property
    def pseudo(self) -> PseudoLabels | None:
        """The labels that stood in, if they did."""
        return None if self.labeling is None else self.labeling.pseudo

    @cached_property
    def comparison(self) -> Comparison:
        if self.labeling is not None:
            return without_labels(self.labeling)
        return _compare(self._task, self.result.source)

    @property
    def options(self) -> RepurposeOptions:
        """How the data was carried."""
        return self._task.options

    @property
    def reference(self) -> LabeledDataset:
        """What the model works on, in the space of the flow."""
        return self._task.reference

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page: what is right of held-out labels with the flow and without, which class is
        which, samples before and after; see ``advect.report.write_repurpose_report`` for the options.
        """
        return write_page("write_repurpose_report", self, path, options)

    @property
    def recommendation(self) -> str:
        """What to use, in one sentence; see ``comparison``."""
        return self.comparison.why

    def predict(self, samples: Any, way: str = FLOW) -> list[Hashable]:
        """Classes of new samples in the data's feature space, whose labels nobody knows.

        None, with a warning, where the model answers with a class that has no samples in the
        reference.

        Args:
            samples: as they came to ``repurpose``: in the space of the samples, also where features
                are used.
            way: ``"flow"`` carries them by the map and asks the model there; ``"no flow"`` asks it
                directly; ``"posterior"`` asks the map which class they have; ``"recommended"`` does
                what ``comparison`` says.
        """
        check_known("way", way, (*WAYS, "recommended"))
        way = self.comparison.recommended if way == "recommended" else way
        inside = self._task.inside(samples)
        if way == POSTERIOR:
            return self._by_posterior(inside)
        if way == FLOW:
            return self._named(self.matching, self._task.ask(self._task.carried(self.map, inside)))
        answers = self._task.ask(self._task.shaped(inside))
        return self._named(self._task.read(self.result.source), answers)

    def _named(self, matching: ClassMatching, answers: np.ndarray) -> list[Hashable]:
        if self.labeling is None:
            return _predictions(matching, answers)
        return _classes(answers, self._task.reference)

    def _by_posterior(self, samples: Any) -> list[Hashable]:
        if not isinstance(self.map, EntropicMap):
            raise InputError(
                "only an entropic map has a posterior",
                type(self.map).__name__,
                'Take way="flow" or way="no flow".',
            )
        names = _likely(self.map, samples)
        return names if self.labeling is None else [self.matching.hard[name] for name in names]

    def __repr__(self) -> str:
        scored = "" if self.accuracy is None else f", accuracy {self.accuracy:.3f}"
        return f"Repurposed({len(self.predictions)} samples, {len(self.matching.data_classes)} classes{scored})"


@overload
def repurpose(
    model: Any,
    reference: LabeledDataset,
    data: LabeledDataset,
    options: RepurposeOptions | None = ...,
    *,
    posterior: Posterior = ...,
    features: Any = ...,
    head: Any = ...,
) -> Repurposed: ...
@overload
def repurpose(
    model: Any,
    reference: LabeledDataset,
    data: Mapping[str, LabeledDataset],
    options: RepurposeOptions | None = ...,
    *,
    posterior: Posterior = ...,
    features: Any = ...,
    head: Any = ...,
) -> dict[str, Repurposed]: ...
def repurpose(
    model: Any,
    reference: LabeledDataset,
    data: LabeledDataset | Mapping[str, LabeledDataset],
    options: RepurposeOptions | None = None,
    *,
    posterior: Posterior = None,
    features: Any = None,
    head: Any = None,
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
        options: how; see ``RepurposeOptions``. Bounds are of what flows, features if they do.
        posterior: who says which class a sample without a label may have: see ``EntropicMap``.
            ``"auto"`` is the best where there are a few hundred labels.
        features: a layer of the model (its name, or the layer), or a function of samples: what it
            gives is what is clustered, flows and is mapped. Where the model knows data of this
            kind, its features tell classes apart better than pixels do.
        head: what answers for features, a function or the name of a layer. Left out where the model
            is a chain, ``nn.Sequential``: then it is what follows the layer.

    Example:
        >>> import advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=120&seed=1")
        >>> data = reference.replace(x=reference.x * 0.5 + 20, classes=("x", "y", "z"))
        >>> nearest = lambda x: (x[:, None] - reference.moments().means).square().sum(2).argmin(1)
        >>> found = ad.apps.repurpose(nearest, reference, data)
        >>> found.accuracy, found.predict(data.x[:2]) == data.labels[:2]
        (1.0, True)
        >>> found.comparison.accuracies["flow"]
        1.0
        >>> found.recommendation.split(":")[0]
        'Do not flow'
    """
    options = options or RepurposeOptions()
    if isinstance(data, Mapping):
        return {
            name: repurpose(
                model, reference, part, options, posterior=posterior, features=features, head=head
            )
            for name, part in data.items()
        }
    what = "data must be a LabeledDataset, or several by name"
    check_kind(what, data, LabeledDataset, "Wrap arrays first.")
    check_kind(
        "reference must be a LabeledDataset", reference, LabeledDataset, "Wrap arrays first."
    )
    check_kind("options must be RepurposeOptions", options, RepurposeOptions, "Make these instead.")
    reference.require_classes("the reference of a model")
    reference.require_labels("the reference of a model")
    check_posterior(posterior)
    halves = split_model(model, features, head)
    there, inside = halves.encoded(reference), halves.encoded(data)
    task = _Task(halves, data.sample_shape, data.columns, there, options, posterior)
    carrier(options, posterior)  # what cannot be should say so before a long flow
    task.ask(there.samples[:1])  # a model that cannot answer, too
    labeling = None
    if not bool(data.labeled.any()):
        codes = answer_codes(task.ask(inside.samples), there.classes)
        labeling = choose_labeling(data, reference, inside, there, codes, options.clusterer)
        moving = labeling.pseudo.dataset
    else:
        moving = inside if data.complete else inside.subset(data.labeled)
    result = task.flow(moving, scored=labeling is None)
    follow = task.follower(result)
    flowed = result.dataset if len(moving) == len(data) else _carry_rest(inside, result, follow)
    matching, answers = task.read(result.dataset), task.ask(flowed.samples)
    if labeling is None:
        predictions = _predictions(matching, answers)
        accuracy, history = _accuracy(predictions, data), result.metrics.get("accuracy", [])
    else:
        predictions, accuracy, history = _classes(answers, there), None, []
    return Repurposed(
        predictions,
        answers,
        flowed,
        matching,
        accuracy,
        history,
        result,
        follow,
        labeling,
        model,
        task,
    )


def _compare(task: _Task, labeled: LabeledDataset) -> Comparison:
    """Another flow with most of the labels, and all ways on the rest of them."""
    y = labeled.y.cpu().numpy()
    aside = folds_of(y, _ASIDE) == 0
    aside &= np.isin(y, y[~aside])  # a class that nobody has seen would say nothing of the ways
    if len(labeled) < _LEAST or not aside.any():
        return too_few(len(labeled))
    part, test = labeled.subset(~aside), labeled.subset(aside)
    result = task.flow(part, scored=False)
    follow = task.follower(result)
    carried = task.ask(task.carried(follow, test.samples))
    found = {
        FLOW: task.read(result.dataset).predict(carried, unknown=None),
        NO_FLOW: task.read(part).predict(task.ask(test.samples), unknown=None),
    }
    if isinstance(follow, EntropicMap):
        found[POSTERIOR] = _likely(follow, test.samples)
    return compared(found, test.labels)


def _sides(shape: tuple[int, ...]) -> list[int]:
    """The sides of samples, without axes of one."""
    return [side for side in shape if side != 1]


def _likely(follow: EntropicMap, samples: Any) -> list[Hashable]:
    rows = torch.as_tensor(follow.posterior(samples)).argmax(dim=1)
    return [follow.classes_[code] for code in rows.tolist()]


def _classes(answers: np.ndarray, reference: LabeledDataset) -> list[Hashable]:
    return [reference.classes[code] for code in answer_codes(answers, reference.classes)]


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

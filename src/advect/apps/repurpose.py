"""Classify data with a frozen model of other data: the data flows to the data of the model (paper, section
6.3).

The model is queried and never changed. Labels of the data are used where they are known, pseudo-labels
where none are; a map is applied to samples without labels and to new samples.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import Progress, Result, Table, check_known, defaults, refuse_if
from advect.apps.models import (
    ANSWERS,
    Labeling,
    answer_codes,
    choose_labeling,
    encoded,
    query,
)
from advect.apps.training import Choice, FlowOptions, folds_of, sample_figures
from advect.classes.embedding import called
from advect.classes.matching import ClassMatching
from advect.cost import LabelCost
from advect.data import LabeledDataset, require_classes, require_labels
from advect.data.size import refuse_large
from advect.flows.loop import Callback, FlowResult
from advect.maps import EntropicMap
from advect.maps.base import check_columns
from advect.ot import Solver
from advect.spaces.feature_space import as_dataset
from advect.transport.transport import check_dataset

FLOW, NO_FLOW, POSTERIOR = "flow", "no flow", "posterior"
_METHODS = (NO_FLOW, POSTERIOR, FLOW)  # the simplest first: of equally good ones it is recommended
_ADVICE = {
    FLOW: "Flow, then apply the model",
    NO_FLOW: "Do not flow: use the predictions of the model with the class matching",
    POSTERIOR: "Do not flow: use the posterior of the map, without the model",
}
_HELD_OUT = 5  # every fifth labeled sample is held out for the comparison
_MIN_LABELS = 10  # labeled samples for a comparison


def compared(answers: Mapping[str, Sequence[Hashable]], truth: Sequence[Hashable]) -> Choice:
    """The accuracies of methods, and the simplest one within a standard error of the best.

    The error counts two more right and two more wrong answers (Agresti and Coull 1998).

    Example:
        >>> compared({"flow": ["a", "b"], "no flow": ["a", "a"]}, ["a", "b"]).accuracies
        {'no flow': 0.5, 'flow': 1.0}
    """
    n = len(truth)
    right = {method: _accuracy(answers[method], truth) for method in _METHODS if method in answers}
    best = max(right.values())
    share = (best * n + 2) / (n + 4)
    error = math.sqrt(share * (1 - share) / n)
    chosen = next(method for method in right if right[method] >= best - error)
    figures = ", ".join(f"{method} {value:.1%}" for method, value in right.items())
    reason = f"{_ADVICE[chosen]} (accuracy on {n} held-out samples: {figures})."
    return Choice(chosen, right, n, reason)


@dataclass(frozen=True, eq=False)
class _Task:
    """A model, the reference in the space of the flow, and the maps to that space."""

    model: Any
    encoder: Any
    shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    reference: LabeledDataset
    options: FlowOptions
    posterior: str

    def encoded(self, samples: Any) -> Any:
        """New samples unchanged, or their features if these flow."""
        check_columns(samples, self.columns)
        with suppress(AttributeError):  # a dataset
            samples = samples.samples
        shape = tuple(getattr(samples, "shape", ()))[1:]
        if [side for side in shape if side != 1] == [side for side in self.shape if side != 1]:
            samples = samples.reshape(len(samples), *self.shape)  # a channel axis more or less
        if self.encoder is None:
            return samples
        values = as_dataset(samples).samples.detach()
        refuse_if(
            tuple(values.shape[1:]) not in (self.shape, (math.prod(self.shape),)),
            f"samples must have the shape of the data, {self.shape}",
            f"shape {tuple(values.shape)}",
            "Transform them first.",
        )
        return called(self.encoder, values.reshape(len(values), *self.shape), "encoder")

    def flow(self, data: LabeledDataset) -> tuple[FlowResult, EntropicMap]:
        """The flow of data to the reference, and a map for other samples."""
        result = self.options.flow(data, self.reference)
        return result, self.options.map(self.posterior).fit(result)

    def ask(self, samples: Any) -> np.ndarray:
        """The model's answers for samples of the flow's space."""
        values = as_dataset(samples).samples.detach()
        refuse_if(
            values[:1].numel() not in (0, self.reference.dim),
            f"samples must have {self.reference.dim} features",
            f"shape {tuple(values.shape)}",
            "Use ad.harmonize first.",
        )
        return query(self.model, values.reshape(len(values), *self.reference.sample_shape))


@dataclass(frozen=True, eq=False)
class Repurposed(Result):
    """Predictions of a frozen model on other data, of ``ad.apps.repurpose``.

    Attributes:
        predictions: for each sample a class of the data, or of the model where the data has no
            labels; None where the model's answer has no samples in the reference.
        answers: the model's answers on the flowed samples, (n, k) probabilities or n labels.
        flowed: the data, or its features, at the end of the flow.
        matching: of the data's classes with the model's.
        accuracy: on the labels that the flow used; None without labels. ``comparison`` says how well
            new samples are classified.
        result: the flow.  map: the map for new samples.
        labeling: the substitute labels and the reason, if the data has no labels.
    """

    title = "Frozen model on other data"
    predictions: list[Hashable]
    answers: np.ndarray
    flowed: LabeledDataset
    matching: ClassMatching
    accuracy: float | None
    result: FlowResult
    map: EntropicMap
    labeling: Labeling | None
    _task: _Task = field(repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.comparison.reason,) if "comparison" in vars(self) else ()

    @property
    def settings(self) -> dict[str, Any]:
        return self.result.settings

    def _summary(self) -> dict[str, Any]:
        counts = {"samples": len(self.predictions), "classes": len(self.matching.coupling.rows)}
        if self.labeling is None:
            return {**counts, "accuracy on the labels of the flow": self.accuracy}
        return {**counts, "labels": self.labeling.kind, "agreement (κ)": self.labeling.agreement}

    def _tables(self) -> list[Table]:
        rows = [[str(a), str(b)] for a, b in self.matching.hard.items()]
        tables = self.comparison._tables() if "comparison" in vars(self) else []
        return [*tables, Table("Class matching", ("class of the data", "class of the model"), rows)]

    def figures(self) -> dict[str, Any]:
        ends, viz = [self.result.source, self.result.dataset], import_module("advect.viz")
        return sample_figures("Samples before and after the flow", ends, ["before", "after"]) | {
            "Class matching": viz.class_table(self.matching),
            "Objective of the flow": viz.curves(self.result),
        }

    @cached_property
    def comparison(self) -> Choice:
        """Accuracy on held-out labels with the flow, without it, and by the map's posterior alone.

        The first use runs another flow, with four fifths of the labels.
        """
        if self.labeling is not None:
            method = NO_FLOW if self.labeling.kind == ANSWERS else FLOW
            return Choice(method, {}, 0, self.labeling.advice)
        return _compare(self._task, self.result.source)

    def predict(self, samples: Any, method: str = FLOW) -> list[Hashable]:
        """Predict the classes of new samples, in the space of the data.

        Method ``"flow"`` applies the map and then the model, ``"no flow"`` applies the model directly,
        ``"posterior"`` uses the posterior of the map, ``"recommended"`` is the method that ``comparison``
        recommends.
        """
        check_known("method", method, (*_METHODS, "recommended"))
        method = self.comparison.method if method == "recommended" else method
        points, blind = self._task.encoded(samples), self.labeling is not None
        if method == POSTERIOR:
            names = _most_likely(self.map, points)
            return [self.matching.hard[name] for name in names] if blind else names
        answers = self._task.ask(self.map.transform(points) if method == FLOW else points)
        if blind:
            return _class_names(answers, self._task.reference)
        if method == FLOW:
            return _predictions(self.matching, answers)
        matching = ClassMatching.between(self.result.source, self._task.reference)
        return _predictions(matching, answers)


def repurpose(
    model: Any,
    reference: LabeledDataset,
    data: LabeledDataset,
    *,
    encoder: Any = None,
    posterior: str = "particles",
    n_steps: int = defaults.USE.n_steps,
    step_size: float = defaults.USE.step_size,
    label_weight: float = defaults.USE.label_weight,
    label: LabelCost | None = None,
    solver: Solver | None = None,
    bounds: tuple[float, float] | None = None,
    max_samples: int | None = None,
    progress: Progress = None,
    callbacks: Sequence[Callback] = (),
) -> Repurposed:
    """Classify data with a frozen model of other data, by moving the data to the model.

    The data flows to a sample of what the model was trained on. The model classifies it there, and its
    answers are translated into classes of the data. ``comparison`` says whether the flow improves the accuracy.

    Args:
        model: a torch module, a scikit-learn estimator, or a function from samples to class names or
            scores in the order of the reference's classes.
        reference: a labeled sample of what the model was trained on.
        data: what to classify, in the same feature space (``ad.harmonize``): labeled, partly labeled
            or unlabeled.
        encoder: a torch module or a function that computes features
            (n, k). The features flow instead of the samples, and the model answers for features.
            Of an ``nn.Sequential``, pass ``encoder=network[:9]`` and ``model=network[9:]``.
        posterior: as for ``ad.maps.EntropicMap``; ``"mean"`` is best with a few hundred labels.
        n_steps, step_size: Euler steps of the flow.
        label_weight: weight of the label cost.
        label: the label cost; ``Bures(diagonal=True)`` and ``MeansOnly()`` are faster.
        solver: solver of the transport problems.
        bounds: range of what flows, for instance (0, 1) for images. What is None is chosen from the
            data, as in ``ad.flow(data, reference)``; ``settings`` has the choices.
        max_samples: largest number of samples of the reference and of those that flow, above which an
            error is raised at once; by default what takes about a minute.
        progress: None shows long flows on stderr, False is silent, a function gets (done, total).
        callbacks: callbacks of the flow, as for ``ad.flow``.

    Example:
        >>> import advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=120&seed=1")
        >>> data = reference.replace(x=reference.x * 0.5 + 20, classes=("x", "y", "z"))
        >>> nearest = lambda x: (x[:, None] - reference.laws().means).square().sum(2).argmin(1)
        >>> found = ad.apps.repurpose(nearest, reference, data)
        >>> found.accuracy, found.predict(data.x[:2]) == data.labels[:2]
        (1.0, True)
        >>> found.comparison.accuracies["flow"]
        1.0
    """
    check_dataset("data", data)
    require_classes(check_dataset("reference", reference), "the reference of a model")
    require_labels(reference, "the reference of a model")
    EntropicMap(posterior=posterior)  # an unknown name fails before a long flow
    sizes = int(data.labeled.sum()) or len(data), len(reference)
    if solver is None or not solver.stochastic:
        refuse_large("a flow", sizes, "flow", max_samples)
    options = FlowOptions(
        n_steps, step_size, label_weight, label, solver, bounds, progress, callbacks, max(sizes)
    )
    there, start = encoded(reference, encoder), encoded(data, encoder)
    task = _Task(model, encoder, data.sample_shape, data.columns, there, options, posterior)
    task.ask(there.samples[:1])  # a model that fails does so before a long flow
    labeling, labeled = None, data.labeled
    if not bool(labeled.any()):
        codes = answer_codes(task.ask(start.samples), reference.classes)
        labeling = choose_labeling(data, reference, start, there, codes)
    moving = start.subset(labeled) if labeling is None else labeling.dataset
    result, fitted = task.flow(moving)
    flowed = result.dataset
    if len(moving) < len(data):  # the labeled part has flowed, the map moves the rest
        x = torch.empty_like(start.x)
        rest: Tensor = torch.as_tensor(fitted.transform(start.samples[~labeled]))
        x[labeled], x[~labeled] = flowed.x.to(x.dtype), rest.reshape(len(rest), -1).to(x)
        flowed = start.replace(x=x)
    matching = ClassMatching.between(result.dataset, there)
    answers = task.ask(flowed.samples)
    if labeling is None:
        predictions = _predictions(matching, answers)
        accuracy = _accuracy(predictions, data.labels)
    else:
        predictions, accuracy = _class_names(answers, reference), None
    return Repurposed(
        predictions, answers, flowed, matching, accuracy, result, fitted, labeling, task
    )


def _compare(task: _Task, labeled: LabeledDataset) -> Choice:
    """Another flow with four fifths of the labels, and all methods on the others."""
    y = labeled.y.cpu().numpy()
    aside = folds_of(y, _HELD_OUT) == 0
    aside &= np.isin(y, y[~aside])  # a class that no method has seen does not distinguish them
    if len(labeled) < _MIN_LABELS or not aside.any():
        too_few = f"Methods cannot be compared: {len(labeled)} labeled samples are too few."
        return Choice(FLOW, {}, 0, too_few)
    part, test = labeled.subset(~aside), labeled.subset(aside)
    result, fitted = task.flow(part)
    answers = {POSTERIOR: _most_likely(fitted, test.samples)}
    for method, data, samples in (
        (FLOW, result.dataset, fitted.transform(test.samples)),
        (NO_FLOW, part, test.samples),
    ):
        matching = ClassMatching.between(data, task.reference)
        answers[method] = matching.predict(task.ask(samples), unknown=None)
    return compared(answers, test.labels)


def _most_likely(fitted: EntropicMap, samples: Any) -> list[Hashable]:
    rows = torch.as_tensor(fitted.posterior(samples)).argmax(dim=1)
    return [fitted.classes_[code] for code in rows.tolist()]


def _class_names(answers: np.ndarray, reference: LabeledDataset) -> list[Hashable]:
    return [reference.classes[code] for code in answer_codes(answers, reference.classes)]


def _predictions(matching: ClassMatching, answers: np.ndarray) -> list[Hashable]:
    predictions = matching.predict(answers, unknown=None)
    if unknown := predictions.count(None):
        warnings.warn(
            f"the prediction is None for {unknown} of {len(predictions)} samples: the model predicted a "
            "class without samples in the reference. Add samples of this class.",
            stacklevel=3,
        )
    return predictions


def _accuracy(predictions: Sequence[Hashable], truth: Sequence[Hashable]) -> float:
    """The share of right predictions where the truth is known."""
    pairs = zip(predictions, truth, strict=True)
    return float(np.mean([guess == name for guess, name in pairs if name is not None]))

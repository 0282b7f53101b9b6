"""Methods that enlarge a few target samples with a source dataset, and the choice among them.

A method is a function of a ``Task`` that returns more samples under the target's classes, or None.
``METHODS`` has them by name; a new one is a function and an entry there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.apps.borrowing import borrow
from advect.apps.training import (
    Choice,
    Classifier,
    FlowOptions,
    fit_on,
    half_and_half,
    predicted,
    renamed,
)
from advect.classes.matching import ClassMatching
from advect.data.dataset import LabeledDataset
from advect.data.labels import estimated_laws

_N_FOLDS = 3
_PRIOR_GAIN = 0.02  # expected lead of the first method, and the standard deviation of this lead
_MANY_SHOTS = 30  # samples per class from which the source is not expected to help
_CLEAR = 1.5  # standard errors after which the prior no longer counts


@dataclass(frozen=True, eq=False)
class Task:
    """A source and a few target samples, all labeled; methods draw n samples."""

    source: LabeledDataset
    few: LabeledDataset
    classifier: Classifier
    options: FlowOptions
    n: int
    seed: int = 0

    @property
    def same_names(self) -> bool:
        """Whether the source has all classes of the few by name."""
        return all(self.source.counts.get(name, 0) for name in present(self.few))

    @cached_property
    def class_map(self) -> dict[Hashable, Hashable]:
        """From source classes to target classes: by name, or by a classifier of the source."""
        if self.same_names:
            return {name: name for name in present(self.few)}
        model = self.classifier(self.seed)
        fit_on(model.fit, self.source.balanced())
        return match_by_votes(self.source, self.few, predicted(model, self.few.samples))


def present(data: LabeledDataset) -> list[Hashable]:
    """The classes that have samples."""
    return [name for name, count in data.counts.items() if count]


def match_by_votes(
    source: LabeledDataset, few: LabeledDataset, answers: Tensor
) -> dict[Hashable, Hashable]:
    """Match source classes to target classes one to one, so that most answers (positions of source
    classes for the few samples) are right. Distances of class means break ties.
    """
    from scipy.optimize import linear_sum_assignment

    votes = np.zeros((len(few.classes), len(source.classes)))
    np.add.at(votes, (few.y.cpu().numpy(), answers.numpy()), 1)
    votes /= votes.sum(axis=1, keepdims=True).clip(1)
    means, others = (estimated_laws(part).means.cpu().double() for part in (few, source))
    apart = torch.cdist(means, others).numpy()
    cost = apart / apart.max().clip(np.finfo(float).tiny) / len(few.classes) - votes
    rows, columns = ([data.classes.index(n) for n in present(data)] for data in (few, source))
    pairs = zip(*linear_sum_assignment(cost[np.ix_(rows, columns)]), strict=True)
    class_map = {source.classes[columns[b]]: few.classes[rows[a]] for a, b in pairs}
    return {name: class_map[name] for name in source.classes if name in class_map}


def _borrowed(task: Task, **options: Any) -> LabeledDataset:
    """The few samples with residuals of the matched source classes."""
    generator = torch.Generator().manual_seed(task.seed)
    data = borrow(task.source, task.few.balanced(), task.n, generator, **options)
    bounds = task.options.bounds
    return data if bounds is None else data.replace(x=data.x.clamp(*bounds))


def _mixed(task: Task) -> LabeledDataset:
    """The few samples with residuals of the two nearest source classes."""
    return _borrowed(task, matching=ClassMatching.nearest(task.few, task.source, 2))


def _calibrated(task: Task) -> LabeledDataset:
    """Residuals of matched classes around likely means, proportional if no feature is negative."""
    signed = any(bool((part.x < 0).any()) for part in (task.source, task.few))
    return _borrowed(task, calibrated=True, proportional=not signed)


def _source(task: Task) -> LabeledDataset:
    """The source itself under the target's classes."""
    data = renamed(task.source, task.class_map, task.few.classes)
    return data.subset(data.labeled).balanced()


def _final(task: Task) -> LabeledDataset:
    """The end of the flow of the source to the few samples."""
    state = task.options.flow(task.source, task.few).dataset
    return renamed(state, ClassMatching.between(state, task.few).hard, task.few.classes)


METHODS: dict[str, Callable[[Task], LabeledDataset | None]] = {
    "shots": lambda task: None,  # the few samples alone
    "borrowed": _borrowed,
    "mixed": _mixed,
    "calibrated": _calibrated,
    "final": _final,
    "source": _source,
    "source + borrowed": lambda task: half_and_half(_source(task), _borrowed(task)),
}
_USES_SOURCE_CLASSES = ("source", "source + borrowed")


def choose(task: Task, among: Collection[str]) -> Choice:
    """Choose a method by cross-validation on the few samples.

    The first method is expected to lead by 2 ± 2 points of accuracy, as on other datasets; held-out
    samples are weighed against that. A method that uses source classes goes first if they have the
    target's names and a classifier of the source recognizes the few samples. With thirty samples of
    each class, ``shots`` goes first. With one sample of a class none can be held out, and the first
    method is chosen.
    """
    methods = list(among)
    if len(methods) == 1:
        return Choice(methods[0], {}, 0, f"{methods[0]} is the only method given")
    uses_source = [method for method in methods if method in _USES_SOURCE_CLASSES]
    n_shots = min(task.few.counts[name] for name in present(task.few))
    first, why_first = methods[0], ""
    if n_shots >= _MANY_SHOTS and "shots" in methods:
        first = "shots"
    elif uses_source and task.same_names and _recognizes(task):
        first, why_first = uses_source[0], "; the source has the target's classes by name"
    if n_shots == 1:
        reason = f"{first}: with one sample of a class none can be held out{why_first}"
        return Choice(first, {}, 0, reason)
    best = _best(_on_folds(task, [first, *(method for method in methods if method != first)]))
    return replace(best, reason=best.reason + why_first) if best.method == first else best


def _recognizes(task: Task) -> bool:
    """Whether a classifier of the source is better on the few than halfway from chance to 1."""
    model = task.classifier(task.seed)
    fit_on(model.fit, _source(task))
    correct = (predicted(model, task.few.samples) == task.few.y.cpu()).double().mean()
    return float(correct) > (1 + 1 / len(present(task.few))) / 2


def _on_folds(task: Task, methods: list[str]) -> dict[str, list[bool]]:
    """For each method, whether held-out samples were classified correctly."""
    n_folds = min(_N_FOLDS, int(min(filter(None, task.few.counts.values()))))
    members = torch.nn.functional.one_hot(task.few.y)  # each class is spread evenly over the folds
    folds = ((members.cumsum(dim=0) - 1) * members).sum(dim=1) % n_folds
    correct: dict[str, list[bool]] = {method: [] for method in methods}
    for fold in range(n_folds):
        fold_task = replace(task, few=task.few.subset(folds != fold))
        held_out = task.few.subset(folds == fold)
        for method in methods:
            model = task.classifier(task.seed)
            fit_on(model.fit, half_and_half(fold_task.few, METHODS[method](fold_task)))
            correct[method] += (predicted(model, held_out.samples) == held_out.y.cpu()).tolist()
    return correct


def _best(correct: dict[str, list[bool]]) -> Choice:
    """The method with the highest expected accuracy, given the expected lead of the first."""
    methods = list(correct)
    accuracies = {method: float(np.mean(correct[method])) for method in methods}
    best, n = methods[0], len(correct[methods[0]])
    for method in sorted(methods[1:], key=lambda method: -accuracies[method]):
        gain = np.subtract(correct[method], correct[best], dtype=float)
        error = gain.std() / np.sqrt(n)
        # posterior mean of a gain with prior N(−g, g²), observed with this error, is above 0
        if gain.mean() > min(error**2 / _PRIOR_GAIN, _CLEAR * error):
            best = method
            break
    reason = f"{best} classifies {accuracies[best]:.1%} of {n} held-out target samples correctly"
    return Choice(best, accuracies, n, reason)

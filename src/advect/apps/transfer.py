"""Training sets from a few samples of a target and many of a source (paper, section 6.2).

The paper flows the source to the few samples. With k samples of each class the flow ends on these, and
what a learner lacks is how a class varies. So ``transfer`` also has other methods
(``advect.apps.few_shot``) and chooses among them by cross-validation on the few samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import torch

from advect._util import (
    Progress,
    Result,
    Table,
    check_count,
    check_known,
    defaults,
    one_or_more,
    refuse_if,
)
from advect.apps.few_shot import METHODS, Task, present, relabeled_source
from advect.apps.training import (
    Choice,
    Classifier,
    FlowOptions,
    Logistic,
    check_one_space,
    fit_on,
    folds_of,
    half_and_half,
    joined,
    predicted,
    renamed,
    sample_figures,
)
from advect.classes.matching import ClassMatching
from advect.cost import LabelCost
from advect.data import LabeledDataset, require_classes, require_labels
from advect.flows.callbacks import Recorder
from advect.flows.choices import image_range
from advect.flows.loop import Callback, FlowResult
from advect.maps.base import Map
from advect.ot import Relative, Sinkhorn, Solver
from advect.transport.transport import check_dataset

_SOLVER = Sinkhorn(Relative(defaults.FEW.epsilon), tol=defaults.FEW.tol)
_N_FOLDS = 3
_PRIOR_GAIN = 0.02  # expected lead of the first method, and the standard deviation of this lead
_MANY_SHOTS = 30  # samples per class from which the source is not expected to help
_CLEAR = 1.5  # standard errors after which the prior no longer counts
_USES_SOURCE_CLASSES = ("source", "source + borrowed")


@dataclass(frozen=True, eq=False)
class Transferred(Result):
    """Training sets under the target's labels, of ``ad.apps.transfer``.

    Attributes:
        recommended: the few samples and what the chosen method adds, with weights: to train on.
        added: what it adds; None if the few samples alone did best.
        choice: the chosen method, and why.
        few, source: the datasets that were given.
    """

    title = "Training set for a few samples"
    recommended: LabeledDataset
    added: LabeledDataset | None
    choice: Choice
    few: LabeledDataset
    source: LabeledDataset = field(repr=False)
    options: FlowOptions = field(repr=False)
    every: int = field(repr=False)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.choice.notes)

    @property
    def settings(self) -> dict[str, Any]:
        return {"flow": repr(self.options)}

    def _summary(self) -> dict[str, Any]:
        added = 0 if self.added is None else len(self.added)
        counts = {"few samples": len(self.few), "source samples": len(self.source)}
        return {"method": self.choice.method, **counts, "added samples": added}

    def _tables(self) -> list[Table]:
        after = self.recommended.counts
        rows = [[str(name), count, after[name]] for name, count in self.few.counts.items()]
        counts = Table("Samples of each class", ("class", "few", "recommended"), rows)
        return [*self.choice._tables(), counts]

    def figures(self) -> dict[str, Any]:
        figures = {}
        if self.added is not None:
            figures |= sample_figures("Added samples", [self.added], ["added"])
        if "result" in vars(self):  # the flow has run
            figures["Objective of the flow"] = import_module("advect.viz").curves(self.result)
        return figures

    @cached_property
    def result(self) -> FlowResult:
        """The flow of the source to the few samples."""
        return self.options.flow(self.source, self.few, [Recorder(every=self.every)])

    @cached_property
    def matching(self) -> ClassMatching:
        """The class matching of the flowed source with the few samples."""
        return ClassMatching.between(self.result.dataset, self.few)

    @cached_property
    def final(self) -> LabeledDataset:
        """The source at the end of the flow."""
        return self.relabeled(self.result.dataset)

    @cached_property
    def path(self) -> LabeledDataset:
        """The recorded states of the flow after the first, joined: z_1 … z_T of the paper."""
        frames = {frame.index: frame.dataset for frame in self.result.trajectory if frame.index > 0}
        frames |= {self.result.n_steps: self.result.dataset}
        return joined([self.relabeled(frame) for frame in frames.values()])

    @cached_property
    def map(self) -> Map:
        """An entropic map fitted on the flow, for more samples of the source."""
        return self.options.map().fit(self.result)

    def relabeled(self, data: LabeledDataset) -> LabeledDataset:
        """Data of the source's classes under the target's classes, by the matching of the flow."""
        return renamed(data, self.matching.hard, self.few.classes)


def transfer(
    source: LabeledDataset,
    few: LabeledDataset,
    *,
    methods: str | Sequence[str] = ("calibrated", "shots", "source + borrowed"),
    n: int | None = None,
    classifier: Classifier = Logistic,
    seed: int = 0,
    n_steps: int = defaults.FEW.n_steps,
    step_size: float = defaults.FEW.step_size,
    label_weight: float = defaults.FEW.label_weight,
    label: LabelCost | None = None,
    solver: Solver | None = _SOLVER,
    bounds: tuple[float, float] | None = None,
    every: int = 10,
    max_samples: int | None = None,
    progress: Progress = None,
    callbacks: Sequence[Callback] = (),
) -> Transferred:
    """Make a training set for a few labeled target samples from a large source dataset.

    Several methods enlarge the few samples with the source. Cross-validation on the few samples
    chooses one. Use it with one to thirty labels of each class; it helps most in the features of a
    network, where classes of different datasets vary alike.

    Args:
        source: many labeled samples of another task, in the same feature space (``ad.harmonize``).
        few: the target samples.
        methods: methods to choose from; the first is preferred unless another is better. ``"shots"``: the
            few samples alone; ``"borrowed"``: residuals of matched source classes around them;
            ``"calibrated"``: the same around more likely class means; ``"source"``: the source under the
            target's classes, if it has classes of these names; ``"source + borrowed"``: both; ``"final"``:
            the end of a flow to the few.
        n: how many samples a method draws; by default as many as the source has.
        classifier: a function from a seed to a trainer with ``fit(x, y)`` and ``predict(x)`` on
            tensors, to compare methods by. By default logistic regression.
        seed: seed for sampling.
        n_steps, step_size: Euler steps of the flow.
        label_weight: weight of the label cost. Few samples say little about their class, so it is
            larger than elsewhere, and the solver's epsilon is smaller.
        label: the label cost, chosen from the data if None, as in ``ad.flow(source, few)``;
            ``Bures(diagonal=True)`` and ``MeansOnly()`` are faster.
        solver: solver of the transport problems.
        bounds: range of the features; by default that of the pixels, if samples are images.
        every: ``path`` has the states at multiples of this step.
        max_samples: as for ``ad.flow(source, few)``: the flow uses a draw of the source if it would take
            longer than a minute.
        progress: None shows long flows on stderr, False is silent, a function gets (done, total).
        callbacks: callbacks of the flow, as for ``ad.flow``.

    Returns:
        A ``Transferred`` result: ``recommended`` is the training set, ``choice`` the method. The
        paper's forms are ``final``, ``path`` and ``map``; the first use of one runs the flow.

    Example:
        >>> import torch, advect as ad
        >>> generator = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(90, generator=generator)
        >>> target = ad.datasets.gaussians(90, shift=(9.0, 0.0), generator=generator)
        >>> few = target.replace(classes=("a", "b", "c")).sample(6, balanced=True, generator=generator)
        >>> made = ad.apps.transfer(source, few)
        >>> made.choice.method, len(made.recommended), made.recommended.classes
        ('calibrated', 96, ('a', 'b', 'c'))
        >>> len(made.path)
        270
    """
    names = one_or_more(methods)
    refuse_if(not names, "methods must not be empty", "none", f"Pass some of {', '.join(METHODS)}.")
    for method in names:
        check_known("method to enlarge a few samples", method, METHODS)
    check_count("n", 1 if n is None else n)
    check_count("seed", seed, least=0)
    check_count("every", every)
    refuse_if(
        not callable(classifier),
        "classifier must be a function from a seed to a new trainer",
        type(classifier).__name__,
        "Pass for instance classifier=lambda seed: KNeighborsClassifier(1).",
    )
    for name, data in {"few": few, "source": source}.items():
        check_one_space(name, check_dataset(name, data), few)
        require_classes(data, "transfer")
        require_labels(data, "transfer")
    options = FlowOptions(
        n_steps,
        step_size,
        label_weight,
        label,
        solver,
        bounds or image_range(source, few),
        progress,
        callbacks,
        max_samples,
    )
    many = source.subset(source.weights > 0).to(few.x.device, few.x.dtype)
    task = Task(many, few.subset(few.weights > 0), classifier, options, n or len(many), seed)
    choice = choose(task, names)
    added = METHODS[choice.method](task)
    return Transferred(half_and_half(few, added), added, choice, few, source, options, every)


def choose(task: Task, methods: Sequence[str]) -> Choice:
    """Choose a method by cross-validation on the few samples.

    The first method is expected to lead by 2 ± 2 points of accuracy, as on other datasets; held-out
    samples are weighed against that. A method that uses source classes goes first if they have the
    target's names and a classifier of the source recognizes the few samples; it is left out if the
    source lacks one of these names. With thirty samples of each class, ``shots`` goes first. With one
    sample of a class none can be held out, and the first method is chosen.
    """
    uses_source = [method for method in methods if method in _USES_SOURCE_CLASSES]
    if not task.same_names:
        methods = [method for method in methods if method not in uses_source]
        refuse_if(
            not methods,
            "the source must have all classes of few",
            "other class names",
            "Rename its classes, or pass another method.",
        )
    if len(methods) == 1:
        return Choice(methods[0], {}, 0, f"{methods[0]} is the only method given")
    n_shots = min(task.few.counts[name] for name in present(task.few))
    first, why_first = methods[0], ""
    if n_shots >= _MANY_SHOTS and "shots" in methods:
        first = "shots"
    elif uses_source and task.same_names and _recognizes(task):
        first, why_first = uses_source[0], "; the source has the target's classes by name"
    if n_shots == 1:
        reason = f"{first}: no sample can be held out of a class with one sample{why_first}"
        return Choice(first, {}, 0, reason)
    best = _best(_on_folds(task, [first, *(method for method in methods if method != first)]))
    return replace(best, reason=best.reason + why_first) if best.method == first else best


def _recognizes(task: Task) -> bool:
    """Whether a classifier of the source is better on the few than halfway from chance to 1."""
    model = task.classifier(task.seed)
    fit_on(model.fit, relabeled_source(task))
    correct = (predicted(model, task.few.samples) == task.few.y.cpu()).double().mean()
    return float(correct) > (1 + 1 / len(present(task.few))) / 2


def _on_folds(task: Task, methods: list[str]) -> dict[str, list[bool]]:
    """For each method, whether held-out samples were classified correctly."""
    n_folds = min(_N_FOLDS, int(min(filter(None, task.few.counts.values()))))
    folds = torch.as_tensor(folds_of(task.few.y.cpu().numpy(), n_folds))
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

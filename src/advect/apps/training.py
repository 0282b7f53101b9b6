"""Shared by the applications: trainers, weighted training sets, and the flow to another dataset.

A trainer has ``fit(x, y)`` and ``predict(x)`` on samples in their shape and on positions of classes.
Where ``fit`` takes ``sample_weight``, samples count by their weights.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import (
    Progress,
    Result,
    Table,
    check_count,
    check_non_negative,
    check_positive,
    refuse_if,
    track,
)
from advect.cost import LabelCost, check_features
from advect.data import LabeledDataset, memberships
from advect.flows.choices import image_range
from advect.flows.dynamics import Bounds, FeatureDriven, as_bounds
from advect.flows.integrators import Euler
from advect.flows.loop import Callback, FlowResult, flow
from advect.maps import EntropicMap
from advect.ot import Sinkhorn, Solver
from advect.spaces.images import layout

Classifier = Callable[[int], Any]  # from a seed to a new trainer


class Logistic:
    """Multinomial logistic regression on features in units of their common spread.

    Its ridge penalty is weighed against the effective number of samples, (Σw)²/Σw².
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed  # not used: the fit is deterministic

    def fit(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Logistic:
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression

        rows, codes = _rows(x), y.cpu().numpy()
        self.centre, self.unit = rows.mean(axis=0), float(rows.std()) or 1.0
        given = torch.ones(len(rows)) if sample_weight is None else sample_weight
        weights = given.cpu().double().numpy()
        weights = weights * (weights.sum() / np.square(weights).sum())
        several = len(np.unique(codes)) > 1
        self.model = LogisticRegression(max_iter=500) if several else DummyClassifier()
        self.model.fit((rows - self.centre) / self.unit, codes, sample_weight=weights)
        return self

    def predict(self, x: Tensor) -> np.ndarray:
        return np.asarray(self.model.predict((_rows(x) - self.centre) / self.unit))


def _rows(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().reshape(len(x), -1).numpy()


def fit_on(train: Callable[..., Any], data: LabeledDataset) -> None:
    """Train on all labeled samples, with weights where the trainer takes them."""
    labeled = data.subset(data.labeled)
    weighted = "sample_weight" in inspect.signature(train).parameters
    weights = {"sample_weight": labeled.weights * len(labeled)} if weighted else {}
    train(labeled.samples, labeled.y, **weights)


def predicted(model: Any, samples: Tensor) -> Tensor:
    """The class position of each sample."""
    answers = model.predict(samples)
    answers = np.asarray(answers.detach().cpu() if torch.is_tensor(answers) else answers)
    integers = answers.dtype.kind in "biuf" and bool((answers == np.floor(answers)).all())
    refuse_if(
        answers.shape != (len(samples),) or not integers,
        f"predict must return a class position for each of {len(samples)} samples",
        f"shape {answers.shape} of {answers.dtype}",
        "Return the integers that fit was given, for instance scores.argmax(1).",
    )
    return torch.as_tensor(answers.astype(np.int64))


def check_one_space(name: str, data: LabeledDataset, few: LabeledDataset) -> None:
    """An error if samples or columns of ``data`` and ``few`` differ."""
    refuse_if(
        data.sample_shape != few.sample_shape,
        f"{name} and few must be in one feature space",
        f"samples of shape {data.sample_shape} and {few.sample_shape}",
        "Use ad.harmonize first.",
    )
    check_features(data, few)


def joined(parts: Sequence[LabeledDataset]) -> LabeledDataset:
    """Datasets of the same classes and sample shape as one; every part counts by its number of samples.

    Example:
        >>> a = LabeledDataset([[0.0]], ["u"], classes=["u", "v"])
        >>> joined([a, LabeledDataset([[1.0], [2.0]], ["v", "u"])]).labels
        ['u', 'v', 'u']
    """
    first = parts[0]
    weights = torch.cat([part.weights.to(first.weights) * len(part) for part in parts])
    probabilities = None
    if any(part.has_soft_labels for part in parts):
        probabilities = torch.cat([memberships(part).to(first.weights) for part in parts])
    return first.replace(
        x=torch.cat([part.x.to(first.x) for part in parts]),
        y=torch.cat([part.y.to(first.y) for part in parts]),
        weights=weights / weights.sum(),
        law=None,
        law_index=None,
        probabilities=probabilities,
    )


def renamed(
    data: LabeledDataset, names: Mapping[Hashable, Hashable], classes: tuple[Hashable, ...]
) -> LabeledDataset:
    """Data under other classes; samples of classes without a new name lose their labels."""
    codes = [classes.index(names[name]) if name in names else -1 for name in data.classes]
    y = torch.tensor([*codes, -1], device=data.y.device)[data.y]  # −1, a missing label, stays −1
    return data.replace(y=y, classes=classes, law=None, law_index=None)


def folds_of(codes: np.ndarray, n_folds: int, seed: int = 0) -> np.ndarray:
    """A fold for each sample, (n,); each class is spread evenly over the folds."""
    order = np.random.default_rng(seed).permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    folds = np.empty(len(codes), dtype=np.int64)
    folds[order] = np.arange(len(codes)) % n_folds
    return folds


def half_and_half(few: LabeledDataset, others: LabeledDataset | None) -> LabeledDataset:
    """Both datasets as one, each with half of the mass."""
    if others is None or not bool(others.labeled.any()):
        return few
    data = joined([few, others.subset(others.labeled)])
    parts = data.weights.split([len(few), len(data) - len(few)])
    return data.replace(weights=torch.cat([part * (0.5 / part.sum()) for part in parts]))


@dataclass(frozen=True, eq=False)
class Choice(Result):
    """A method chosen by its accuracy on held-out samples, with the reason in one sentence.

    Attributes:
        method: the name of the method.
        accuracies: the accuracy of each method; empty if nothing could be held out.
        held_out: how many samples were held out.
        reason: one sentence.
    """

    title = "Choice of a method"
    method: str
    accuracies: dict[str, float]
    held_out: int
    reason: str

    @property
    def notes(self) -> tuple[str, ...]:
        return (self.reason,)

    def _summary(self) -> dict[str, Any]:
        return {"method": self.method, "held-out samples": self.held_out}

    def _tables(self) -> list[Table]:
        rows = list(self.accuracies.items())
        return [Table("Held-out accuracy", ("method", "accuracy"), rows)] if rows else []


@dataclass(frozen=True)
class FlowOptions:
    """How ``transfer`` and ``repurpose`` flow a dataset to another; they document the fields."""

    n_steps: int
    step_size: float
    label_weight: float
    label: LabelCost | None = None
    solver: Solver | None = None
    bounds: Bounds = None
    progress: Progress = field(default=None, repr=False)
    callbacks: Sequence[Callback] = field(default=(), repr=False)
    max_samples: int | None = None

    def __post_init__(self) -> None:
        check_count("n_steps", self.n_steps)
        check_positive("step_size", self.step_size)
        check_non_negative("label_weight", self.label_weight)
        as_bounds(self.bounds)

    def flow(
        self, data: LabeledDataset, target: LabeledDataset, callbacks: Sequence[Callback] = ()
    ) -> FlowResult:
        """Flow data to a target, both with classes of equal mass, along T(x) − x: each sample goes
        straight to its image under the transport map, and classes are not reshaped. What is not
        given is chosen from the data.
        """
        with track(self.n_steps, "flow", self.progress) as advance:
            return flow(
                data,
                target,
                dynamics=FeatureDriven(
                    through_laws=False, bounds=self.bounds or image_range(data, target)
                ),
                integrator=Euler(self.step_size),
                n_steps=self.n_steps,
                label=self.label,
                label_weight=self.label_weight,
                solver=self.solver,
                equal_mass=True,
                max_samples=self.max_samples,
                callbacks=[*callbacks, *self.callbacks, lambda step: advance(int(step.index > 0))],
            ).checked()

    def map(self, posterior: str = "particles") -> EntropicMap:
        """A map for other samples; not debiased, which was the best of all maps on held-out USPS."""
        same = {"epsilon": self.solver.epsilon} if isinstance(self.solver, Sinkhorn) else {}
        return EntropicMap(
            label_weight=self.label_weight, debias=False, posterior=posterior, **same
        )


def sample_figures(title: str, frames: Sequence[LabeledDataset], names: Sequence[str]) -> Any:
    """A figure of some samples by its title: images in rows, points of the plane in panels."""
    is_image = layout(frames[0].sample_shape) is not None
    if not is_image and frames[0].dim != 2:
        return {}
    viz = import_module("advect.viz")
    draw = viz.image_grid if is_image else viz.particles
    return {title: draw(list(frames), titles=list(names))}

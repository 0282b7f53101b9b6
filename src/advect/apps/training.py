"""Trainers as users bring them, and what they are given: ``fit(x, y)`` and ``predict(x)`` on samples in
their shape and positions of classes.

Where ``fit`` takes a ``sample_weight``, samples count by their mass. A trainer that also has
``predict_proba(x)`` is asked for that where shares say more than answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.errors import InputError

Classifier = Callable[[int], Any]  # from a seed to a new trainer


class Logistic:
    """Multinomial logistic regression on flat features in units of their common spread: the quick
    trainer that stands in where none is given.

    Beside its ridge, samples count by their effective number, (Σw)²/Σw²: ten samples that have half
    of the mass do not become thousands because thousands have the other half.

    Example:
        >>> import torch
        >>> model = Logistic().fit(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1]))
        >>> model.predict(torch.tensor([[4.9]])).tolist()
        [1]
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed  # nothing here is random; trainers are made from a seed

    def fit(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Logistic:
        from sklearn.linear_model import LogisticRegression

        rows = _rows(x)
        self.centre, self.unit = rows.mean(axis=0), float(rows.std()) or 1.0
        self.classes = np.unique(y.cpu().numpy())
        if len(self.classes) > 1:
            weights = None
            if sample_weight is not None:
                weights = sample_weight.cpu().double().numpy()
                weights = weights * (weights.sum() / np.square(weights).sum())
            self.model = LogisticRegression(max_iter=500)
            self.model.fit(self._standard(rows), y.cpu().numpy(), sample_weight=weights)
        return self

    def predict(self, x: Tensor) -> np.ndarray:
        if len(self.classes) == 1:
            return np.full(len(x), self.classes[0])
        return np.asarray(self.model.predict(self._standard(_rows(x))))

    def _standard(self, rows: np.ndarray) -> np.ndarray:
        return (rows - self.centre) / self.unit


def _rows(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().reshape(len(x), -1).numpy()


def check_classifier(classifier: Any) -> None:
    """Something that makes trainers, and is none itself."""
    if not callable(classifier):
        raise InputError(
            "classifier must be a function from a seed to a new trainer",
            type(classifier).__name__,
            "Pass for instance classifier=lambda seed: KNeighborsClassifier(1).",
        )


def fit_on(train: Callable[..., Any], data: LabeledDataset) -> None:
    """Train on all samples that have a label, by their weights where the trainer takes them."""
    known = data if data.complete else data.subset(data.labeled)
    weighted = "sample_weight" in inspect.signature(train).parameters
    weights = {"sample_weight": known.weights * len(known)} if weighted else {}
    train(known.samples, known.y, **weights)


def predicted(model: Any, samples: Tensor) -> Tensor:
    """The class position of each sample."""
    answers = model.predict(samples)
    answers = np.asarray(answers.detach().cpu() if torch.is_tensor(answers) else answers)
    whole = answers.dtype.kind in "biuf" and bool((answers == np.floor(answers)).all())
    if answers.shape != (len(samples),) or not whole:
        raise InputError(
            f"predict must give a class position for each of {len(samples)} samples",
            f"shape {answers.shape} of {answers.dtype}",
            "Return argmax(1), not scores; the positions that fit was given, not names.",
        )
    return torch.as_tensor(answers.astype(np.int64))


def score(model: Any, test: LabeledDataset) -> float:
    """The share of a test part that is named right."""
    return float((predicted(model, test.samples) == test.y.cpu()).double().mean())


def joined(parts: list[LabeledDataset]) -> LabeledDataset:
    """Datasets with the same classes one after the other, each with the same mass for each of its
    samples as before.

    Example:
        >>> import advect as ad
        >>> a = ad.LabeledDataset([[0.0]], ["u"], classes=["u", "v"])
        >>> b = ad.LabeledDataset([[1.0], [2.0]], ["v", "u"])
        >>> ad.apps.joined([a, b]).labels
        ['u', 'v', 'u']
    """
    first = parts[0]
    for part in parts:
        if part.classes != first.classes or part.sample_shape != first.sample_shape:
            raise InputError(
                "datasets to join must have the same classes and sample shape",
                f"{part.classes} of {part.sample_shape} with {first.classes} of "
                f"{first.sample_shape}",
                "Give them the same class names in the same order, and harmonize them.",
            )
    weights = torch.cat([part.weights.to(first.weights) * len(part) for part in parts])
    shares = None
    if any(part.has_doubt for part in parts):
        shares = torch.cat([part.memberships.to(first.weights) for part in parts])
    return first.replace(
        x=torch.cat([part.x.to(first.x) for part in parts]),
        y=torch.cat([part.y.to(first.y) for part in parts]),
        weights=weights / weights.sum(),
        law=None,
        law_index=None,
        probabilities=shares,
    )


def shared(
    few: LabeledDataset, others: list[LabeledDataset], few_share: float = 0.5
) -> LabeledDataset:
    """All of them, the few with their share of the mass."""
    others = [part if part.complete else part.subset(part.labeled) for part in others if len(part)]
    if not others:
        return few
    data = joined([few, *others])
    weights = data.weights.clone()
    weights[: len(few)] *= few_share / weights[: len(few)].sum()
    weights[len(few) :] *= (1 - few_share) / weights[len(few) :].sum()
    return data.replace(weights=weights)

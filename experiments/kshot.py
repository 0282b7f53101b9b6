"""What the k-shot experiments share: draws of shots, controls without transport, trainings.

Every column sees the same shots, the same test part and the same seed. The shots have half of the
mass in each column that adds something to them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lenet import lenet, train
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

import advect as ad
from advect.apps.few_shot import METHODS, Task, relabeled_source
from advect.apps.training import fit_on, half_and_half, predicted, renamed
from advect.data.dataset import LabeledDataset

SIZE = 28


@functools.cache
def images(name: str, split: str = "train") -> LabeledDataset:
    """Gray images of 28 × 28 with values in 0..1."""
    blank = LabeledDataset(torch.zeros(1, SIZE, SIZE), [0])
    return ad.harmonize(ad.datasets.load(name, split=split), blank, size=SIZE)[0].to(
        dtype=torch.float32
    )


@functools.cache
def network(source: str) -> nn.Sequential:
    """LeNet-5 trained on a source's training split, frozen."""
    found = train(images(source), seed=0)
    assert isinstance(found, nn.Sequential)
    return found


@functools.cache
def embedded(name: str, source: str, split: str = "train") -> LabeledDataset:
    """A dataset in the 120 features of a source's network, in units of their spread over the source."""
    return encoded(images(name, split), source)


def encoded(data: LabeledDataset, source: str) -> LabeledDataset:
    rows = _features(data.samples, source) / _unit(source)
    return LabeledDataset(rows, data.y, classes=data.classes, weights=data.weights)


def _features(samples: Tensor, source: str) -> Tensor:
    body = network(source)[:10]  # up to the first dense layer and its ReLU
    with torch.no_grad():
        return torch.cat([body(part.float()) for part in samples.split(500)])


@functools.cache
def _unit(source: str) -> float:
    return float(_features(images(source).samples, source).std())


def shots_of(data: LabeledDataset, shots: int, seed: int) -> LabeledDataset:
    """So many samples of each class."""
    generator = torch.Generator().manual_seed(seed)
    return data.sample(shots * len(data.classes), balanced=True, generator=generator)


def shifted(samples: Tensor, by: int, generator: torch.Generator) -> Tensor:
    """Images (n, h, w) moved by up to so many pixels each way; black comes in."""
    n, side = len(samples), samples.shape[1]
    wide = nn.functional.pad(samples, (by,) * 4)
    down, right = (torch.randint(2 * by + 1, (n, 1), generator=generator) for _ in range(2))
    grid = torch.arange(side)
    return wide[
        torch.arange(n)[:, None, None], (down + grid)[:, :, None], (right + grid)[:, None, :]
    ]


class Augmented:
    """A trainer of LeNet-5 by a number of updates, whose images are shifted as they are drawn."""

    def __init__(self, seed: int, classes: int, updates: int, shift: int, batch: int) -> None:
        torch.manual_seed(seed)
        self.seed, self.updates, self.shift, self.batch = seed, updates, shift, batch
        self.model = lenet(classes)

    def fit(self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None) -> Augmented:
        generator = torch.Generator().manual_seed(self.seed)
        weights = torch.ones(len(y)) if sample_weight is None else sample_weight
        drawn = torch.multinomial(
            weights, self.batch * self.updates, replacement=True, generator=generator
        )
        optimizer = torch.optim.Adam(self.model.train().parameters(), lr=1e-3, weight_decay=1e-6)
        for rows in drawn.split(self.batch):
            samples = x[rows].float()
            if self.shift:
                samples = shifted(samples, self.shift, generator)
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(samples), y[rows]).backward()
            optimizer.step()
        return self

    def predict(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            parts = [self.model.eval()(part.float()).argmax(dim=1) for part in x.split(500)]
        return torch.cat(parts)


def of_nets(updates: int, shift: int, batch: int, classes: int) -> Callable[[int], Augmented]:
    return lambda seed: Augmented(seed, classes, updates, shift, batch)


def copies(task: Task) -> LabeledDataset:
    """Each sample of ``final`` put back on the nearest of the few: what a flow adds beyond copies is
    what training on ``final`` gains over this.
    """
    final = METHODS["final"](task)
    assert final is not None
    nearest = torch.cdist(final.x, task.few.x.to(final.x)).argmin(dim=1)
    return final.replace(x=task.few.x[nearest].to(final.x))


def mixing(task: Task) -> LabeledDataset:
    """Shots drawn toward random samples of the source, by up to a half: no classes, no transport."""
    first, share, generator = _mix(task)
    other = torch.randint(len(task.source), (task.n,), generator=generator)
    return _samples(task, first, (1 - share) * task.few.x[first] + share * task.source.x[other])


def mixing_within(task: Task) -> LabeledDataset:
    """Shots drawn toward other shots of their class, by up to a half."""
    first, share, generator = _mix(task)
    keys = torch.rand(task.n, len(task.few), generator=generator)
    keys[task.few.y[first][:, None] != task.few.y] = -1
    other = keys.argmax(dim=1)
    return _samples(task, first, (1 - share) * task.few.x[first] + share * task.few.x[other])


def noise(task: Task) -> LabeledDataset:
    """Shots with isotropic noise that has the trace of the source's covariance within classes."""
    source, (first, _, generator) = task.source, _mix(task)
    residuals = source.x - source.laws().means.to(source.x)[source.y]
    deviation = residuals.square().mean().sqrt()
    draws = torch.randn(task.n, source.dim, generator=generator)
    return _samples(task, first, task.few.x[first] + deviation * draws)


def _mix(task: Task) -> tuple[Tensor, Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(task.seed)
    first = torch.arange(task.n) % len(task.few)
    return first, torch.rand(task.n, 1, generator=generator) / 2, generator


def _samples(task: Task, first: Tensor, x: Tensor) -> LabeledDataset:
    if task.options.bounds is not None:
        x = x.clamp(*task.options.bounds)
    weights = torch.full((len(x),), 1 / len(x), dtype=torch.float64)
    return task.few.replace(x=x, y=task.few.y[first], weights=weights)


def source_by_votes(task: Task) -> LabeledDataset:
    """The source under the target's classes: by name, or matched one to one so that a classifier of the
    source names most of the few right. Distances of class means break ties."""
    source, few = task.source, task.few
    if task.same_names:
        return relabeled_source(task)
    model = task.classifier(task.seed)
    fit_on(model.fit, source.balanced())
    votes = np.zeros((len(few.classes), len(source.classes)))
    np.add.at(votes, (few.y.numpy(), predicted(model, few.samples).numpy()), 1)
    votes /= votes.sum(axis=1, keepdims=True).clip(1)
    apart = torch.cdist(few.laws().means.double(), source.laws().means.double()).numpy()
    pairs = linear_sum_assignment(apart / apart.max() / len(few.classes) - votes)
    names = {source.classes[b]: few.classes[a] for a, b in zip(*pairs, strict=True)}
    data = renamed(source, names, few.classes)
    return data.subset(data.labeled).balanced()


CONTROLS = {
    "copies": copies,
    "mixing": mixing,
    "mixing within classes": mixing_within,
    "noise": noise,
}


def trained(
    model: Any, few: LabeledDataset, added: LabeledDataset | None, test: LabeledDataset
) -> float:
    """Accuracy on the test part after training on the few and what is added, half of the mass each."""
    fit_on(model.fit, half_and_half(few, added))
    return float((predicted(model, test.samples) == test.y.cpu()).double().mean())


def baselines(few: LabeledDataset, test: LabeledDataset) -> dict[str, float]:
    """Logistic regression and a forest on the shots alone, on features as they are."""
    from sklearn.ensemble import RandomForestClassifier

    from advect.apps.training import Logistic

    forest = RandomForestClassifier(100, random_state=0)
    forest.fit(few.x.numpy(), few.y.numpy())
    right = forest.predict(test.x.numpy()) == test.y.numpy()
    return {
        "logistic regression": trained(Logistic(), few, None, test),
        "forest": float(right.mean()),
    }

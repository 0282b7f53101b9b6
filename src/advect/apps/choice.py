"""Which way of enlarging a few samples helps, found out without any sample beyond them and the source.

With two samples of a class or more, each fold of them is held out once: a way enlarges the others, a
trainer learns that, and names those held out. With one, there is nothing to hold out. Then some
classes of the source play the target, as many samples of each as there are of the few, and the other
classes the source; and a source that has the target's classes by name is asked about the few samples
themselves, which it has not seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from advect.apps.training import fit_on, predicted, shared
from advect.apps.ways import READS_SOURCE, WAYS, Task, present
from advect.data.dataset import LabeledDataset

_FOLDS = 3
_EPISODES = 4  # plays with the source's classes
_TESTED = 300  # samples of each


@dataclass(frozen=True, eq=False)
class Choice:
    """The way of enlarging a few samples that was chosen, and what spoke for it.

    Attributes:
        way: its name.
        accuracies: the share of held-out samples that each way named right; empty where nothing could
            be held out, and the first way was taken.
        held_out: how many samples that is a share of.
        reason: in a sentence.

    Example:
        >>> import advect as ad
        >>> source = ad.datasets.load("digits", n=400)
        >>> few = ad.datasets.load("digits", n=40, seed=9, balanced=True)
        >>> found = ad.apps.transfer(source, few).choice
        >>> found.way in found.accuracies, found.held_out
        (True, 40)
    """

    way: str
    accuracies: dict[str, float]
    held_out: int
    reason: str

    def __str__(self) -> str:
        lines = [f"{way:18s} {100 * value:5.1f} %" for way, value in self.accuracies.items()]
        return "\n".join([self.reason, *lines])


Right = dict[str, list[bool]]  # for each way, whether held-out samples were named right


def choose(task: Task, among: Collection[str]) -> Choice:
    """The best of some ways for a task, by name.

    The first is the one to beat: another is taken if it names more held-out samples right by more
    than a standard error of the difference, so that chance seldom decides.
    """
    ways = list(among)
    if len(ways) == 1:
        return Choice(ways[0], {}, 0, f"{ways[0]}: nothing else was asked for")
    counts = [task.few.counts[name] for name in present(task.few)]
    if min(counts) > 1:
        right, where = _on_folds(task, ways), f"{len(task.few)} held-out samples of the few"
        return _best(right, where)
    around = [way for way in ways if way not in READS_SOURCE]
    right = _on_episodes(task, around, max(counts))
    if not right:
        return Choice(
            ways[0],
            {},
            0,
            f"{ways[0]}: with one sample of a class and fewer than four classes in the source, "
            "nothing can be held out",
        )
    found = _best(right, "samples of the source's classes, played as a target")
    named = [way for way in ways if way in READS_SOURCE]
    return _or_named(task, found, named[0]) if named and task.named_alike else found


def _best(right: Right, where: str) -> Choice:
    ways = list(right)
    accuracies = {way: float(np.mean(right[way])) for way in ways}
    best = ways[0]
    for way in sorted(ways[1:], key=lambda way: -accuracies[way]):
        gain = np.asarray(right[way], dtype=float) - np.asarray(right[best], dtype=float)
        if gain.mean() > gain.std() / np.sqrt(len(gain)):
            best = way
            break
    said = f"{best}: {accuracies[best]:.1%} of {where} named right"
    return Choice(best, accuracies, len(right[best]), said)


def _on_folds(task: Task, ways: list[str]) -> Right:
    folds = _folds(task.few.y, min(_FOLDS, int(min(filter(None, task.few.counts.values())))))
    right: Right = {way: [] for way in ways}
    for fold in range(int(folds.max()) + 1):
        part = replace(task, few=task.few.subset(folds != fold))
        _ask(part, task.few.subset(folds == fold), right)
    return right


def _folds(y: Tensor, folds: int) -> Tensor:
    """A fold for each sample, each class spread evenly over them."""
    found = torch.empty_like(y)
    for code in y.unique().tolist():
        rows = (y == code).nonzero()[:, 0]
        found[rows] = torch.arange(len(rows), device=y.device) % folds
    return found


def _on_episodes(task: Task, ways: list[str], shots: int) -> Right:
    """Plays in which half of the source's classes are the target; none without four classes that have
    more samples than shots.
    """
    source = task.source
    codes = [i for i, name in enumerate(source.classes) if source.counts[name] > shots]
    right: Right = {way: [] for way in ways}
    for episode in range(_EPISODES if len(codes) >= 4 else 0):
        generator = torch.Generator().manual_seed(task.seed + episode)
        order = torch.randperm(len(codes), generator=generator)[: len(codes) // 2]
        target = torch.isin(source.y, torch.tensor(codes, device=source.y.device)[order])
        rows = torch.randperm(len(source), generator=generator).to(target.device)
        rows = rows[target[rows]]
        taken = torch.cat(
            [rows[source.y[rows] == code][:shots] for code in source.y[rows].unique()]
        )
        rest = rows[~torch.isin(rows, taken)][:_TESTED]
        seed = task.seed + episode
        part = replace(task, source=source.subset(~target), few=source.subset(taken), seed=seed)
        _ask(part, source.subset(rest), right)
    return right if right[ways[0]] else {}


def _ask(task: Task, held: LabeledDataset, right: Right) -> None:
    for way, found in right.items():
        more = WAYS[way](task)
        model = task.classifier(task.seed)
        fit_on(model.fit, shared(task.few, [] if more is None else [more]))
        found += (predicted(model, held.samples) == held.y.cpu()).tolist()


def _or_named(task: Task, found: Choice, way: str) -> Choice:
    """The way that takes source classes for those of the same name, if the source alone names the few
    samples right more often than could be expected of what else was found."""
    more = WAYS["source"](task)
    model = task.classifier(task.seed)
    assert more is not None
    fit_on(model.fit, more)
    right = (predicted(model, task.few.samples) == task.few.y.cpu()).double()
    share, n = float(right.mean()), len(right)
    accuracies = {**found.accuracies, way: share}
    if share - found.accuracies[found.way] <= (max(share * (1 - share), 0.25 / n) / n) ** 0.5:
        return replace(found, accuracies=accuracies)
    said = (
        f"{way}: trained on the source alone, {share:.0%} of the {n} few samples were named right"
    )
    return Choice(way, accuracies, n, said)

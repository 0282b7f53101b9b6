"""Which way of enlarging a few samples helps, found out without any sample beyond them and the source.

With two samples of a class or more, each fold of them is held out once: a way enlarges the others, a
trainer learns that, and names those held out. With one, there is nothing to hold out. Then some
classes of the source play the target, as many samples of each as there are of the few, and the other
classes the source. A source that has the target's classes by name is asked about the few samples
first, which it has not seen: equal names may mean nothing."""

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
_EPISODES = 2  # plays with the source's classes
_TESTED = 300  # samples of each
_AHEAD = 0.02  # by how much the first way is expected to be ahead, and the deviation of that
_MANY = 30  # samples of each class, from which nothing is expected of other data
_SURE = 1.5  # standard errors after which nothing is expected any more


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

    The first is expected to be ahead, by 2 ± 2 points of accuracy, as on other datasets. What held-out
    samples say is weighed with that: few of them seldom change it, many do. A way that takes source
    classes for the target's is moved to the front if they have the same names, and a classifier of
    the source finds these right for the few samples: more of them than halfway from chance to all.
    With thirty samples of each class or more, ``shots`` is: they know how their classes vary.
    """
    ways = list(among)
    if len(ways) == 1:
        return Choice(ways[0], {}, 0, f"{ways[0]}: nothing else was asked for")
    named, said = [way for way in ways if way in READS_SOURCE], ""
    counts = [task.few.counts[name] for name in present(task.few)]
    if min(counts) >= _MANY and "shots" in ways:
        ways = _first("shots", ways)
    elif named and task.named_alike and _reads(task):
        ways = _first(named[0], ways)
        said = ", which has the classes of the few by name"
    if min(counts) > 1:
        where = f"{len(task.few)} held-out samples of the few"
        best = _best(_on_folds(task, ways), where)
        if not said or best.way != ways[0]:
            return best
        return replace(best, reason=f"{best.reason}; the source{said}, goes first")
    if said:
        return Choice(ways[0], {}, 0, f"{ways[0]}: the source{said}, names most of them right")
    played, shots = [way for way in ways if way not in READS_SOURCE], max(counts)
    right = _on_episodes(task, played, shots) if played else {}
    if right:
        # other classes, which features may have been made for: only a clear answer counts
        return _best(right, "samples of the source's classes, played as a target,", 3)
    why = "with one sample of a class nothing can be held out"
    if played:
        why += f", and the source has no four classes of more than {shots} to play the target"
    return Choice(ways[0], {}, 0, f"{ways[0]}: {why}")


def _first(way: str, ways: list[str]) -> list[str]:
    return [way, *(each for each in ways if each != way)]


def _reads(task: Task) -> bool:
    """Whether a classifier of the source knows the few samples by the names that they have."""
    own = WAYS["source"](task)
    assert own is not None
    model = task.classifier(task.seed)
    fit_on(model.fit, own)
    right = (predicted(model, task.few.samples) == task.few.y.cpu()).double().mean()
    return float(right) > (1 + 1 / len(present(task.few))) / 2


def _best(right: Right, where: str, errors: float = 1) -> Choice:
    """The way with the highest expected accuracy, given by how much the first should be ahead."""
    ways = list(right)
    accuracies = {way: float(np.mean(right[way])) for way in ways}
    best = ways[0]
    for way in sorted(ways[1:], key=lambda way: -accuracies[way]):
        gain = np.asarray(right[way], dtype=float) - np.asarray(right[best], dtype=float)
        error = errors * gain.std() / np.sqrt(len(gain))
        # Of a normal gain −_AHEAD ± _AHEAD, seen with this error, the mean is positive above the first
        if gain.mean() > min(error**2 / _AHEAD, _SURE * error):
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
        fit_on(model.fit, shared(task.few, [] if more is None else [more], task.few_share))
        found += (predicted(model, held.samples) == held.y.cpu()).tolist()

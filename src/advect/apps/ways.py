"""The ways in which a source dataset can enlarge a few samples of a target's classes, by name.

A way is a function of a ``Task`` that gives more samples under the target's classes. Most stay
around the few samples and take from the source only how classes vary; ``source`` takes its classes
for the target's; ``final`` and ``smoothed`` flow."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from advect.apps.carry import CarryOptions, carry
from advect.apps.training import Classifier, fit_on, predicted, shared
from advect.classes.borrowing import borrow, borrowed_laws
from advect.classes.matching import ClassMatching
from advect.data.dataset import LabeledDataset


@dataclass(frozen=True, eq=False)
class Task:
    """A source and a few target samples, all labeled, with what the ways need.

    Attributes:
        classifier: makes the trainer that reads the few samples after it has learned the source, by
            which classes are matched, and that ways are compared by.
        options: of the flows.  n: how many samples a way draws.  seed: of all draws.
        few_share: mass of the few samples beside what a way adds.
    """

    source: LabeledDataset
    few: LabeledDataset
    classifier: Classifier
    options: CarryOptions
    n: int
    seed: int = 0
    few_share: float = 0.5

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    @property
    def named_alike(self) -> bool:
        """Whether the source has all classes of the few by name."""
        return all(self.source.counts.get(name, 0) for name in present(self.few))

    @cached_property
    def meaning(self) -> dict[Hashable, Hashable]:
        """The class of the target that a class of the source stands for: that of the same name where
        all have one, else by how a classifier of the source reads the few samples.
        """
        if self.named_alike:
            return {name: name for name in present(self.few)}
        model = self.classifier(self.seed)
        fit_on(model.fit, self.source.balanced())
        return by_votes(self.source, self.few, predicted(model, self.few.samples))


def present(data: LabeledDataset) -> list[Hashable]:
    """The classes that have samples."""
    return [name for name, count in data.counts.items() if count]


def by_votes(
    source: LabeledDataset, few: LabeledDataset, answers: Tensor
) -> dict[Hashable, Hashable]:
    """Each source class with at most one class of the few, so that most of the answers, positions of
    source classes for each of the few, are right: by their share in each class of the few. Means that
    are near count as well, in all classes together at most as much as the answers of one.

    Example:
        >>> import torch, advect as ad
        >>> source = ad.LabeledDataset([[0.0], [5.0], [9.0]], ["u", "v", "w"])
        >>> few = ad.LabeledDataset([[1.0], [2.0], [6.0]], ["a", "a", "b"])
        >>> by_votes(source, few, torch.tensor([0, 0, 2]))
        {'u': 'a', 'w': 'b'}
    """
    from scipy.optimize import linear_sum_assignment

    votes = torch.zeros(len(few.classes), len(source.classes), dtype=torch.float64)
    votes.index_put_((few.y.cpu(), answers), torch.ones(len(few)).double(), accumulate=True)
    votes = votes / votes.sum(dim=1, keepdim=True).clamp_min(1)
    means, others = (part.moments().means.cpu().double() for part in (few, source))
    apart = torch.cdist(means, others)
    cost = apart / apart.max().clamp_min(torch.finfo(torch.float64).tiny) / len(few.classes) - votes
    rows = [few.classes.index(name) for name in present(few)]
    columns = [source.classes.index(name) for name in present(source)]
    first, second = linear_sum_assignment(cost[rows][:, columns].numpy())
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    found = {source.classes[columns[b]]: few.classes[rows[a]] for a, b in pairs}
    return {name: found[name] for name in source.classes if name in found}


def renamed(
    data: LabeledDataset, names: Mapping[Hashable, Hashable], classes: tuple[Hashable, ...]
) -> LabeledDataset:
    """Data under other classes; those that have no name there lose their labels."""
    codes = [classes.index(names[name]) if name in names else -1 for name in data.classes]
    y = torch.tensor([*codes, -1], device=data.y.device)[data.y]  # a missing label, −1, stays one
    return data.replace(y=y, classes=classes, law=None, law_index=None)


def _nothing(task: Task) -> None:
    """The few samples alone."""
    return


def _borrowed(task: Task) -> LabeledDataset:
    """The few samples with residuals of the source classes that theirs are matched with."""
    return _around(task, None)


def _mixed(task: Task) -> LabeledDataset:
    """The few samples with residuals of the two source classes that are nearest to theirs."""
    return _around(task, ClassMatching.nearest(task.few, task.source, 2))


def _calibrated(task: Task) -> LabeledDataset:
    """Residuals of the matched source classes around the few samples of a class, whose mean is the
    likeliest one; in proportion, where no feature is negative.
    """
    signed = any(bool((part.x < 0).any()) for part in (task.source, task.few))
    few, generator = task.few.balanced(), task.generator()
    found = borrow(
        task.source,
        few,
        n=task.n,
        centre="calibrated",
        proportional=not signed,
        generator=generator,
    )
    return _bounded(task, found)


def _around(task: Task, matching: ClassMatching | None) -> LabeledDataset:
    few, generator = task.few.balanced(), task.generator()
    return _bounded(task, borrow(task.source, few, matching, n=task.n, generator=generator))


def _gaussian(task: Task) -> LabeledDataset:
    """Draws of Gaussian laws around the class means of the few: half of a covariance is that of the
    few, pooled, half that of the matched source classes at the same scale.
    """
    few = task.few.balanced()
    lent = borrowed_laws(task.source, few)
    laws = few.shrunk_laws("pooled", 1.0).shrunk(lent, 0.5, rescale=True)
    centres = few.replace(x=few.moments().means[few.y].to(few.x))
    return _bounded(task, centres.smoothed(laws, task.n, generator=task.generator()))


def _source(task: Task) -> LabeledDataset:
    """The source itself under the target's classes."""
    found = renamed(task.source, task.meaning, task.few.classes)
    return found.subset(found.labeled).balanced()


def _source_and_borrowed(task: Task) -> LabeledDataset:
    """Half the source itself, half the few samples with its residuals."""
    return shared(_source(task), [_borrowed(task)])


def _final(task: Task) -> LabeledDataset:
    """The source where a flow to the few samples ends."""
    return _flowed(task, task.few)


def _smoothed(task: Task) -> LabeledDataset:
    """The source where a flow ends that goes to the few samples smoothed by borrowed laws."""
    few = task.few.balanced()
    laws = borrowed_laws(task.source, few)
    n = min(task.n, len(task.source))
    return _flowed(task, few.smoothed(laws, n, generator=task.generator()))


def _flowed(task: Task, target: LabeledDataset) -> LabeledDataset:
    state = carry(task.source, target, task.options).dataset
    names = ClassMatching.between(state, target).hard
    return renamed(state, names, task.few.classes)


def _bounded(task: Task, data: LabeledDataset) -> LabeledDataset:
    bounds = task.options.bounds
    return data if bounds is None else data.replace(x=data.x.clamp(*bounds))


Way = Callable[[Task], LabeledDataset | None]
WAYS: dict[str, Way] = {
    "shots": _nothing,
    "borrowed": _borrowed,
    "mixed": _mixed,
    "calibrated": _calibrated,
    "gaussian": _gaussian,
    "smoothed": _smoothed,
    "final": _final,
    "source": _source,
    "source + borrowed": _source_and_borrowed,
}
READS_SOURCE = ("source", "source + borrowed")  # take classes of the source for the target's

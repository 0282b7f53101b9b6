"""The result of ``ad.drift``."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from advect._util.result import Result, Table, plain
from advect.data.dataset import LabeledDataset

QUESTIONS = {
    "joint": "the joint distribution of features and labels",
    "features": "the distribution of the features",
    "shares": "the class proportions",
    "labels": "the labels given the features",
    "classes": "the features within a class",
}
_MIN_MOVED = 0.1  # of a pair of classes that is named


@dataclass(frozen=True, eq=False)
class DriftTest:
    """A permutation test.

    ``excess`` counts deviations of the permuted statistics above their mean; ``adjusted`` is the
    p-value adjusted by Holm's rule over the tests. NaN: not tested.
    """

    name: str
    statistic: float  # 0 if the sides agree
    excess: float
    p_value: float
    adjusted: float
    n_reference: int
    n_window: int
    permuted: np.ndarray  # (B,)


@dataclass(frozen=True)
class ClassDrift:
    """A class on both sides: numbers of labeled samples, proportions (Fisher's exact test), distance
    of the means in deviations of the class, and the test of the features. ``adjusted`` p-values are
    by Holm's rule over the classes; NaN if there are too few samples.
    """

    name: Hashable
    n_reference: int
    n_window: int
    share_reference: float
    share_window: float
    share_p_value: float
    share_adjusted: float
    shift: float
    p_value: float
    adjusted: float


@dataclass(frozen=True)
class Trade:
    """Two classes that exchange labels. ``forth`` is the share of samples of the window labeled
    ``second``, of those of both classes whose neighbours in the reference are ``first``, and
    ``forth_before`` the same of the reference; ``back`` is the other direction. The p-value is
    adjusted for testing all pairs (Westfall and Young 1993).
    """

    first: Hashable
    second: Hashable
    p_value: float
    forth: float
    forth_before: float
    back: float
    back_before: float

    @property
    def moved(self) -> float:
        """Increase of both shares: 0 if nothing changed, 2 for a full exchange."""
        changes = (self.forth - self.forth_before, self.back - self.back_before)
        return sum(0.0 if math.isnan(change) else change for change in changes)


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Result):
    """Tests of a window against a reference; returned by ``ad.drift``.

    Attributes:
        tests: the tests; ``result["joint"]`` is one of them.
        classes: a row for each class.
        trades: all tested pairs of classes, by p-value.
        level: probability that any test finds a drift if there is none.
        reference, window: the datasets.

    Example:
        >>> import advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=150&seed=0")
        >>> window = ad.datasets.load("toy:gaussians?n=150&seed=1&shift=3,0")
        >>> result = ad.drift(reference, window)
        >>> result.drifted, result["features"].p_value
        (True, 0.001)
    """

    title = "Drift"
    tests: tuple[DriftTest, ...]
    classes: tuple[ClassDrift, ...]
    trades: tuple[Trade, ...]
    level: float
    reference: LabeledDataset
    window: LabeledDataset
    caveats: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> DriftTest:
        return {test.name: test for test in self.tests}[name]

    @property
    def drifted(self) -> bool:
        """Whether any test finds a drift at the level."""
        return bool(self.found)

    @property
    def found(self) -> tuple[str, ...]:
        """Names of the tests that find a drift."""
        return tuple(test.name for test in self.tests if test.adjusted <= self.level)

    @property
    def changed_classes(self) -> tuple[Hashable, ...]:
        """Classes whose features changed; none without drift."""
        return self._changed(lambda one: one.adjusted)

    @property
    def changed_shares(self) -> tuple[Hashable, ...]:
        """Classes whose proportion changed; none without drift."""
        return self._changed(lambda one: one.share_adjusted)

    @property
    def traded(self) -> tuple[Trade, ...]:
        """Significant pairs of classes that exchange at least a tenth of their labels, since a
        change of proportions moves a few labels too; none without drift.
        """
        sure = (one for one in self.trades if self.drifted and one.p_value <= self.level)
        return tuple(one for one in sure if one.moved >= _MIN_MOVED)

    def _changed(self, p_value: Callable[[ClassDrift], float]) -> tuple[Hashable, ...]:
        chosen = [one for one in self.classes if self.drifted and p_value(one) <= self.level]
        return tuple(one.name for one in chosen)

    @property
    def labels_reference(self) -> int:
        """Number of labeled samples of the reference."""
        return int(self.reference.labeled.sum())

    @property
    def labels_window(self) -> int:
        """Number of labeled samples of the window."""
        return int(self.window.labeled.sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """The findings in words, and caveats."""
        if self.drifted:
            notes = [f"Drift in {_listed([QUESTIONS[name] for name in self.found])}."]
        else:
            notes = [f"No drift was found at level {self.level:g}. Small changes may be missed."]
        new = [one.name for one in self.classes if not one.n_reference]
        gone = [one.name for one in self.classes if not one.n_window and self.labels_window]
        changed = [name for name in self.changed_shares if name not in (*new, *gone)]
        lost = [name for name in gone if name in self.changed_shares]
        names = {
            "Features changed": self.changed_classes,
            "Proportion changed": changed,
            "New in the window": new,
            "Missing in the window": lost,
            "Not in the window, possibly by chance": [name for name in gone if name not in lost],
        }
        notes += [f"{text}: {_classes(which)}." for text, which in names.items() if which]
        for one in self.traded:
            notes.append(
                f"Classes {one.first} and {one.second} exchange labels: {one.forth:.0%} "
                f"({one.forth_before:.0%} in the reference) and {one.back:.0%} "
                f"({one.back_before:.0%}) of the samples in the place of the other class."
            )
        return (*notes, *self.caveats)

    def to_dict(self) -> dict[str, Any]:
        hidden = ("name", "permuted")
        tests = {
            test.name: {key: value for key, value in vars(test).items() if key not in hidden}
            for test in self.tests
        }
        return super().to_dict() | plain(
            {
                "drifted": self.drifted,
                "level": self.level,
                "found": self.found,
                "n": [len(self.reference), len(self.window)],
                "labels": [self.labels_reference, self.labels_window],
                "tests": tests,
                "changed_classes": self.changed_classes,
                "changed_shares": self.changed_shares,
                "trades": [vars(one) for one in self.traded],
            }
        )

    def _summary(self) -> dict[str, Any]:
        return {
            "drifted": "yes" if self.drifted else "no",
            "level": self.level,
            "samples": f"{len(self.reference)} and {len(self.window)}",
            "labels": f"{self.labels_reference} and {self.labels_window}",
        }

    def _tables(self) -> list[Table]:
        tests = [
            [test.name, test.adjusted, test.p_value, test.excess, QUESTIONS[test.name]]
            for test in self.tests
        ]
        heads = ("test", "adjusted p", "p", "excess", "null hypothesis: no change of")
        columns = [one.name for one in fields(ClassDrift)]
        rows = [[getattr(one, name) for name in columns] for one in self.classes]
        return [Table("tests", heads, tests), *([Table("classes", columns, rows)] if rows else [])]


def _classes(names: Sequence[Hashable]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"class{'es' * (len(names) > 1)} {', '.join(map(str, names[:8]))}{more}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"

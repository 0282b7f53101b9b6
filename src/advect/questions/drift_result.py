"""The result of ``ad.drift``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from advect._util.result import Result, Table, plain
from advect.data.dataset import LabeledDataset
from advect.questions.shared import listed

QUESTIONS = {
    "joint": "the joint distribution of features and labels",
    "features": "the distribution of the features",
    "shares": "the class proportions",
    "labels": "the labels given the features",
    "classes": "the features within a class",
}


@dataclass(frozen=True)
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


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Result):
    """Tests of a window against a reference; returned by ``ad.drift``.

    Attributes:
        tests: the tests; ``result["joint"]`` is one of them.
        classes: a row for each class.
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
        rows = self.classes if self.drifted else ()
        return tuple(row.name for row in rows if row.adjusted <= self.level)

    @property
    def changed_shares(self) -> tuple[Hashable, ...]:
        """Classes whose proportion changed; none without drift."""
        rows = self.classes if self.drifted else ()
        return tuple(row.name for row in rows if row.share_adjusted <= self.level)

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
        notes = [f"No drift was found at level {self.level:g}. Small changes may be missed."]
        if self.drifted:
            notes = [f"Drift in {', '.join(QUESTIONS[name] for name in self.found)}."]
        new = [row.name for row in self.classes if not row.n_reference]
        gone = [row.name for row in self.classes if not row.n_window and self.labels_window]
        names = {
            "Classes with other features": self.changed_classes,
            "Classes with another proportion": self.changed_shares,
            "Classes that are new in the window": new,
            "Classes that are missing in the window": gone,
        }
        notes += [f"{text}: {listed(which)}." for text, which in names.items() if which]
        return (*notes, *self.caveats)

    def to_dict(self) -> dict[str, Any]:
        more = {
            "drifted": self.drifted,
            "found": self.found,
            "n": [len(self.reference), len(self.window)],
            "labels": [self.labels_reference, self.labels_window],
            "tests": {test.name: vars(test) for test in self.tests},
            "changed_classes": self.changed_classes,
            "changed_shares": self.changed_shares,
        }
        return super().to_dict() | plain(more)

    def _summary(self) -> dict[str, Any]:
        return {
            "drifted": self.drifted,
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
        columns = [column.name for column in fields(ClassDrift)]
        rows = [list(vars(row).values()) for row in self.classes]
        return [Table("tests", heads, tests), *([Table("classes", columns, rows)] if rows else [])]

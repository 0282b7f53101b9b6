"""The result of ``ad.drift``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from advect._util.result import Result, Table

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
    """A class on both sides: numbers of labeled samples, proportions (Fisher's exact test), and the
    test of the features, whose statistic is the energy distance divided by the median distance of
    samples. ``adjusted`` p-values are by Holm's rule over the classes; NaN if there are too few
    samples.
    """

    name: Hashable
    n_reference: int
    n_window: int
    share_reference: float
    share_window: float
    share_p_value: float
    share_adjusted: float
    statistic: float
    p_value: float
    adjusted: float


@dataclass(frozen=True, eq=False, repr=False)
class Drift(Result):
    """Tests of a window against a reference; returned by ``ad.drift``.

    Attributes:
        tests: the tests; ``result["joint"]`` is one of them.
        classes: a row for each class.
        level: probability that any test finds a drift if there is none.

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
    notes: tuple[str, ...] = ()
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

    def _summary(self) -> dict[str, Any]:
        return {
            "drifted": self.drifted,
            "level": self.level,
            "found": self.found,
            "changed_classes": self.changed_classes,
            "changed_shares": self.changed_shares,
        }

    def _tables(self) -> list[Table]:
        tests = [[*vars(test).values(), QUESTIONS[test.name]] for test in self.tests]
        heads = [*(column.name for column in fields(DriftTest)), "null hypothesis: no change of"]
        columns = [column.name for column in fields(ClassDrift)]
        rows = [list(vars(row).values()) for row in self.classes]
        return [Table("tests", heads, tests), *([Table("classes", columns, rows)] if rows else [])]

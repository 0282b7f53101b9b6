"""What ``ad.drift`` found: the tests, the classes, and what is to be said of them."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.html import facts_table
from advect.apps.pages import write_page
from advect.data.dataset import LabeledDataset

QUESTIONS = {
    "joint": "the law of features and labels together",
    "features": "the law of the features",
    "shares": "the shares of classes",
    "labels": "labels given the features",
    "classes": "features within a class",
}

LEAST_MOVED = 0.1  # below which a trade is not named


@dataclass(frozen=True, eq=False)
class DriftTest:
    """One question about both sides and its answer.

    Attributes:
        name: ``joint``, ``features``, ``shares``, ``labels`` or ``classes``.
        statistic: how far apart the sides are; 0 where they agree. It has a scale of its own in each
            test, and grows with the drift, not with the number of samples.
        excess: by how many standard deviations of the permuted statistics it is above their mean.
        p_value: exact under exchangeability; NaN where it could not be tested.
        adjusted: the same by Holm's rule over the tests that were made.
        n_reference, n_window: samples that took part.
        permuted: statistics of permuted sides, (B,).

    Example:
        >>> import advect as ad
        >>> data = ad.datasets.load("toy:gaussians?n=200")
        >>> found = ad.drift(data.subset(slice(0, 100)), data.subset(slice(100, 200)))
        >>> found["features"].n_window, 0 < found["features"].p_value <= 1
        (100, True)
    """

    name: str
    statistic: float
    excess: float
    p_value: float
    adjusted: float
    n_reference: int
    n_window: int
    permuted: np.ndarray

    @property
    def question(self) -> str:
        """What is asked, in words."""
        return QUESTIONS[self.name]

    @property
    def tested(self) -> bool:
        return not math.isnan(self.p_value)


@dataclass(frozen=True)
class ClassDrift:
    """One class on both sides.

    Attributes:
        name: of the class.
        n_reference, n_window: labeled samples.
        share_reference, share_window: of the labeled samples.
        share_p_value: that shares differ, by Fisher's exact test; ``share_adjusted`` by Holm's rule
            over the classes.
        shift: the distance between the means of the two sides, in standard deviations of the class
            along that direction; NaN where a side has none or the class does not vary.
        p_value: that the features of the class changed; NaN where there are too few samples for any
            answer. ``adjusted`` by Holm's rule over the classes.

    Example:
        >>> ClassDrift("cat", 50, 50, 0.5, 0.5, 1.0, 1.0, 2.0, 0.001, 0.002).as_dict()["shift"]
        2.0
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

    @property
    def state(self) -> str:
        """Whether the class is on both sides."""
        if not self.n_window:
            return "gone"
        return "both" if self.n_reference else "new"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: NaN becomes None."""
        return _plain(vars(self) | {"name": str(self.name), "state": self.state})


@dataclass(frozen=True)
class Trade:
    """Two classes that trade places: where the reference has one label, the window has the other.

    Attributes:
        first, second: the names of the classes.
        p_value: adjusted for having looked at all pairs (Westfall and Young).
        forth: among neighbours of the reference's ``first``, the share of the window's samples of
            both classes that are labeled ``second``; ``forth_before`` the same of the reference
            itself, each sample without itself.
        back, back_before: the other way round.

    Example:
        >>> Trade("cat", "dog", 0.01, 0.5, 0.02, 0.45, 0.0)
        Trade(first='cat', second='dog', p_value=0.01, forth=0.5, forth_before=0.02, back=0.45, back_before=0.0)
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
        """By how much more the window has of both: 0 where nothing changed, 2 for a full swap."""
        changes = (self.forth - self.forth_before, self.back - self.back_before)
        return sum(0.0 if math.isnan(change) else change for change in changes)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return _plain(vars(self) | {"first": str(self.first), "second": str(self.second)})


@dataclass(frozen=True, eq=False)
class Drift:
    """Whether a window of data is still of the law of a reference, and where it is not; made by
    ``ad.drift``.

    Attributes:
        tests: those of the family, in a fixed order; ``found["joint"]`` is one of them.
        classes: each class of either side.
        trades: pairs of classes, the surest trade first; all pairs that were looked at.
        level: the chance that any test of the family finds a drift where there is none.
        reference, window: what was compared.
        labels_reference, labels_window: how many samples of each had a label.
        n_permutations, seed: of the tests.
        notes: what is worth knowing, in sentences.

    Example:
        >>> import advect as ad
        >>> reference = ad.datasets.load("toy:gaussians?n=150&seed=0")
        >>> window = ad.datasets.load("toy:gaussians?n=150&seed=1&shift=3,0")
        >>> found = ad.drift(reference, window)
        >>> found.drifted, found["features"].p_value
        (True, 0.001)
        >>> print(found.sentences[1])
        The features changed of classes 0, 1 and 2.
    """

    tests: tuple[DriftTest, ...]
    classes: tuple[ClassDrift, ...]
    trades: tuple[Trade, ...]
    level: float
    reference: LabeledDataset = field(repr=False)
    window: LabeledDataset = field(repr=False)
    labels_reference: int
    labels_window: int
    n_permutations: int
    seed: int
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> DriftTest:
        for test in self.tests:
            if test.name == name:
                return test
        raise KeyError(name)

    @property
    def drifted(self) -> bool:
        """Whether any test of the family finds a drift at the level."""
        return bool(self.found)

    @property
    def found(self) -> tuple[str, ...]:
        """The tests that do."""
        return tuple(test.name for test in self.tests if test.adjusted <= self.level)

    @property
    def changed_classes(self) -> tuple[Hashable, ...]:
        """Classes whose features changed; none unless there is drift."""
        return self._those(lambda one: one.adjusted)

    @property
    def changed_shares(self) -> tuple[Hashable, ...]:
        """Classes whose share changed, new ones and lost ones too; none unless there is drift."""
        return self._those(lambda one: one.share_adjusted)

    @property
    def traded(self) -> tuple[Trade, ...]:
        """Pairs of classes that trade places: sure, and by a tenth of their samples or more, since
        a change of shares moves a few labels too; none unless there is drift.
        """
        sure = (one for one in self.trades if self.drifted and one.p_value <= self.level)
        return tuple(one for one in sure if one.moved >= LEAST_MOVED)

    def _those(self, of: Any) -> tuple[Hashable, ...]:
        return tuple(one.name for one in self.classes if self.drifted and of(one) <= self.level)

    def __repr__(self) -> str:
        parts = [f"{test.name} {_short(test.adjusted)}" for test in self.tests]
        return (
            f"Drift(drifted={self.drifted}, level={self.level:g}, n={len(self.reference)} and "
            f"{len(self.window)}, labels={self.labels_reference} and {self.labels_window}, "
            f"adjusted p: {', '.join(parts)})"
        )

    def __str__(self) -> str:
        lines = [*self.sentences, "", "test       adjusted p        p   excess  asks about"]
        for test in self.tests:
            lines.append(
                f"{test.name:<10} {_short(test.adjusted):>10} {_short(test.p_value):>8} "
                f"{_short(test.excess):>8}  {test.question}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = {
            "drifted": "yes" if self.drifted else "no",
            **{
                test.question: f"p = {_short(test.adjusted)} (adjusted), {_short(test.p_value)} alone"
                for test in self.tests
            },
            "worth knowing": " ".join(self.sentences),
        }
        return facts_table("Drift", facts)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What was found and what is worth knowing, in plain words."""
        return (*_said(self), *self.notes)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON has it; what was not tested is None.

        Example:
            >>> import json, advect as ad
            >>> data = ad.datasets.load("toy:gaussians?n=60")
            >>> json.loads(ad.drift(data, data).json())["tests"]["joint"]["p_value"]
            1.0
        """
        tests = {
            test.name: {
                "asks_about": test.question,
                "p_value": test.p_value,
                "adjusted": test.adjusted,
                "statistic": test.statistic,
                "excess": test.excess,
                "n": [test.n_reference, test.n_window],
            }
            for test in self.tests
        }
        return _plain(
            {
                "drifted": self.drifted,
                "level": self.level,
                "found": list(self.found),
                "n": [len(self.reference), len(self.window)],
                "labels": [self.labels_reference, self.labels_window],
                "permutations": self.n_permutations,
                "seed": self.seed,
                "tests": tests,
                "changed_classes": [str(name) for name in self.changed_classes],
                "changed_shares": [str(name) for name in self.changed_shares],
                "classes": [one.as_dict() for one in self.classes],
                "trades": [one.as_dict() for one in self.traded],
                "sentences": list(self.sentences),
            }
        )

    def json(self) -> str:
        """``as_dict`` as text."""
        return json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False)

    def report(self, path: str | Path, **options: Any) -> Path:
        """Write a page about it; see ``advect.report.write_drift_report`` for the options.

        Example:
            >>> import tempfile, advect as ad
            >>> data = ad.datasets.load("toy:gaussians?n=60")
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ad.drift(data, data).report(f"{folder}/drift.html").name
            'drift.html'
        """
        return write_page("write_drift_report", self, path, options)


def _said(found: Drift) -> list[str]:
    if not found.drifted:
        tested = sum(test.tested for test in found.tests)
        said = [
            f"No drift was found at level {found.level:g}, by {tested} "
            f"test{'s' * (tested != 1)}. That is no proof that there is none."
        ]
    else:
        said = [f"There is drift: {_listed([QUESTIONS[name] for name in found.found])} changed."]
    if found.changed_classes:
        said.append(f"The features changed of {_classes(found.changed_classes)}.")
    new = [one.name for one in found.classes if one.state == "new"]
    gone = [one.name for one in found.classes if one.state == "gone"]
    kept = [name for name in found.changed_shares if name not in (*new, *gone)]
    if kept:
        said.append(f"The share changed of {_classes(kept)}.")
    if new:
        said.append(f"The window has {_classes(new)}, of which the reference has no sample.")
    if gone and found.labels_window:
        sure = [name for name in gone if name in found.changed_shares]
        rest = [name for name in gone if name not in sure]
        if sure:
            said.append(f"The window has no sample of {_classes(sure)} any more.")
        if rest:
            said.append(f"The window has no sample of {_classes(rest)}, which may be chance.")
    for one in found.traded:
        said.append(
            f"Classes {one.first} and {one.second} trade labels: where the reference has "
            f"{one.first}, {_percent(one.forth)} of the window's samples of the two are labeled "
            f"{one.second} ({_percent(one.forth_before)} in the reference); where it has "
            f"{one.second}, {_percent(one.back)} are labeled {one.first} "
            f"({_percent(one.back_before)})."
        )
    return said


def _classes(names: Any) -> str:
    names = [str(name) for name in names]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"class{'es' * (len(names) > 1)} {_listed(names[:8], bool(more))}{more}"


def _listed(names: list[str], cut: bool = False) -> str:
    if len(names) < 2 or cut:
        return ", ".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(share: float) -> str:
    return "none" if math.isnan(share) else f"{100 * share:.0f} %"


def _short(number: float) -> str:
    return "-" if math.isnan(number) else f"{number:.3g}"


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case float() if not math.isfinite(value):
            return None
    return value

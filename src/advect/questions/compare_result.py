"""The result of ``ad.compare``: values with noise floors.

A statistic is computed on B draws of half of the synthetic and half of the real samples, v_1 … v_B,
and on B splits of the real samples, f_1 … f_B. Both have the same bias. The value is the mean of v.
It is beyond the floor if it is above

    mean f + t √( max(½ var f, var v) + (var f + var v)/B ) ,     t of B − 1 degrees of freedom, level / rows

or on the other side, where that is wrong. Splits of one dataset do not show the variance of sums,
such as the traces in a Fréchet distance, hence the maximum with the variance of v.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from advect._util import Result, Table, plain
from advect.data.class_table import ClassTable
from advect.data.dataset import LabeledDataset
from advect.questions.shared import image_pairs
from advect.spaces.steps import listed

if TYPE_CHECKING:
    from pandas import DataFrame

Sense = Literal["high", "low", "both"]  # which side of the floor is wrong
TITLES = {
    "frechet": "Fréchet distance",
    "share": "class proportion, synthetic − real",
    "confusion": "sent to another class",
    "coverage": "real samples covered",
    "density": "density",
    "memorised": "memorised",
    "otdd": "joint distance (OTDD)",
}
SHARE_COLUMNS = ("share", "confusion", "coverage", "memorised")
_SENSES: dict[str, Sense] = {"coverage": "low", "share": "both", "density": "both"}  # others: high
_FEW = 10  # samples of a class below which a note is added


@dataclass(frozen=True)
class Entry:
    """A number of a comparison, with its noise floor."""

    value: float  # of the synthetic data
    low: float = np.nan  # 95 % interval
    high: float = np.nan
    floor: float = np.nan  # mean over splits of the real data
    least: float = np.nan  # range that counts as within the floor
    most: float = np.nan

    @property
    def beyond(self) -> bool | None:
        """Whether the value is beyond the floor; None if one of them is unknown."""
        if np.isnan(self.value) or np.isnan(self.floor):
            return None
        return bool(self.value > self.most or self.value < self.least)


@dataclass(frozen=True, eq=False)
class Column:
    """A statistic of the synthetic data, for all classes together and for each class (none for the
    joint distance).
    """

    overall: Entry
    classes: Mapping[Hashable, Entry]
    is_share: bool

    @classmethod
    def of(cls, name: str, draws: Draws, names: Sequence[Hashable], level: float) -> Column:
        sense = _SENSES.get(name, "high")
        first: Sense = "high" if name == "share" else sense  # an L1 norm
        entries = judge(draws, [first, *[sense] * (draws.values.shape[1] - 1)], level)
        by_class = dict(zip(names, entries[1:], strict=True)) if len(entries) > 1 else {}
        return cls(entries[0], by_class, name in SHARE_COLUMNS)

    @property
    def beyond(self) -> tuple[Hashable, ...]:
        """Classes beyond their floor."""
        return tuple(name for name, entry in self.classes.items() if entry.beyond)

    def _cell(self, entry: Entry | None) -> str:
        """Value, floor in brackets, and * if it is beyond."""
        if entry is None or np.isnan(entry.value):
            return ""
        value, floor = (
            f"{100 * number:.1f} %" if self.is_share else f"{number:.4g}"
            for number in (entry.value, entry.floor)
        )
        floor = "no floor" if np.isnan(entry.floor) else floor
        return f"{value} ({floor})" + ("*" if entry.beyond else "")


@dataclass(frozen=True, eq=False, repr=False)
class Compared(Result):
    """Synthetic data compared with real data; returned by ``ad.compare``.

    Attributes:
        synthetic, real: the datasets.
        columns: ``frechet``, ``share``, ``confusion``, ``coverage``, ``density``, ``memorised`` and
            ``otdd``, each with an ``overall`` entry and one for each class.
        confusion: shares of each synthetic class that transport by features sends to real classes.
        counts: numbers of synthetic and real samples of each class.
        copies: rows of memorised synthetic samples and of their training samples, (c, 2).

    Example:
        >>> import torch, advect as ad
        >>> real, fake = (ad.datasets.gaussians(90, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
        >>> result = ad.compare(fake.subset(fake.y < 2), real, repeats=4, progress=False)
        >>> result.columns["share"].beyond, result.classes[0]   # the third class is missing
        ((2,), 2)
    """

    title = "Comparison of synthetic and real data"
    synthetic: LabeledDataset
    real: LabeledDataset
    columns: Mapping[str, Column]
    confusion: ClassTable
    counts: Mapping[Hashable, tuple[int, int]]
    copies: np.ndarray
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """All classes, those beyond the floors of most columns first."""
        beyond = [name for column in self.columns.values() for name in column.beyond]
        return tuple(sorted(self.counts, key=beyond.count, reverse=True))

    @property
    def beyond(self) -> tuple[str, ...]:
        """Names of the columns whose overall value, or that of any class, is beyond its floor."""
        columns = self.columns.items()
        return tuple(name for name, each in columns if each.beyond or each.overall.beyond)

    def __getitem__(self, cell: tuple[str, Hashable]) -> Entry:
        """``result["coverage", "cat"]``: the entry of a column and a class."""
        return self.columns[cell[0]].classes[cell[1]]

    def records(self) -> list[dict[str, Any]]:
        """A dictionary for each number; the class of overall values is None."""
        return [
            {"class": name, "column": title, **vars(entry), "beyond": entry.beyond}
            for title, column in self.columns.items()
            for name, entry in {None: column.overall, **column.classes}.items()
        ]

    def to_pandas(self) -> DataFrame:
        """``records`` as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | plain({"records": self.records(), "copies": self.copies})

    def figures(self) -> dict[str, Any]:
        table = import_module("advect.viz").class_table(self.confusion)
        sides = self.synthetic, self.copies[:, 0], self.real, self.copies[:, 1]
        pairs = image_pairs("Memorised samples", *sides, ("synthetic", "training"))
        return {"Where each synthetic class is sent": table, **pairs}

    def _summary(self) -> dict[str, Any]:
        sizes = {"synthetic samples": len(self.synthetic), "real samples": len(self.real)}
        beyond = ", ".join(self.beyond) or "none"
        return {**sizes, "beyond the floor": beyond, "scale": self.settings.get("scale")}

    def _tables(self) -> list[Table]:
        columns = self.columns.values()
        totals = [sum(each) for each in zip(*self.counts.values(), strict=True)]
        rows = [["all", *totals, *(column._cell(column.overall) for column in columns)]]
        rows += [
            [
                str(name),
                *self.counts[name],
                *(each._cell(each.classes.get(name)) for each in columns),
            ]
            for name in self.classes
        ]
        heads = ("class", "synthetic", "real", *self.columns)
        return [Table("Value (noise floor), * beyond the noise floor", heads, rows)]


@dataclass(frozen=True, eq=False)
class Draws:
    """Values (B, r) and floors (B', r) of a statistic, NaN where unknown."""

    values: np.ndarray
    floors: np.ndarray
    sizes: np.ndarray | None = None  # samples of a share in the floor, (r,)
    counts: np.ndarray | None = None  # synthetic samples of a share, (r,), if independent


def judge(draws: Draws, senses: list[Sense], level: float) -> list[Entry]:
    """An entry for each row; false alarms in about ``level`` of all comparisons of the column."""
    known = [bool(np.isfinite(row).any()) for row in draws.floors.T]
    tests = sum(k * (2 if sense == "both" else 1) for k, sense in zip(known, senses, strict=True))
    return [_entry(draws, row, sense, level / max(tests, 1)) for row, sense in enumerate(senses)]


def _entry(draws: Draws, row: int, sense: Sense, alpha: float) -> Entry:
    from scipy import stats

    values, floors = (part[np.isfinite(part[:, row]), row] for part in (draws.values, draws.floors))
    value = float(values.mean()) if len(values) else np.nan
    half = float(stats.t.ppf(0.975, max(len(values) - 1, 1))) * _deviation(values)
    low, high = value - half, value + half
    if draws.sizes is not None:
        low, high = max(low, 0.0), min(high, 1.0)
    if not len(floors):
        return Entry(value, low, high)
    floor, spread, share = float(floors.mean()), _deviation(floors), np.nan
    if draws.sizes is not None:
        # splits that all agree do not show that there is no variance
        n = max(float(draws.sizes[row]), 1)
        share = (floor * n + 0.5) / (n + 1)  # Jeffreys
        spread = max(spread, float(np.sqrt(share * (1 - share) / n)))
    variances = np.square([spread, _deviation(values)])
    reach = np.sqrt(max(variances[0] / 2, variances[1]) + variances.sum() / len(floors))
    reach *= float(stats.t.ppf(1 - alpha, max(len(floors) - 1, 1)))
    least, most = floor - reach, floor + reach
    if draws.counts is not None and draws.counts[row] > 0:
        count = draws.counts[row]
        most = max(most, float(stats.binom.ppf(1 - alpha, int(count), share) / count))
    least = -np.inf if sense == "high" else least
    return Entry(value, low, high, floor, least, np.inf if sense == "low" else most)


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def mean(draws: np.ndarray, weights: np.ndarray | None = None) -> Any:
    """Mean of the known numbers over draws, or over classes with weights; NaN without any."""
    known = np.ma.masked_invalid(draws)
    axis = 0 if weights is None else -1
    return np.ma.filled(np.ma.average(known, axis=axis, weights=weights), np.nan)


def with_mean(
    values: np.ndarray, floors: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(B, k) each, with a first column: the mean over classes with value and floor, by real mass."""
    known = np.isfinite(values).any(axis=0) & np.isfinite(floors).any(axis=0)
    first, second = (np.column_stack([mean(p, known * mass), p]) for p in (values, floors))
    return first, second


def compare_notes(
    names: Sequence[Hashable],
    n_synthetic: np.ndarray,
    n_real: np.ndarray,
    has_copies: bool,
    unsolved: int,
) -> tuple[str, ...]:
    notes, smaller = [], np.minimum(n_synthetic, n_real)
    classes = {
        "Classes without synthetic samples": (n_synthetic == 0) & (n_real > 0),
        "Classes without real samples": (n_real == 0) & (n_synthetic > 0),
    }
    if not (smaller > 0).any():
        classes = {}
        notes.append(
            "No class name occurs on both sides, so only the joint distance and the copies are "
            "meaningful. Rename the classes of one side; class_matching of ad.otdd shows which."
        )
    classes[f"Classes with fewer than {_FEW} samples on a side"] = (smaller < _FEW) & (smaller > 0)
    for text, mask in classes.items():
        if mask.any():
            notes.append(f"{text}: {listed(list(itertools.compress(names, mask)))}.")
    if has_copies:
        notes.append(
            "Some held-out samples are exact copies of real ones, so memorised counts exact copies only."
        )
    if unsolved:
        notes.append(f"The transport solver did not converge in {unsolved} draws.")
    return tuple(notes)

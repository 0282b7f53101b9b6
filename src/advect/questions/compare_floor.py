"""A number beside its noise floor: what two halves of the real data give under the same statistic.

A statistic is taken on B draws of half of the synthetic and half of the real samples, v_1 … v_B, and
on B splits of the real samples into two halves as large, f_1 … f_B. Both have the bias of so many
samples, which cancels when they are compared. The value is the mean of v. Half-samples without
replacement vary by about as much as the mean of v would with fresh datasets of the full size, so that
their deviation gives its interval. The mean of v is beyond the floor where it is above

    mean f + t √( max(½ var f, var v) + (var f + var v)/B ) ,     t of B − 1 degrees of freedom, level / rows

(on either side, or below, for columns where that is what is wrong). Either variance would do for
statistics that are differences. Splits of one dataset say nothing of how sums vary, such as the traces
in a Fréchet distance, since a half has what the other has not: there the variance of v counts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Sense = Literal["high", "low", "both"]  # on which side of the floor something is wrong
WITHIN, BEYOND, UNKNOWN = "within the floor", "beyond the floor", "unknown"


@dataclass(frozen=True)
class Entry:
    """One number of a comparison; NaN where there is none.

    Attributes:
        value: of the synthetic data.  low, high: 95 % interval, by repeated half-samples.
        floor: the mean over splits of the real data.  least, most: the range of what counts as
            within the floor; infinite where a side is not looked at.

    Example:
        >>> one = Entry(0.4, 0.3, 0.5, floor=0.1, least=float("-inf"), most=0.2)
        >>> one.beyond, round(one.excess, 2)
        (True, 3.0)
    """

    value: float
    low: float = np.nan
    high: float = np.nan
    floor: float = np.nan
    least: float = np.nan
    most: float = np.nan

    @property
    def beyond(self) -> bool | None:
        """Whether the value is beyond the floor; None where one of them is not known."""
        if np.isnan(self.value) or np.isnan(self.floor):
            return None
        return bool(self.value > self.most or self.value < self.least)

    @property
    def excess(self) -> float:
        """How far the value is from the floor, in units of how far it may be: above 1 is beyond."""
        if self.beyond is None:
            return np.nan
        gap = self.value - self.floor
        reach = (self.most if gap > 0 else self.least) - self.floor
        if np.isinf(reach) or gap == 0:
            return 0.0
        return float(gap / reach) if reach else np.inf

    @property
    def verdict(self) -> str:
        """In words."""
        return {None: UNKNOWN, True: BEYOND, False: WITHIN}[self.beyond]

    def facts(self) -> dict[str, Any]:
        """As JSON has it: None for what is not known."""
        numbers = {
            name: float(getattr(self, name))
            for name in ("value", "low", "high", "floor", "least", "most")
        }
        plain = {name: each if np.isfinite(each) else None for name, each in numbers.items()}
        return {**plain, "beyond": self.beyond}


@dataclass(frozen=True, eq=False)
class Column:
    """One question about the synthetic data: for all of it, and class by class.

    Attributes:
        name, title: short, and in words.
        overall: of all classes together.  classes: of each class; empty where there is one number.
        share: whether numbers are shares, shown in per cent.

    Example:
        >>> column = Column("coverage", "real samples covered", Entry(0.9), {"cat": Entry(0.8)}, True)
        >>> column.verdict, column.shown(column.overall.value)
        ('unknown', '90.0 %')
    """

    name: str
    title: str
    overall: Entry
    classes: Mapping[Hashable, Entry]
    share: bool = False

    @property
    def beyond(self) -> tuple[Hashable, ...]:
        """The classes that are beyond their floor, the worst first."""
        found = {name: entry.excess for name, entry in self.classes.items() if entry.beyond}
        return tuple(sorted(found, key=lambda name: -found[name]))

    @property
    def verdict(self) -> str:
        """Beyond the floor where the whole or any class is."""
        known = [one.beyond for one in (self.overall, *self.classes.values())]
        if any(known):
            return BEYOND
        return WITHIN if False in known else UNKNOWN

    def shown(self, value: float) -> str:
        """A number of this column as text; nothing where there is none."""
        if np.isnan(value):
            return ""
        return f"{100 * value:.1f} %" if self.share else f"{value:.4g}"


@dataclass(frozen=True, eq=False)
class Drawn:
    """What a statistic gave, row by row: values (B, r), floors (B', r), NaN where there is none.

    Attributes:
        sizes: how many samples a share of the floor is of, (r,); None for what is no share.
        counts: how many synthetic samples a share is of, (r,), where these are few and independent,
            as with memorised ones; None where draws tell.
    """

    values: np.ndarray
    floors: np.ndarray
    sizes: np.ndarray | None = None
    counts: np.ndarray | None = None


def judged(drawn: Drawn, senses: list[Sense], level: float) -> list[Entry]:
    """An entry for each row. All rows of a column together are beyond their floors by chance in
    about ``level`` of all comparisons, at most.

    Example:
        >>> draws = np.array([[1.0], [1.2], [1.1], [0.9]])
        >>> [judged(Drawn(draws + shift, draws), ["high"], 0.05)[0].beyond for shift in (0, 1)]
        [False, True]
    """
    rows = range(drawn.values.shape[1])
    known = [np.isfinite(drawn.floors[:, row]).any() for row in rows]
    tests = sum(
        2 if sense == "both" else 1
        for sense, is_known in zip(senses, known, strict=True)
        if is_known
    )
    return [_entry(drawn, row, senses[row], level / max(tests, 1)) for row in rows]


def _entry(drawn: Drawn, row: int, sense: Sense, alpha: float) -> Entry:
    values, floors = (
        part[:, row][np.isfinite(part[:, row])] for part in (drawn.values, drawn.floors)
    )
    value = float(values.mean()) if len(values) else np.nan
    half = _quantile(0.975, len(values)) * _deviation(values)
    low, high = value - half, value + half
    if drawn.sizes is not None:
        low, high = max(low, 0.0), min(high, 1.0)
    if not len(floors):
        return Entry(value, low, high)
    floor, spread = float(floors.mean()), _deviation(floors)
    if drawn.sizes is not None:
        spread = max(spread, _least_deviation(floor, float(drawn.sizes[row])))
    variances = np.square([spread, _deviation(values)])
    reach = np.sqrt(max(variances[0] / 2, variances[1]) + variances.sum() / len(floors))
    reach *= _quantile(1 - alpha, len(floors))
    least, most = floor - reach, floor + reach
    if drawn.counts is not None and drawn.sizes is not None and drawn.counts[row] > 0:
        most = max(most, _most_by_chance(floor, drawn.sizes[row], drawn.counts[row], alpha))
    return Entry(
        value,
        low,
        high,
        floor,
        -np.inf if sense == "high" else least,
        np.inf if sense == "low" else most,
    )


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _quantile(level: float, n: int) -> float:
    from scipy import stats

    return float(stats.t.ppf(level, max(n - 1, 1)))


def _smoothed(share: float, n: float) -> float:
    """A share of n samples that is neither 0 nor 1 (Jeffreys)."""
    return float((share * n + 0.5) / (n + 1))


def _least_deviation(share: float, n: float) -> float:
    """That of a share of n samples: splits that all agree do not show that there is none."""
    p = _smoothed(share, max(n, 1))
    return float(np.sqrt(p * (1 - p) / max(n, 1)))


def _most_by_chance(share: float, size: float, count: float, alpha: float) -> float:
    """The share that so few samples do not exceed by chance: a binomial quantile."""
    from scipy import stats

    return float(stats.binom.ppf(1 - alpha, int(count), _smoothed(share, max(size, 1))) / count)

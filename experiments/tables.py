"""What the files of ``results/`` say: means, paired 95 % intervals, tables and sentences.

Nothing is computed here but statistics of what is stored, and a number that is not stored is "not
run". Draws that are compared have the same cell, that is the same samples and seed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import evidence
import numpy as np

NOT_RUN = "not run"
BASELINES = {"labels": "nearest shot, pixels"}  # of experiments whose modules name none


def half_width(values: Any) -> float:
    """Half the width of the 95 % confidence interval of a mean (Student's t), of two values or more."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def mean_and_interval(values: Sequence[float], digits: int = 1) -> str:
    """A mean and half the width of its 95 % interval, as text."""
    half = f" ± {half_width(values):.{digits}f}" if len(values) > 1 else ""
    return f"{float(np.mean(values)):.{digits}f}{half}"


@dataclass(frozen=True)
class Gain:
    """By how much one column is above another in a setting: mean and half the width of the paired
    95 % interval, in points.
    """

    setting: str
    mean: float
    half: float

    @property
    def sign(self) -> int:
        """1 or −1 where the interval is on one side of 0."""
        return (self.mean - self.half > 0) - (self.mean + self.half < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.half:.1f}"


@dataclass(frozen=True)
class Experiment:
    """The cells of an experiment, by setting and column."""

    name: str
    settings: dict[str, Any]
    cells: dict[str, dict[str, Any]]
    planned: dict[str, int]

    @classmethod
    def read(cls, name: str, folder: Path = evidence.RESULTS) -> Experiment:
        path = folder / f"{name}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return cls(name, kept.get("settings", {}), kept.get("cells", {}), kept.get("planned", {}))

    @cached_property
    def groups(self) -> dict[str, list[dict[str, Any]]]:
        """The cells of each setting, in the order of their names."""
        found: dict[str, list[dict[str, Any]]] = {setting: [] for setting in self.planned}
        for name in sorted(self.cells, key=evidence.natural):
            found.setdefault(evidence.setting(name), []).append(self.cells[name])
        return found

    @cached_property
    def columns(self) -> list[str]:
        """All that occur: those of the module's COLUMNS in their order, then others as they come."""
        there = [
            way
            for cell in self.cells.values()
            for way, value in cell.get("accuracies", {}).items()
            if value is not None
        ]
        named = [way for way in self.settings.get("COLUMNS", ()) if way in there]
        return list(dict.fromkeys([*named, *there]))

    @property
    def recommended(self) -> str:
        """The column that was named in advance."""
        return self.settings.get("RECOMMENDED", "recommended")

    @property
    def baseline(self) -> str:
        """The column that others are compared with: BASELINE, or the first that is not
        recommended.
        """
        named = self.settings.get("BASELINE", BASELINES.get(self.name))
        others = [way for way in self.columns if way != self.recommended]
        return named or (others[0] if others else "")

    def of(self, constant: str) -> Any:
        """A setting."""
        return self.settings.get(constant, NOT_RUN)

    # numbers

    def values(self, setting: str, column: str, *, part: str = "accuracies") -> list[float]:
        """One for each draw that has it; accuracies in per cent."""
        scale = 100 if part == "accuracies" else 1
        found = (cell.get(part, {}) for cell in self.groups.get(setting, []))
        return [scale * each[column] for each in found if each.get(column) is not None]

    def facts(self, setting: str, key: str) -> list[Any]:
        """What the cells of a setting say besides accuracies."""
        return [cell[key] for cell in self.groups.get(setting, []) if key in cell]

    def mean(self, setting: str, column: str, digits: int = 1) -> str:
        """Mean and half the width of its 95 % interval, as text."""
        values = self.values(setting, column)
        if not values:
            return NOT_RUN
        return mean_and_interval(values, digits)

    def gain(self, setting: str, column: str, over: str) -> Gain | None:
        """How far a column is above another, over the draws that have both; None for fewer than
        two.
        """
        pairs = [
            (100 * found[column], 100 * found[over])
            for cell in self.groups.get(setting, [])
            if (found := cell.get("accuracies", {})).get(column) is not None
            and found.get(over) is not None
        ]
        if len(pairs) < 2:
            return None
        one, other = zip(*pairs, strict=True)
        differences = np.subtract(one, other)
        return Gain(setting, float(np.mean(differences)), half_width(differences))

    def gains(self, column: str, over: str, match: str = "") -> list[Gain]:
        """In every setting that has both."""
        found = (self.gain(setting, column, over) for setting in self.groups if match in setting)
        return [gain for gain in found if gain is not None]

    # text

    @property
    def draws(self) -> str:
        """How many draws the settings have."""
        counts = [len(cells) for cells in self.groups.values()]
        if not any(counts):
            return f"{NOT_RUN} yet (`python experiments/run.py {self.name}`)"
        low, high = min(counts), max(counts)
        said = f"{high} draw{'s' * (high != 1)}" if low == high else f"{low} to {high} draws"
        due = sum(self.planned.values())
        missing = due - sum(min(n, self.planned.get(s, n)) for s, n in self.count().items())
        return said + (f" ({missing} of {due} cells not run)" if missing > 0 else "")

    def count(self) -> dict[str, int]:
        """Draws of each setting."""
        return {setting: len(cells) for setting, cells in self.groups.items()}

    @property
    def minutes(self) -> str:
        """Processor time of all cells."""
        spent = sum(cell["processor seconds"] for cell in self.cells.values()) / 60
        return (
            f"{spent:.0f} processor minutes"
            if spent >= 2
            else f"{60 * spent:.0f} processor seconds"
        )

    def table(
        self,
        columns: list[str] | None = None,
        over: str | None = None,
        head: str = "",
        match: str = "",
    ) -> str:
        """Settings down, columns across; in brackets the paired gain over the baseline, and how many
        draws where others have more. The column named in advance is bold.
        """
        if not self.groups:
            return f"*{self.draws}*"
        over = self.baseline if over is None else over
        columns = self.columns if columns is None else columns
        bold = {way: f"**{way}**" if way == self.recommended else way for way in columns}
        rows = []
        for setting in (each for each in self.groups if match in each):
            row = []
            for way in columns:
                text = self._entry(setting, way, over)
                row.append(f"**{text}**" if way == self.recommended and text != NOT_RUN else text)
            rows.append([setting, *row])
        return markdown([head, *bold.values()], rows)

    def _entry(self, setting: str, way: str, over: str) -> str:
        gain = None if way == over else self.gain(setting, way, over)
        mean, draws = self.mean(setting, way), len(self.values(setting, way))
        beside = [str(gain)] if gain else []
        if 0 < draws < len(self.groups[setting]):
            beside.append(f"{draws} draw{'s' * (draws > 1)}")
        shown = mean.partition(" ")[0] if gain else mean
        return f"{shown} ({'; '.join(beside)})" if beside else shown

    def parts(self, most: int = 9) -> list[list[str]]:
        """The columns of as many tables as are needed for none to be too wide."""
        tables = -(-len(self.columns) // most) or 1
        each = -(-len(self.columns) // tables)
        return [self.columns[i : i + each] for i in range(0, len(self.columns), max(each, 1))]

    def verdict(self, column: str | None = None, over: str | None = None, match: str = "") -> str:
        """One sentence: in how many settings one column is significantly above another."""
        column, over = column or self.recommended, over or self.baseline
        gains = self.gains(column, over, match)
        planned = sum(match in setting for setting in self.groups)
        if not gains:
            return f"*{column}* beside *{over}*: {NOT_RUN}."
        above = sum(gain.sign > 0 for gain in gains)
        below = [gain for gain in gains if gain.sign < 0]
        mean = sum(gain.mean for gain in gains) / len(gains)
        told = f"*{column}* is significantly above *{over}* in {above} of {len(gains)} settings"
        told += f", significantly below in {len(below)}" + _listed(below)
        told += f"; on average {mean:+.1f} points"
        if len(gains) < planned:
            told += f" ({planned - len(gains)} settings are not run)"
        return told + "."

    def beside_best(self, others: list[str], column: str | None = None, match: str = "") -> str:
        """One sentence: how far the mean of a column is from the best of others in each setting."""
        column, told, near = column or self.recommended, [], 0
        for setting in (each for each in self.groups if match in each):
            gains = {way: self.gain(setting, column, way) for way in others}
            means = {way: gain.mean for way, gain in gains.items() if gain is not None}
            if means:
                best = min(means, key=lambda way: means[way])
                near += means[best] >= -1
                told.append(f"{setting} {means[best]:+.1f} ({best})")
        if not told:
            return f"*{column}* beside the best of {', '.join(others)}: {NOT_RUN}."
        return (
            f"*{column}* beside the best of {', '.join(others)} on the same draws: {'; '.join(told)}; "
            f"at most one point below in {near} of {len(told)} settings."
        )

    def scoreboard(self, column: str | None = None, match: str = "") -> str:
        """The column named in advance against each other one: in how many settings it is
        significantly above and below, and the mean of the gains.
        """
        column, rows = column or self.recommended, []
        for over in self.columns:
            gains = self.gains(column, over, match) if over != column else []
            if gains:
                signs = [gain.sign for gain in gains]
                counts = [f"{signs.count(sign)} of {len(gains)}" for sign in (1, -1)]
                mean = sum(gain.mean for gain in gains) / len(gains)
                rows.append([over, *counts, f"{mean:+.1f}"])
        head = [f"{column} against", "significantly above", "significantly below", "mean gain"]
        return markdown(head, rows) if rows else f"*{column}: {NOT_RUN}*"

    @property
    def told(self) -> str:
        """The settings, as one line."""
        hidden = {"COLUMNS", "RECOMMENDED", "BASELINE", "DRAWN", "PAPER"}
        each = (
            f"{key} {json.dumps(value, ensure_ascii=False)}"
            for key, value in self.settings.items()
            if key not in hidden
        )
        return f"`{'; '.join(each)}`" if self.settings else "none stored"


def benchmark(name: str) -> dict[str, Any]:
    """A file of benchmarks/results."""
    path = evidence.FOLDER.parent / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def _listed(gains: list[Gain]) -> str:
    return f" ({'; '.join(f'{gain.setting} {gain}' for gain in gains)})" if gains else ""


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table.

    >>> print(markdown(["", "a"], [["x", "1"]]))
    | | a |
    | --- | --- |
    | x | 1 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(re.sub(r"\|  \|", "| |", f"| {' | '.join(line)} |") for line in lines)

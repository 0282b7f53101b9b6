"""Columns of tables put in one order by their names, with a constant for those that one side
lacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect.data.spaces.saved import damaged, dict_in, names_in, numbers_in
from advect.data.spaces.step import Names, Step
from advect.errors import InputError


@dataclass(frozen=True)
class Columns(Step):
    """Features by name; ``fill`` has a value for each name that only one side has."""

    given: tuple[str, ...]
    wanted: tuple[str, ...]
    fill: Mapping[str, float]
    kind: ClassVar[str] = "columns"
    keeps_units: ClassVar[bool] = True

    @property
    def dim_in(self) -> int:
        return len(self.given)

    @property
    def dim_out(self) -> int:
        return len(self.wanted)

    def apply(self, x: Tensor) -> Tensor:
        return pick(x, self.given, self.wanted, self.fill)

    def invert(self, x: Tensor) -> Tensor:
        return pick(x, self.wanted, self.given, self.fill)

    @property
    def dropped(self) -> tuple[str, ...]:
        return tuple(_less(self.given, self.wanted))

    @property
    def lacking(self) -> frozenset[str]:
        return frozenset(name for name in self.wanted if math.isnan(self.fill.get(name, 0.0)))

    def filled_with(self, values: Tensor) -> Columns:
        known = dict(zip(self.wanted, values.tolist(), strict=True))
        new = {name: known[name] for name in self.lacking}
        return Columns(self.given, self.wanted, {**self.fill, **new})

    def columns_after(self, names: Names) -> Names:
        return self.wanted

    def check_side(self, shape: tuple[int, ...], columns: Names) -> None:
        if self.given != columns:
            raise damaged("the columns must be those of their side", listed(self.given))

    def describe(self) -> str:
        absent = _less(self.wanted, self.given)
        words = [f"columns dropped: {listed(self.dropped)}"] if self.dropped else []
        words += [f"columns filled with a constant: {listed(absent)}"] if absent else []
        return ", ".join(words) or "columns reordered"

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        return {"given": list(self.given), "wanted": list(self.wanted), "fill": dict(self.fill)}

    @classmethod
    def from_dict(cls, facts: Any) -> Columns:
        given, wanted = names_in(facts, "given"), names_in(facts, "wanted")
        fill, needed = dict_in(facts, "fill"), set(given) ^ set(wanted)
        if set(fill) != needed:
            raise damaged(f"fill must have a value for each of: {listed(sorted(needed))}", fill)
        return cls(given, wanted, {name: float(numbers_in(fill, name, 0)) for name in fill})


def align(
    x: Sequence[Tensor],
    source: tuple[str, ...],
    target: tuple[str, ...],
    how: str | None,
    categories: Mapping[str, str],
) -> tuple[Columns, Columns, tuple[str, ...]]:
    """A step for each side and the names they lead to; columns that a side lacks are NaN until the
    caller fills them.

    ``categories`` has the columns that stand for values, and what they are values of: where a side
    has others of these, it lacks a value because none of its samples has it, and there the column
    is 0."""
    only_source, only_target = _less(source, target), _less(target, source)
    if how is None and (only_source or only_target):
        raise InputError(
            "both datasets must have the same columns",
            f"{listed(only_target)} missing in the source, {listed(only_source)} missing in the "
            "target",
            'Pass columns="common" to keep the shared ones, columns="union" to fill those that are missing with the other '
            "side's mean, or project=k to compare principal components of each; or rename with "
            ".replace(columns=…).",
        )
    shared = tuple(name for name in target if name in set(source))
    wanted = (*target, *only_source) if how == "union" else shared
    if not wanted:
        raise InputError(
            "the datasets share no column",
            f"{listed(source)} in the source, {listed(target)} in the target",
            'Rename with .replace(columns=…), or pass columns="union" or project=k.',
        )
    steps = []
    for features, given in zip(x, (source, target), strict=True):
        means = dict(zip(given, features.double().mean(dim=0).tolist(), strict=True))
        held = {categories[name] for name in given if name in categories}
        absent = {
            name: 0.0 if categories.get(name) in held else float("nan")
            for name in _less(wanted, given)
        }
        steps.append(
            Columns(given, wanted, {name: means[name] for name in _less(given, wanted)} | absent)
        )
    return steps[0], steps[1], wanted


def pick(
    x: Tensor, given: Sequence[str], wanted: Sequence[str], fill: Mapping[str, float]
) -> Tensor:
    """The wanted columns out of the given ones, constant where there is none."""
    place = {name: position for position, name in enumerate(given)}
    index = torch.tensor([place.get(name, 0) for name in wanted], device=x.device)
    held = torch.tensor([name in place for name in wanted], device=x.device)
    if bool(held.all()):
        return x[:, index]
    values = torch.tensor([fill.get(name, 0.0) for name in wanted], dtype=x.dtype, device=x.device)
    return torch.where(held, x[:, index], values)


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first few of many."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(map(repr, names[:8])) + more if names else "none"


def _less(names: Sequence[str], others: Sequence[str]) -> list[str]:
    there = set(others)
    return [name for name in names if name not in there]

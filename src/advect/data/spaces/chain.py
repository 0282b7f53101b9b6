"""The way of one side into the common space: steps on flat features, done in order and undone
backwards.

What each step does is its own file's business, and which steps are needed is ``fitting``'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advect.data.formats import Table
from advect.data.spaces.aligned import Aligned
from advect.data.spaces.columns import Columns
from advect.data.spaces.encoding import Encoding, Given
from advect.data.spaces.images import Pixels
from advect.data.spaces.projection import Projection
from advect.data.spaces.saved import columns_in, damaged, dtype_in, field, list_in, shape_in
from advect.data.spaces.scaling import Affine
from advect.data.spaces.step import Step

_PLAIN = (Pixels, Columns, Affine, Projection, Aligned)


@dataclass(frozen=True, eq=False)
class Chain:
    """What a side's samples are, and the steps that they take."""

    shape: tuple[int, ...]
    columns: tuple[str, ...] | None
    steps: tuple[Step, ...]
    dtype: torch.dtype | None = None
    table: Table | None = None

    @property
    def dim_out(self) -> int:
        return self.steps[-1].dim_out if self.steps else math.prod(self.shape)

    @property
    def columns_out(self) -> tuple[str, ...] | None:
        names = self.columns
        for step in self.steps:
            names = step.columns_after(names)
        return names

    def table_after(self, table: Table | None) -> Table | None:
        """What columns are in the common space: what was scaled is only a number."""
        if table is None or all(step.keeps_units for step in self.steps):
            return table
        return table.without_kinds

    @property
    def only_resizes(self) -> bool:
        """Whether images come to another size or other channels, and nothing else happens."""
        return bool(self.steps) and all(step.only_resizes for step in self.steps)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns of the side that the space has not: the way back can only invent them."""
        return tuple(name for step in self.steps for name in step.dropped)

    def loses(self) -> str:
        """What the way back cannot bring back, in words."""
        return next(filter(None, (step.loses() for step in self.steps)), "")

    def apply(self, x: Tensor) -> Tensor:
        return through(self.steps, x)

    def invert(self, x: Tensor) -> Tensor:
        for step in reversed(self.steps):
            x = step.invert(x)
        return x

    def describe(self) -> str:
        return "; ".join(step.describe() for step in self.steps) or "as it is"

    def shape_after(self, count: int) -> tuple[int, ...]:
        """Shape of a sample after so many steps."""
        return self.steps[count - 1].shape_out if count else self.shape

    @property
    def encoding(self) -> Encoding | None:
        """The step that an encoder makes, if there is one."""
        return next((step for step in self.steps if isinstance(step, Encoding)), None)

    @property
    def invertible(self) -> bool:
        """Whether there is a way back through all steps."""
        return all(step.invertible for step in self.steps)

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        return {
            "sample_shape": list(self.shape),
            "columns": None if self.columns is None else list(self.columns),
            "dtype": None if self.dtype is None else str(self.dtype).removeprefix("torch."),
            "table": None if self.table is None else self.table.to_dict(),
            "steps": [{"kind": step.kind} | step.to_dict(folder) for step in self.steps],
        }

    @classmethod
    def from_dict(cls, facts: Any, given: Given) -> Chain:
        readers: dict[str, Callable[[Any], Step]] = {
            **{step.kind: step.from_dict for step in _PLAIN},
            Encoding.kind: lambda entry: Encoding.from_dict(entry, given),
        }
        shape = shape_in(facts, "sample_shape")
        columns = columns_in(facts, shape)
        dtype = None if facts.get("dtype") is None else dtype_in(facts, "dtype")
        try:  # older files have neither
            table = None if facts.get("table") is None else Table.from_dict(facts["table"])
        except ValueError as error:
            raise damaged("table must describe columns", error) from None
        steps: list[Step] = []
        dim = math.prod(shape)
        for entry in list_in(facts, "steps"):
            kind = field(entry, "kind")
            if type(kind) is not str or kind not in readers:
                raise damaged(f"a step must be one of {', '.join(readers)}", repr(kind))
            step = readers[kind](entry)
            if step.dim_in != dim:
                raise damaged(
                    f"the step {kind!r} must take the {dim} features that reach it", step.dim_in
                )
            step.check_side(shape, columns)
            steps.append(step)
            dim = step.dim_out
        return cls(shape, columns, tuple(steps), dtype, table)


def through(steps: Sequence[Step], x: Tensor) -> Tensor:
    """Features after some steps."""
    for step in steps:
        x = step.apply(x)
    return x

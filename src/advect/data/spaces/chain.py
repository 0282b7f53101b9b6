"""The way of one side into the common space: steps on flat features, done in order and undone
backwards.

What each step does is its own file's business, and which steps are needed is ``fitting``'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from advect.data.formats import Table
from advect.data.spaces.columns import Columns, listed
from advect.data.spaces.images import Pixels
from advect.data.spaces.projection import Projection
from advect.data.spaces.saved import damaged, field, names_in, shape_in, word_in
from advect.data.spaces.scaling import Affine


class Step(Protocol):
    """A change of features (n, dim_in) to (n, dim_out), with a way back."""

    kind: ClassVar[str]

    @property
    def dim_in(self) -> int: ...
    @property
    def dim_out(self) -> int: ...
    def apply(self, x: Tensor) -> Tensor: ...
    def invert(self, x: Tensor) -> Tensor: ...
    def describe(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


_KINDS = {step.kind: step for step in (Pixels, Columns, Affine, Projection)}


@dataclass(frozen=True, eq=False)
class Chain:
    """What a side's samples are (shape, columns, dtype, what the columns were), and the steps that
    they take.
    """

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
            names = (
                step.wanted
                if isinstance(step, Columns)
                else None
                if isinstance(step, Projection)
                else names
            )
        return names

    @property
    def keeps_units(self) -> bool:
        """Whether numbers of a table stay what they were: its columns are chosen and ordered at
        most.
        """
        return all(isinstance(step, Columns) for step in self.steps)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns of the side that the space has not: the way back can only invent them."""
        steps = [step for step in self.steps if isinstance(step, Columns)]
        return tuple(name for step in steps for name in step.given if name not in set(step.wanted))

    @property
    def projection(self) -> Projection | None:
        """The step that keeps some principal components only, if there is one."""
        lossy = [
            step
            for step in self.steps
            if isinstance(step, Projection) and step.dim_out < step.dim_in
        ]
        return lossy[0] if lossy else None

    def apply(self, x: Tensor) -> Tensor:
        return through(self.steps, x)

    def invert(self, x: Tensor) -> Tensor:
        for step in reversed(self.steps):
            x = step.invert(x)
        return x

    def describe(self) -> str:
        return "; ".join(step.describe() for step in self.steps) or "as it is"

    def to_dict(self) -> dict[str, Any]:
        return {
            "sample_shape": list(self.shape),
            "columns": None if self.columns is None else list(self.columns),
            "dtype": None if self.dtype is None else str(self.dtype).removeprefix("torch."),
            "table": None if self.table is None else self.table.to_dict(),
            "steps": [{"kind": step.kind} | step.to_dict() for step in self.steps],
        }

    @classmethod
    def from_dict(cls, facts: Any) -> Chain:
        shape = shape_in(facts, "sample_shape")
        columns = None if field(facts, "columns") is None else names_in(facts, "columns")
        if columns is not None and shape != (len(columns),):
            raise damaged(
                f"there must be one name for each feature of samples of shape {shape}",
                f"{len(columns)} names",
            )
        dtype = (
            None
            if facts.get("dtype") is None
            else getattr(torch, word_in(facts, "dtype", ("float32", "float64")))
        )
        try:  # older files have neither
            table = None if facts.get("table") is None else Table.from_dict(facts["table"])
        except ValueError as error:
            raise damaged("table must describe columns", error) from None
        entries, steps, dim = field(facts, "steps"), [], math.prod(shape)
        if not isinstance(entries, list):
            raise damaged("steps must be a list", type(entries).__name__)
        for entry in entries:
            kind = field(entry, "kind")
            if not isinstance(kind, str) or kind not in _KINDS:
                raise damaged(f"a step must be one of {', '.join(_KINDS)}", repr(kind))
            step = _KINDS[kind].from_dict(entry)
            if step.dim_in != dim:
                raise damaged(
                    f"the step {kind!r} must take the {dim} features that reach it", step.dim_in
                )
            if isinstance(step, Pixels) and step.shape != shape:
                raise damaged(f"the images must have the shape {shape} of their side", step.shape)
            if isinstance(step, Columns) and step.given != columns:
                raise damaged("the columns must be those of their side", listed(step.given))
            steps.append(step)
            dim = step.dim_out
        return cls(shape, columns, tuple(steps), dtype, table)


def through(steps: Sequence[Step], x: Tensor) -> Tensor:
    """Features after some steps."""
    for step in steps:
        x = step.apply(x)
    return x

"""Steps of a feature space on flat features: order of columns, scale and principal components.

Each step maps features (n, d) forward (``apply``) and back (``invert``), and is saved as the plain
numbers and strings of its fields.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from advect._util import check_finite, refuse_if
from advect.data.laws import principal_axes

Names = tuple[str, ...] | None
SCALES = ("none", "auto", "each", "pooled", "target")


@dataclass(frozen=True, eq=False)
class Step:
    """A map of features with an inverse, exact or by least squares; its fields are saved."""

    kind: ClassVar[str]  # the name in the saved form

    @abstractmethod
    def apply(self, x: Tensor) -> Tensor: ...
    @abstractmethod
    def invert(self, x: Tensor) -> Tensor: ...
    @abstractmethod
    def describe(self) -> str: ...

    keeps_kinds: ClassVar[bool] = False  # whether columns keep their kinds

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns that are left out."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: v.tolist() if torch.is_tensor(v) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, facts: Any) -> Self:
        saved = [entry for entry in fields(cls) if entry.name in facts]  # 0.2 had fewer
        return cls(**{entry.name: _read(entry.type, facts[entry.name]) for entry in saved})


@dataclass(frozen=True, eq=False)
class Columns(Step):
    """Columns selected by name; ``fill`` has a constant for each name that one side lacks."""

    given: tuple[str, ...]
    wanted: tuple[str, ...]
    fill: Mapping[str, float]
    kind: ClassVar[str] = "columns"
    keeps_kinds: ClassVar[bool] = True

    @property
    def dropped(self) -> tuple[str, ...]:
        return difference(self.given, self.wanted)

    def apply(self, x: Tensor) -> Tensor:
        return select(x, self.given, self.wanted, self.fill)

    def invert(self, x: Tensor) -> Tensor:
        return select(x, self.wanted, self.given, self.fill)

    def describe(self) -> str:
        absent = difference(self.wanted, self.given)
        return f"columns dropped: {listed(self.dropped)}, filled with a constant: {listed(absent)}"


@dataclass(frozen=True, eq=False)
class Scale(Step):
    """(x − offset) / width, with a number for each feature."""

    offset: Tensor
    width: Tensor
    kind: ClassVar[str] = "scale"

    @classmethod
    def fit(cls, x: Tensor, weights: Tensor | None = None) -> Scale:
        """Mean and standard deviation of each feature, by weights (n,) of sum 1."""
        x = x.double()
        weights = torch.full_like(x[:, 0], 1 / len(x)) if weights is None else weights.double()
        # relative to the minimum, constant features are exactly 0 whatever their mean rounds to
        low = x.amin(dim=0)
        mean = weights @ (x - low)
        centred = x - low - mean
        top = centred.abs().amax(dim=0)
        unit = centred / top.where(top > 0, 1)  # squares neither overflow nor underflow
        offset, width = low + mean, top * (weights @ unit.square()).sqrt()
        check_finite(
            "offsets and widths of features",
            torch.stack([offset, width]),
            "The features are too large to scale: divide them by a constant first.",
        )
        return cls(offset.cpu(), width.where(width > 0, 1).cpu())

    def apply(self, x: Tensor) -> Tensor:
        return ((x.double() - self.offset.to(x.device)) / self.width.to(x.device)).to(x.dtype)

    def invert(self, x: Tensor) -> Tensor:
        return (x.double() * self.width.to(x.device) + self.offset.to(x.device)).to(x.dtype)

    def describe(self) -> str:
        return "features each standardized"


@dataclass(frozen=True, eq=False)
class Projection(Step):
    """Coordinates along orthonormal ``components`` (k, d), the principal components of a fit."""

    centre: Tensor
    components: Tensor
    kind: ClassVar[str] = "project"

    @classmethod
    def fit(cls, k: int, x: Tensor) -> Projection:
        n, d = x.shape
        refuse_if(
            k > min(n - 1, d),
            f"{n} samples of dimension {d} have at most {min(n - 1, d)} components",
            f"project={k}",
            "Lower project, or add samples.",
        )
        centre = x.double().mean(dim=0)
        return cls(centre.cpu(), principal_axes([x.double() - centre])[1][:k].cpu())

    def apply(self, x: Tensor) -> Tensor:
        centred = x.double() - self.centre.to(x.device)
        return (centred @ self.components.to(x.device).mT).to(x.dtype)

    def invert(self, x: Tensor) -> Tensor:
        return (x.double() @ self.components.to(x.device) + self.centre.to(x.device)).to(x.dtype)

    def describe(self) -> str:
        k, d = self.components.shape
        return f"projected from {d} dimensions to {k} principal components"


def applied(steps: Sequence[Step], x: Tensor) -> Tensor:
    return reduce(lambda x, step: step.apply(x), steps, x)


def inverted(steps: Sequence[Step], x: Tensor) -> Tensor:
    return reduce(lambda x, step: step.invert(x), reversed(steps), x)


def select(
    x: Tensor, given: Sequence[str], wanted: Sequence[str], fill: Mapping[str, float]
) -> Tensor:
    """The wanted columns of the given ones; constant where there is none."""
    position = {name: at for at, name in enumerate(given)}
    parts = [
        x[:, position[name]] if name in position else torch.full_like(x[:, 0], fill.get(name, 0.0))
        for name in wanted
    ]
    return torch.stack(parts, dim=1)


def difference(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The names that are not among the others, in order."""
    excluded = set(others)
    return tuple(name for name in names if name not in excluded)


def listed(names: Sequence[Hashable]) -> str:
    """Names for a message, the first eight of many."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(map(repr, names[:8])) + more if names else "none"


def _read(annotation: Any, value: Any) -> Any:
    """A saved value of a field with this annotation."""
    if annotation == "Tensor":
        return torch.tensor(value, dtype=torch.float64)
    return tuple(value) if annotation.startswith("tuple") else value

"""Steps of a feature space on flat features: order of columns, scale and principal components.

Each step maps features (n, d) forward (``apply``) and back (``invert``), and is saved as the plain
numbers and strings of its fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect.data.laws.linalg import principal_axes
from advect.errors import InputError

Names = tuple[str, ...] | None
Shapes = tuple[tuple[int, ...], tuple[int, ...]]  # of a sample before and after a step
SCALES = ("standardize", "standardize-target", "unit")


class Step(Protocol):
    """A map of features with an inverse, exact or by least squares; subclasses are dataclasses.

    Attributes:
        kind: name in the saved form.
        keeps_units: whether the numbers stay in the units of the side.
        only_resizes: whether only the size and channels of images change.
        invertible: False for an encoder without a decoder.
    """

    kind: ClassVar[str]
    keeps_units: ClassVar[bool] = False
    only_resizes: ClassVar[bool] = False

    @property
    def shapes(self) -> Shapes: ...
    def apply(self, x: Tensor) -> Tensor: ...
    def invert(self, x: Tensor) -> Tensor: ...
    def describe(self) -> str: ...

    @property
    def invertible(self) -> bool:
        return True

    def columns_after(self, names: Names) -> Names:
        return None

    def loses(self) -> str:
        """What ``invert`` cannot restore, in words."""
        return ""

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        step: Any = self
        values = {entry.name: getattr(self, entry.name) for entry in fields(step)}
        return {
            name: getattr(value, "tolist", lambda v=value: v)() for name, value in values.items()
        }

    @classmethod
    def from_dict(cls, facts: Any) -> Self:
        step: Any = cls
        return cls(**{e.name: _READERS.get(e.type, _same)(facts[e.name]) for e in fields(step)})


@dataclass(frozen=True)
class Columns(Step):
    """Columns selected by name; ``fill`` has a constant for each name that one side lacks."""

    given: tuple[str, ...]
    wanted: tuple[str, ...]
    fill: Mapping[str, float]
    kind: ClassVar[str] = "columns"
    keeps_units: ClassVar[bool] = True

    @property
    def shapes(self) -> Shapes:
        return (len(self.given),), (len(self.wanted),)

    def apply(self, x: Tensor) -> Tensor:
        return select(x, self.given, self.wanted, self.fill)

    def invert(self, x: Tensor) -> Tensor:
        return select(x, self.wanted, self.given, self.fill)

    @property
    def dropped(self) -> tuple[str, ...]:
        return difference(self.given, self.wanted)

    def filled_with(self, values: Tensor) -> Columns:
        """The same step with these values (d,) where ``fill`` is NaN."""
        known = dict(zip(self.wanted, values.tolist(), strict=True))
        fill = {name: known[name] if math.isnan(v) else v for name, v in self.fill.items()}
        return Columns(self.given, self.wanted, fill)

    def columns_after(self, names: Names) -> Names:
        return self.wanted

    def describe(self) -> str:
        absent = difference(self.wanted, self.given)
        return f"columns dropped: {listed(self.dropped)}, filled with a constant: {listed(absent)}"


@dataclass(frozen=True, eq=False)
class Scale(Step):
    """(x − offset) / width, with one number for all features or one for each."""

    dim: int
    offset: Tensor
    width: Tensor
    of: str
    kind: ClassVar[str] = "scale"

    @classmethod
    def fit(cls, x: Tensor, scale: str, of: str, other: Tensor | None = None) -> Scale:
        """Statistics of the samples that have a feature (NaN: none), else of those of ``other``."""
        if scale == "unit":
            low, high = x[~x.isnan()].double().aminmax()
            offset, width = low, high - low
        else:
            offset, width = _moments(x)
        if other is not None:
            pairs = zip((offset, width), _moments(other), strict=True)
            offset, width = (own.where(~own.isnan(), spare) for own, spare in pairs)
        for name, values in (("offsets", offset), ("widths", width)):
            remedy = "The features are too large to scale: divide them by a constant first."
            check_finite(f"{name} of features", values, remedy)
        return cls(x.shape[1], offset.cpu(), width.where(width > 0, 1).cpu(), of)

    @property
    def shapes(self) -> Shapes:
        return (self.dim,), (self.dim,)

    def apply(self, x: Tensor) -> Tensor:
        return ((x.double() - self.offset.to(x.device)) / self.width.to(x.device)).to(x.dtype)

    def invert(self, x: Tensor) -> Tensor:
        return (x.double() * self.width.to(x.device) + self.offset.to(x.device)).to(x.dtype)

    def columns_after(self, names: Names) -> Names:
        return names

    def describe(self) -> str:
        by = "each standardized" if self.offset.ndim else "all divided by their range"
        return f"features {by} ({self.of})"


@dataclass(frozen=True, eq=False)
class Projection(Step):
    """Coordinates along orthonormal ``components`` (k, d), the principal components of a fit."""

    centre: Tensor
    components: Tensor
    of: str
    kind: ClassVar[str] = "project"

    @classmethod
    def fit(cls, x: Tensor, k: int, of: str) -> Projection:
        n, d = x.shape
        if k > min(n - 1, d):
            raise InputError(
                f"{n} samples of dimension {d} ({of}) have at most {min(n - 1, d)} principal "
                "components",
                f"project={k}",
                "Lower project, or add samples.",
            )
        centre = x.double().mean(dim=0)
        return cls(centre.cpu(), principal_axes([x.double() - centre])[1][:k].cpu(), of)

    @property
    def shapes(self) -> Shapes:
        return (self.components.shape[1],), (self.components.shape[0],)

    def apply(self, x: Tensor) -> Tensor:
        centred = x.double() - self.centre.to(x.device)
        return (centred @ self.components.to(x.device).mT).to(x.dtype)

    def invert(self, x: Tensor) -> Tensor:
        return (x.double() @ self.components.to(x.device) + self.centre.to(x.device)).to(x.dtype)

    def loses(self) -> str:
        k, d = self.components.shape
        return f"only {k} principal components of {d} dimensions" if k < d else ""

    def describe(self) -> str:
        k, d = self.components.shape
        return f"projected from {d} dimensions to {k} principal components ({self.of})"


def select(
    x: Tensor, given: Sequence[str], wanted: Sequence[str], fill: Mapping[str, float]
) -> Tensor:
    """The wanted columns of the given ones; constant where there is none."""
    place = {name: position for position, name in enumerate(given)}
    index = torch.tensor([place.get(name, 0) for name in wanted], device=x.device)
    present = torch.tensor([name in place for name in wanted], device=x.device)
    if bool(present.all()):
        return x[:, index]
    values = torch.tensor([fill.get(name, 0.0) for name in wanted], dtype=x.dtype, device=x.device)
    return torch.where(present, x[:, index], values)


def difference(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The names that are not among the others, in order."""
    excluded = set(others)
    return tuple(name for name in names if name not in excluded)


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first eight of many."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(map(repr, names[:8])) + more if names else "none"


def require(condition: object, what: str) -> None:
    """A ValueError for content that ``to_dict`` never writes."""
    if not condition:
        raise ValueError(what)


def read_shape(value: Any) -> tuple[int, ...]:
    """A shape from a saved list."""
    valid = type(value) in (list, tuple) and value and all(type(s) is int and s > 0 for s in value)
    require(valid, f"a shape must have positive whole numbers, not {value!r:.80}")
    return tuple(value)


def _read_numbers(value: Any) -> Tensor:
    numbers = torch.tensor(value, dtype=torch.float64)
    require(numbers.numel() and bool(torch.isfinite(numbers).all()), "numbers must be finite")
    return numbers


def _same(value: Any) -> Any:
    return value


_READERS: dict[Any, Any] = {
    "Tensor": _read_numbers,
    "tuple[int, ...]": read_shape,
    "tuple[str, ...]": lambda value: tuple(map(str, value)),
}


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature without NaN entries, in float64."""
    x = x.double()
    # relative to the minimum, constant features are exactly 0 whatever their mean rounds to
    low = x.where(~x.isnan(), torch.inf).amin(dim=0)
    centred = x - low
    mean = centred.nanmean(dim=0)
    centred = centred - mean
    top = centred.abs().nan_to_num(nan=0.0).amax(dim=0)
    unit = centred / top.where(top > 0, 1)  # squares neither overflow nor underflow
    return low + mean, top * unit.square().nanmean(dim=0).sqrt()

"""Offsets and factors of features, fitted without weights: ranges of whole datasets, means and
deviations of features.

NaN stands for values that a side does not have: statistics are taken over the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect.data.spaces.saved import count_in, damaged, field, numbers_in, word_in
from advect.data.spaces.step import Step

SCALES = ("standardize", "standardize-target", "unit")


@dataclass(frozen=True, eq=False)
class Affine(Step):
    """(x − offset) / width in float64, with one number for all features or one for each."""

    dim: int
    offset: Tensor
    width: Tensor
    of: str
    kind: ClassVar[str] = "scale"

    @property
    def dim_in(self) -> int:
        return self.dim

    @property
    def dim_out(self) -> int:
        return self.dim

    def apply(self, x: Tensor) -> Tensor:
        return ((x.double() - self.offset.to(x.device)) / self.width.to(x.device)).to(x.dtype)

    def invert(self, x: Tensor) -> Tensor:
        return (x.double() * self.width.to(x.device) + self.offset.to(x.device)).to(x.dtype)

    def describe(self) -> str:
        if self.offset.ndim == 0:
            return f"all features less {self.offset.item():g}, divided by {self.width.item():g} (range of the {self.of})"
        return f"each feature less its mean, divided by its deviation (of {'both' if self.of == 'both' else 'the ' + self.of})"

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        offset, width = self.offset.tolist(), self.width.tolist()
        return {"dim": self.dim, "offset": offset, "width": width, "of": self.of}

    @classmethod
    def from_dict(cls, facts: Any) -> Affine:
        dim, ndim = count_in(facts, "dim"), int(type(field(facts, "offset")) is list)
        offset, width = numbers_in(facts, "offset", ndim), numbers_in(facts, "width", ndim)
        if offset.shape != width.shape or offset.shape not in ((), (dim,)):
            raise damaged(
                f"offset and width need one number, or {dim}",
                f"shapes {tuple(offset.shape)} and {tuple(width.shape)}",
            )
        if not bool((width > 0).all()):
            raise damaged("width must be above 0", width.min().item())
        return cls(dim, offset, width, word_in(facts, "of", ("both", "source", "target")))


def fit_scales(scale: str, source: Tensor, target: Tensor, shared: bool) -> tuple[Affine, Affine]:
    """A step for each side; ``shared`` says whether their features are the same ones."""
    if scale == "unit":
        return _unit(source, "source"), _unit(target, "target")
    if not shared:
        return _standard(source, "source"), _standard(target, "target")
    if scale == "standardize":
        both = _standard(torch.cat([source, target]), "both")
        return both, both
    own, other = _moments(target), _moments(source)
    offset, width = (
        mine.where(~mine.isnan(), yours) for mine, yours in zip(own, other, strict=True)
    )
    step = _affine(target.shape[1], offset, width, "target")
    return step, step


def _unit(x: Tensor, of: str) -> Affine:
    low, high = x[~x.isnan()].double().aminmax()
    return _affine(x.shape[1], low, high - low, of)


def _standard(x: Tensor, of: str) -> Affine:
    return _affine(x.shape[1], *_moments(x), of)


def _affine(dim: int, offset: Tensor, width: Tensor, of: str) -> Affine:
    for name, values in (("offsets", offset), ("widths", width)):
        check_finite(
            f"{name} of features",
            values,
            "The features are too large to scale: divide them by a number first.",
        )
    # what is constant is only shifted, to 0
    return Affine(dim, offset.cpu(), width.where(width > 0, 1).cpu(), of)


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation (n) of each feature, float64, NaN where there are no values."""
    x = x.double()
    low = x.where(~x.isnan(), torch.inf).amin(dim=0)
    centred = x - low  # constant features are exactly 0 from here on, whatever their mean rounds to
    mean = centred.nanmean(dim=0)
    centred = centred - mean
    top = centred.abs().nan_to_num(nan=0.0).amax(dim=0)
    unit = centred / top.where(top > 0, 1)  # squares of these neither overflow nor vanish
    return low + mean, top * unit.square().nanmean(dim=0).sqrt()

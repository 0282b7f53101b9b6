"""A side's own directions into a space that was found for two sides of different dimensions, and the
least-squares way back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect.data.spaces.saved import damaged, field, numbers_in
from advect.data.spaces.step import Names, Step


@dataclass(frozen=True, eq=False)
class Aligned(Step):
    """factor · (x − centre) along orthonormal ``axes`` (k, d) of one side; axis j of both sides is
    one direction of the common space.

    Attributes:
        how: what the two sides were aligned by, in words.
        misfit: what is left between matched samples, as a share of both spreads: 0 if they
            coincide, 1 if they have nothing to do with each other.
    """

    centre: Tensor
    axes: Tensor
    factor: float
    how: str
    misfit: float
    kind: ClassVar[str] = "align"

    @property
    def dim_in(self) -> int:
        return self.axes.shape[1]

    @property
    def dim_out(self) -> int:
        return self.axes.shape[0]

    def apply(self, x: Tensor) -> Tensor:
        centred = x.double() - self.centre.to(x.device)
        return (self.factor * (centred @ self.axes.to(x.device).mT)).to(x.dtype)

    def invert(self, x: Tensor) -> Tensor:
        back = x.double() / self.factor @ self.axes.to(x.device)
        return (back + self.centre.to(x.device)).to(x.dtype)

    def columns_after(self, names: Names) -> Names:
        return None

    def loses(self) -> str:
        if self.dim_out == self.dim_in:
            return ""
        return f"only {self.dim_out} directions of {self.dim_in} dimensions"

    def describe(self) -> str:
        times = "" if self.factor == 1 else f" times {self.factor:.4g}"
        return (
            f"{self.dim_out} directions of {self.dim_in} dimensions{times}, aligned by {self.how} "
            f"(misfit {self.misfit:.2f})"
        )

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        numbers = {"centre": self.centre.tolist(), "axes": self.axes.tolist()}
        return numbers | {"factor": self.factor, "how": self.how, "misfit": self.misfit}

    @classmethod
    def from_dict(cls, facts: Any) -> Aligned:
        centre, axes = numbers_in(facts, "centre", 1), numbers_in(facts, "axes", 2)
        if axes.shape[1] != len(centre):
            raise damaged(f"axes must have {len(centre)} loadings each", axes.shape[1])
        if not torch.allclose(axes @ axes.mT, torch.eye(len(axes), dtype=torch.float64), atol=1e-6):
            raise damaged("axes must be orthonormal", "others")
        factor, misfit = (float(numbers_in(facts, name, 0)) for name in ("factor", "misfit"))
        if not factor > 0:
            raise damaged("factor must be above 0", factor)
        how = field(facts, "how")
        if type(how) is not str:
            raise damaged("how must be a text", type(how).__name__)
        return cls(centre, axes, factor, how, misfit)

"""Principal components, fitted in float64, and the least-squares way back from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util.linalg import principal_axes
from advect.data.spaces.saved import damaged, numbers_in, word_in
from advect.data.spaces.step import Names, Step
from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class Projection(Step):
    """Coordinates along orthonormal ``components`` (k, d) of one side or both."""

    centre: Tensor
    components: Tensor
    of: str
    kind: ClassVar[str] = "project"

    @classmethod
    def fit(cls, x: Tensor, k: int, of: str) -> Projection:
        n, d = x.shape
        if k > min(n - 1, d):
            whose = "both datasets together" if of == "both" else f"the {of}"
            raise InputError(
                f"{n} samples of dimension {d} ({whose}) have at most {min(n - 1, d)} principal "
                "components",
                f"project={k}",
                "Project on fewer, or add samples.",
            )
        x = x.double()
        centre = x.mean(dim=0)
        components = principal_axes([x - centre])[1][:k]
        return cls(centre.cpu(), components.cpu(), of)

    @property
    def dim_in(self) -> int:
        return self.components.shape[1]

    @property
    def dim_out(self) -> int:
        return self.components.shape[0]

    def apply(self, x: Tensor) -> Tensor:
        centred = x.double() - self.centre.to(x.device)
        return (centred @ self.components.to(x.device).mT).to(x.dtype)

    def invert(self, x: Tensor) -> Tensor:
        return (x.double() @ self.components.to(x.device) + self.centre.to(x.device)).to(x.dtype)

    def columns_after(self, names: Names) -> Names:
        return None

    def loses(self) -> str:
        if self.dim_out == self.dim_in:
            return ""
        return f"only {self.dim_out} principal components of {self.dim_in} dimensions"

    def describe(self) -> str:
        whose = "both" if self.of == "both" else f"the {self.of}"
        return f"projected from {self.dim_in} dimensions on the first {self.dim_out} principal components of {whose}"

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        centre, components = self.centre.tolist(), self.components.tolist()
        return {"centre": centre, "components": components, "of": self.of}

    @classmethod
    def from_dict(cls, facts: Any) -> Projection:
        centre, components = numbers_in(facts, "centre", 1), numbers_in(facts, "components", 2)
        if components.shape[1] != len(centre):
            raise damaged(f"components must have {len(centre)} loadings each", components.shape[1])
        if not torch.allclose(
            components @ components.mT, torch.eye(len(components), dtype=torch.float64), atol=1e-6
        ):
            raise damaged("components must be orthonormal", "others")
        return cls(centre, components, word_in(facts, "of", ("both", "source", "target")))

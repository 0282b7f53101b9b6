"""A change of flat features with a way back: what the steps of a chain have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol

from torch import Tensor

Names = tuple[str, ...] | None


class Step(Protocol):
    """A change of features (n, dim_in) to (n, dim_out); a new one says what it does and how it is
    saved, and of the rest what is not as it is here.

    Attributes:
        kind: its name where it is saved.  keeps_units: whether the numbers stay what they were.
        only_resizes: whether images change their size and channels, but not their brightness.
    """

    kind: ClassVar[str]
    keeps_units: ClassVar[bool] = False
    only_resizes: ClassVar[bool] = False

    @property
    def dim_in(self) -> int: ...
    @property
    def dim_out(self) -> int: ...
    def apply(self, x: Tensor) -> Tensor: ...
    def invert(self, x: Tensor) -> Tensor: ...
    def describe(self) -> str: ...
    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        """What it is, for JSON; ``folder`` is where that is kept, for steps that need a file."""
        ...

    @property
    def invertible(self) -> bool:
        """Whether there is a way back."""
        return True

    @property
    def shape_out(self) -> tuple[int, ...]:
        """Shape of a sample that comes out."""
        return (self.dim_out,)

    @property
    def dropped(self) -> tuple[str, ...]:
        """Names of columns that only the way back has."""
        return ()

    @property
    def lacking(self) -> frozenset[str]:
        """Names of columns that wait for a value."""
        return frozenset()

    def filled_with(self, values: Tensor) -> Step:
        """The same step with these values, (dim_out,), for the columns that are ``lacking``."""
        return self

    def columns_after(self, names: Names) -> Names:
        """Names of the features that come out, given those that go in."""
        return names

    def loses(self) -> str:
        """What the way back cannot bring back, in words."""
        return ""

    def check_side(self, shape: tuple[int, ...], columns: Names) -> None:
        """An error if the step is not one for samples of this shape and these columns."""

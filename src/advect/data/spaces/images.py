"""Images of one size and channel count, and back: the step for samples that are pictures.

Which size and channels two datasets meet in is decided by ``fitting``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from advect.data.spaces.saved import damaged, field, numbers_in, shape_in
from advect.data.spaces.step import Names, Step


def layout(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, height, width) of a sample, or None when it is no image."""
    if len(shape) == 2:
        return 1, *shape
    if len(shape) == 3 and shape[2] in (1, 3, 4):
        return shape[2], shape[0], shape[1]
    if len(shape) == 3 and _channels_first(shape):
        return shape[0], shape[1], shape[2]
    return None


def brightness_range(*sides: tuple[tuple[int, ...], Tensor]) -> tuple[float, float] | None:
    """The range of brightness of some images, given (sample shape, features) of each: 0 … 1, or 0 …
    255 of whole numbers.

    None where any of them is no image, or has other values.
    """
    if not sides or any(layout(shape) is None or len(x) == 0 for shape, x in sides):
        return None
    low, high = min(float(x.min()) for _, x in sides), max(float(x.max()) for _, x in sides)
    if low < 0 or high > 255:
        return None
    if high <= 1:
        return 0.0, 1.0
    return (0.0, 255.0) if all(bool((x == x.round()).all()) for _, x in sides) else None


@dataclass(frozen=True)
class Pixels(Step):
    """Images to gray or rgb of one size, with the axes of ``out``; ``alpha`` is what an alpha channel
    comes back as.
    """

    shape: tuple[int, ...]
    out: tuple[int, ...]
    alpha: float | None = None
    kind: ClassVar[str] = "pixels"
    only_resizes: ClassVar[bool] = True

    @classmethod
    def fit(cls, x: Tensor, shape: tuple[int, ...], out: tuple[int, ...]) -> Pixels:
        planes = _planes(x, shape)
        alpha = float(planes[:, 3].double().mean()) if planes.shape[1] == 4 else None
        return cls(shape, out, alpha)

    @property
    def dim_in(self) -> int:
        return math.prod(self.shape)

    @property
    def dim_out(self) -> int:
        return math.prod(self.out)

    @property
    def shape_out(self) -> tuple[int, ...]:
        return self.out

    def apply(self, x: Tensor) -> Tensor:
        planes = _planes(x, self.shape)[:, :3]
        channels, *sides = _layout(self.out)
        if channels == 1 and planes.shape[1] == 3:
            luma = planes.new_tensor([0.299, 0.587, 0.114])
            planes = (planes * luma[:, None, None]).sum(1, keepdim=True)  # (n, 3, H, W) * (3, 1, 1)
        planes = _resize(planes, (sides[0], sides[1]))
        return _flat(planes.expand(-1, channels, -1, -1), self.out)

    def invert(self, x: Tensor) -> Tensor:
        channels, *sides = _layout(self.shape)
        planes = _planes(x, self.out)
        if channels == 1:
            planes = planes.mean(dim=1, keepdim=True)
        planes = _undo_resize(planes, (sides[0], sides[1]))
        if channels > 1:
            planes = planes.expand(-1, 3, -1, -1)
        if channels == 4:
            assert self.alpha is not None
            planes = torch.cat([planes, torch.full_like(planes[:, :1], self.alpha)], dim=1)
        return _flat(planes, self.shape)

    def check_side(self, shape: tuple[int, ...], columns: Names) -> None:
        if self.shape != shape:
            raise damaged(f"the images must have the shape {shape} of their side", self.shape)

    def describe(self) -> str:
        channels, *sides = _layout(self.shape)
        after, *meet = _layout(self.out)
        words = []
        if sides != meet:
            words.append(f"resized from {sides[0]} × {sides[1]} to {meet[0]} × {meet[1]}")
        if channels == 4:
            words.append("alpha dropped")
        if channels > 1 and after == 1:
            words.append("colour to gray")
        if channels == 1 and after == 3:
            words.append("gray repeated as rgb")
        return ", ".join(words) or "axes moved"

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        return {"shape": list(self.shape), "out": list(self.out), "alpha": self.alpha}

    @classmethod
    def from_dict(cls, facts: Any) -> Pixels:
        shape, out = shape_in(facts, "shape"), shape_in(facts, "out")
        picture = layout(shape)
        if picture is None:
            raise damaged("shape must be that of an image", shape)
        if (layout(out) or (4,))[0] == 4:
            raise damaged("out must be that of an image of one or three channels", out)
        alpha = None if field(facts, "alpha") is None else float(numbers_in(facts, "alpha", 0))
        if (alpha is not None) != (picture[0] == 4):
            raise damaged(
                f"alpha belongs to images of four channels, and to them only; shape is {shape}",
                alpha,
            )
        return cls(shape, out, alpha)


def laid_out(like: tuple[int, ...], channels: int, sides: tuple[int, int]) -> tuple[int, ...]:
    """The shape of images of so many channels, with the axes that ``like`` has where it has as many.

    Example:
        >>> laid_out((1, 16, 16), 1, (28, 28)), laid_out((16, 16), 1, (28, 28)), laid_out((1, 16, 16), 3, (28, 28))
        ((1, 28, 28), (28, 28), (28, 28, 3))
    """
    if len(like) == 3 and _layout(like)[0] == channels:
        return (channels, *sides) if _channels_first(like) else (*sides, channels)
    return sides if channels == 1 else (*sides, channels)


def _layout(shape: tuple[int, ...]) -> tuple[int, int, int]:
    found = layout(shape)
    assert found is not None
    return found


def _channels_first(shape: tuple[int, ...]) -> bool:
    return shape[2] not in (1, 3, 4) and shape[0] in (1, 3) and min(shape[1:]) > 4


def _planes(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Flat features as (n, C, H, W)."""
    samples = x.reshape(len(x), *shape)
    if len(shape) == 2:
        return samples[:, None]
    return samples if _channels_first(shape) else samples.movedim(3, 1)


def _flat(planes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(n, C, H, W) as the flat features of samples of that shape."""
    if len(shape) == 3 and not _channels_first(shape):
        planes = planes.movedim(1, 3)
    return planes.reshape(len(planes), -1)


def _resize(planes: Tensor, sides: tuple[int, ...]) -> Tensor:
    if planes.shape[2:] == sides:
        return planes
    return interpolate(
        planes, size=list(sides), mode="bilinear", antialias=True, align_corners=False
    )


def _undo_resize(planes: Tensor, sides: tuple[int, int]) -> Tensor:
    """Images of these sides whose resizing is nearest to the given ones, each axis on its own."""
    if planes.shape[2:] == sides:
        return planes
    tall, wide = (
        _way_back(side, now).to(planes.device)
        for side, now in zip(sides, planes.shape[2:], strict=True)
    )
    return (tall @ planes.double() @ wide.mT).to(planes.dtype)


def _way_back(before: int, after: int) -> Tensor:
    """A generalised inverse, (before, after), of resizing an axis from ``before`` to ``after``
    pixels.

    When enlarging, the pseudo-inverse R⁺. When shrinking, the enlargement B plus the smallest
    change that makes it shrink to what is given: unlike with R⁺ alone, constant images come back
    constant up to the border."""
    shrink, enlarge = _matrix(before, after), _matrix(after, before)
    rest = torch.eye(after, dtype=torch.float64) - shrink @ enlarge
    # R⁺ itself where R⁺ R = 1, that is when enlarging
    return enlarge + torch.linalg.pinv(shrink) @ rest


def _matrix(before: int, after: int) -> Tensor:
    """Resizing of an axis as a matrix (after, before)."""
    return _resize(torch.eye(before, dtype=torch.float64)[None, None], (after, before))[0, 0]

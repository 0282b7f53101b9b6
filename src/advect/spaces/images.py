"""Images of one size and number of channels, and back: the step for samples that are images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from advect.spaces.steps import Step


def layout(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(channels, height, width) of a sample, or None if it is not an image."""
    if len(shape) == 2:
        return 1, *shape
    if len(shape) == 3 and shape[2] in (1, 3):
        return shape[2], shape[0], shape[1]
    return shape if len(shape) == 3 and _channels_first(shape) else None


def brightness_range(*sides: tuple[tuple[int, ...], Tensor]) -> tuple[float, float] | None:
    """(0, 1), or (0, 255) for whole numbers, if these (sample shape, features) are images in it."""
    if not sides or any(layout(shape) is None or len(x) == 0 for shape, x in sides):
        return None
    low, high = min(float(x.min()) for _, x in sides), max(float(x.max()) for _, x in sides)
    whole = all(bool((x == x.round()).all()) for _, x in sides)
    fits = low >= 0 and (high <= 1 or (high <= 255 and whole))
    return (0.0, 1.0 if high <= 1 else 255.0) if fits else None


@dataclass(frozen=True, eq=False)
class Pixels(Step):
    """Images of shape ``shape`` resized to ``out``, gray or rgb."""

    shape: tuple[int, ...]
    out: tuple[int, ...]
    fit: str = "stretch"
    kind: ClassVar[str] = "pixels"

    @property
    def inner(self) -> tuple[int, int]:
        """Height and width before black margins are added (pad) or margins are cut off (crop)."""
        before, after = (layout(shape) or shape for shape in (self.shape, self.out))
        ratios = after[1] / before[1], after[2] / before[2]
        if self.fit == "stretch":
            return after[1], after[2]
        ratio = min(ratios) if self.fit == "pad" else max(ratios)
        return max(1, round(before[1] * ratio)), max(1, round(before[2] * ratio))

    @property
    def margins(self) -> list[int]:
        """Pixels to add (left, right, top, bottom); negative to cut off."""
        _, height, width = layout(self.out) or self.out
        gaps = width - self.inner[1], height - self.inner[0]
        return [part for gap in gaps for part in (gap // 2, gap - gap // 2)]

    def apply(self, x: Tensor) -> Tensor:
        planes = _planes(x, self.shape)
        channels = (layout(self.out) or self.out)[0]
        if channels == 1 and planes.shape[1] == 3:
            luma = planes.new_tensor([0.299, 0.587, 0.114])
            planes = (planes * luma[:, None, None]).sum(1, keepdim=True)  # (n, 3, H, W) * (3, 1, 1)
        planes = pad(_resize(planes, self.inner), self.margins)
        return _flat(planes.expand(-1, channels, -1, -1), self.out)

    def invert(self, x: Tensor) -> Tensor:
        channels, height, width = layout(self.shape) or self.shape
        planes = _planes(x, self.out)
        planes = planes.mean(dim=1, keepdim=True) if channels == 1 else planes
        planes = pad(planes, [-margin for margin in self.margins])
        if planes.shape[2:] != (height, width):  # axis by axis, by least squares
            tall = _inverse(height, planes.shape[2]).to(x.device)
            wide = _inverse(width, planes.shape[3]).to(x.device)
            planes = (tall @ planes.double() @ wide.mT).to(x.dtype)
        return _flat(planes.expand(-1, channels, -1, -1), self.shape)

    def describe(self) -> str:
        fit = f" ({self.fit})" if any(self.margins) else ""
        return f"images of shape {self.shape} as {self.out}{fit}"


def image_shape(like: tuple[int, ...], channels: int, sides: tuple[int, int]) -> tuple[int, ...]:
    """Shape of images of so many channels, with the axes of ``like`` if it has as many."""
    if len(like) == 3 and (layout(like) or (0,))[0] == channels:
        return (channels, *sides) if _channels_first(like) else (*sides, channels)
    return sides if channels == 1 else (*sides, channels)


def _channels_first(shape: tuple[int, ...]) -> bool:
    return shape[2] not in (1, 3) and shape[0] in (1, 3) and min(shape[1:]) > 4


def _planes(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Flat features as (n, C, H, W)."""
    samples = x.reshape(len(x), *shape)
    if len(shape) == 2:
        return samples[:, None]
    return samples if _channels_first(shape) else samples.movedim(3, 1)


def _flat(planes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(n, C, H, W) as flat features of samples of this shape."""
    if len(shape) == 3 and not _channels_first(shape):
        planes = planes.movedim(1, 3)
    return planes.reshape(len(planes), -1)


def _resize(planes: Tensor, sides: tuple[int, int]) -> Tensor:
    if planes.shape[2:] == sides:
        return planes
    return interpolate(planes, size=sides, mode="bilinear", antialias=True, align_corners=False)


def _inverse(before: int, after: int) -> Tensor:
    """A generalised inverse (before, after) of resizing an axis from ``before`` to ``after`` pixels.

    With R the resizing and B the resizing back, it is B + R⁺(1 − R B): R⁺ when enlarging; when
    shrinking, B with the smallest correction that makes it shrink to the given image. Unlike R⁺
    alone, it maps constant images to constant images."""
    shrink, enlarge = (
        _resize(torch.eye(n, dtype=torch.float64)[None, None], (m, n))[0, 0]
        for n, m in ((before, after), (after, before))
    )
    rest = torch.eye(after, dtype=torch.float64) - shrink @ enlarge
    return enlarge + torch.linalg.pinv(shrink) @ rest

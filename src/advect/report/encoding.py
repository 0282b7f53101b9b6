"""Numbers and images as text in a page: integers in base64, many small images as one picture in a
data URI.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from advect.data.spaces.images import Pixels, layout

_FULL = 32767  # the largest 16-bit integer: half the side of the box
_BLOCK = 256  # images that are resized at once


def pack_integers(values: np.ndarray, kind: str) -> str:
    """Integers of a kind such as ``"<i2"`` as base64, little end first.

    Example:
        >>> pack_integers(np.array([1, -1]), "<i2")
        'AQD//w=='
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(kind)).tobytes()).decode()


@dataclass(frozen=True)
class Box:
    """A cube around points; positions in it are counted in 32767ths of half its side, so that axes
    keep one scale.

    Example:
        >>> box = Box.around([np.array([[0.0, 0.0], [4.0, 2.0]])])
        >>> box.quantised(np.array([[4.0, 1.0]])).tolist(), box.extent.tolist()
        ([[32767, 0]], [1.0, 0.5])
    """

    centre: np.ndarray
    half: float
    extent: np.ndarray  # of the points along each axis, as a share of the cube

    @classmethod
    def around(cls, clouds: list[np.ndarray]) -> Box:
        low = np.min([cloud.reshape(-1, cloud.shape[-1]).min(axis=0) for cloud in clouds], axis=0)
        high = np.max([cloud.reshape(-1, cloud.shape[-1]).max(axis=0) for cloud in clouds], axis=0)
        half = max(float((high - low).max()) / 2, 1e-12)
        return cls((low + high) / 2, half, (high - low) / 2 / half)

    def quantised(self, points: np.ndarray) -> np.ndarray:
        return (
            np.rint((points - self.centre) / self.half * _FULL).clip(-_FULL, _FULL).astype(np.int16)
        )


@dataclass(frozen=True)
class Shades:
    """How features become pixels: resized to at most ``side``, and the range from ``low`` to
    ``high`` to 0 … 255.
    """

    shape: tuple[int, ...]
    low: float
    high: float

    @classmethod
    def of(cls, shape: tuple[int, ...], *clouds: Tensor) -> Shades | None:
        """For images of this shape, with the range of the given ones; None for samples that are no
        images.
        """
        if layout(shape) is None:
            return None
        low, high = min(float(x.min()) for x in clouds), max(float(x.max()) for x in clouds)
        return cls(shape, low, high if high > low else low + 1)

    def pixels(self, x: Tensor, side: int) -> np.ndarray:
        """(n, h, w) or (n, h, w, 3) bytes; values beyond the range are clipped."""
        picture = layout(self.shape)
        assert picture is not None
        channels, height, width = picture
        scale = min(1.0, side / max(height, width))
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        out = size if channels == 1 else (*size, 3)
        resize = Pixels(self.shape, out)
        values = torch.cat(
            [resize.apply(block) for block in x.detach().float().split(_BLOCK)]
        ).reshape(len(x), *out)
        return (
            ((values - self.low) / (self.high - self.low) * 255)
            .round()
            .clamp(0, 255)
            .to(torch.uint8)
            .numpy()
        )


def shrunk(images: np.ndarray, side: int) -> np.ndarray:
    """Images (n, h, w, …) of bytes, no side longer than ``side``."""
    scale = side / max(images.shape[1:3])
    if scale >= 1:
        return images
    planes = torch.from_numpy(images).float().reshape(*images.shape[:3], -1).movedim(3, 1)
    size = [max(1, round(length * scale)) for length in images.shape[1:3]]
    planes = torch.nn.functional.interpolate(
        planes, size=size, mode="bilinear", antialias=True, align_corners=False
    )
    return (
        planes.movedim(1, 3)
        .round()
        .clamp(0, 255)
        .to(torch.uint8)
        .numpy()
        .reshape(len(images), *size, *images.shape[3:])
    )


def fitting_sprite(images: np.ndarray, columns: int, budget: int) -> dict[str, object]:
    """``pack_sprite`` as good as it can be in ``budget`` characters: first the quality goes, then
    the size.
    """
    sprite: dict[str, object] = {}
    for side, quality in ((64, 80), (64, 50), (40, 50), (28, 40), (20, 40), (14, 35), (8, 30)):
        sprite = pack_sprite(shrunk(images, side), columns, quality)
        if len(str(sprite["uri"])) <= budget:
            break
    return sprite


def pack_sprite(images: np.ndarray, columns: int, quality: int) -> dict[str, object]:
    """Images (n, h, w, …) of bytes in rows of ``columns``, as one WebP picture and how to cut it.

    Example:
        >>> sprite = pack_sprite(np.zeros((5, 4, 6), dtype=np.uint8), columns=3, quality=80)
        >>> sprite["width"], sprite["height"], sprite["columns"], sprite["uri"][:22]
        (6, 4, 3, 'data:image/webp;base64')
    """
    from PIL import Image

    n, height, width = images.shape[:3]
    rows = -(-n // columns)
    sheet = np.zeros((rows * columns, *images.shape[1:]), dtype=np.uint8)
    sheet[:n] = images
    # (rows, h, columns, w, …)
    sheet = sheet.reshape(rows, columns, *images.shape[1:]).swapaxes(1, 2)
    content = io.BytesIO()
    picture = Image.fromarray(sheet.reshape(rows * height, columns * width, *images.shape[3:]))
    picture.convert("RGB").save(content, "WEBP", quality=quality, method=2)
    uri = "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()
    return {"uri": uri, "columns": columns, "width": width, "height": height}


def picture_uri(image: np.ndarray) -> str:
    """A picture as text, without loss.

    Example:
        >>> picture_uri(np.zeros((2, 2), dtype=np.uint8))[:22]
        'data:image/png;base64,'
    """
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(image).save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()

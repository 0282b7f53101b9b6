"""Samples that are images: a grid of a few at every frame, and a thumbnail of each sample."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.spaces.images import Pixels, layout
from advect.viz.images import in_turn

_MAX_IMAGES = 40
_GRID_BUDGET, _THUMB_BUDGET = 680_000, 400_000  # characters; there are two thumbnail sheets
_GRID_SIDE, _THUMB_SIDE = 64, 32  # pixels
_BLOCK = 256  # images that are resized at once


@dataclass(frozen=True)
class Shades:
    """How features become pixels: the range from ``low`` to ``high`` becomes 0 … 255."""

    shape: tuple[int, ...]
    low: float
    high: float

    @classmethod
    def of(cls, shape: tuple[int, ...], *clouds: Tensor) -> Shades | None:
        """Shades for the range of the given images; None if samples are not images."""
        if layout(shape) is None:
            return None
        low, high = min(float(x.min()) for x in clouds), max(float(x.max()) for x in clouds)
        return cls(shape, low, high if high > low else low + 1)

    def pixels(self, x: Tensor, side: int) -> np.ndarray:
        """(n, h, w) or (n, h, w, 3) bytes, no side longer than ``side``; other values are clipped."""
        channels, height, width = layout(self.shape) or self.shape
        scale = min(1.0, side / max(height, width))
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        out = size if channels == 1 else (*size, 3)
        blocks = map(Pixels(self.shape, out).apply, x.detach().float().split(_BLOCK))
        values = (torch.cat(list(blocks)) - self.low) / (self.high - self.low) * 255
        return values.round().clamp(0, 255).to(torch.uint8).reshape(len(x), *out).numpy()


class Album:
    """Collects the images of a flow, if its samples are images.

    Pixels are scaled by the range of the source and the target. ``pictures`` maps samples that are not
    images to images."""

    def __init__(
        self,
        before: LabeledDataset,
        after: LabeledDataset,
        target: LabeledDataset | None,
        pictures: Callable[[LabeledDataset], LabeledDataset] | None = None,
    ) -> None:
        self._pictures = pictures if layout(before.sample_shape) is None else None
        before, after = self._look(before), self._look(after)
        looks = [before, *([] if target is None else [self._look(target)])]
        alike = [data.x for data in looks if data.sample_shape == before.sample_shape]
        self._shades = Shades.of(before.sample_shape, *alike)
        self._ends = {"start": before.x, "end": after.x}
        n_classes = len({*before.y.tolist()})
        self._each = max(1, _MAX_IMAGES // n_classes)
        self._rows = in_turn(before, min(_MAX_IMAGES, self._each * n_classes))
        self._sheets: list[np.ndarray] = []

    def add(self, rho: LabeledDataset) -> None:
        """Keep the images of one frame."""
        if self._shades is not None:
            some = self._look(rho.subset(self._rows)).x
            self._sheets.append(self._shades.pixels(some, _GRID_SIDE))

    def _look(self, data: LabeledDataset) -> LabeledDataset:
        return data if self._pictures is None else self._pictures(data)

    def packed(self, notes: list[str]) -> dict[str, Any]:
        """Grid and thumbnails for the player."""
        if self._shades is None:
            return {"grid": None, "thumbs": None}
        images = np.stack(self._sheets, axis=1)  # (rows, frames, h, w, …)
        flat = images.reshape(-1, *images.shape[2:])
        sprite = fitting_sprite(flat, images.shape[1], _GRID_BUDGET)
        low, high, last = self._shades.low, self._shades.high, self._ends["end"]
        margin = 0.02 * (high - low)
        if float(last.min()) < low - margin or float(last.max()) > high + margin:
            notes.append(f"Pixels outside {low:.3g} … {high:.3g} are clipped.")
        thumbs = {
            name: fitting_sprite(
                self._shades.pixels(x, _THUMB_SIDE), math.ceil(math.sqrt(len(x))), _THUMB_BUDGET
            )
            for name, x in self._ends.items()
        }
        columns = min(10, self._each * max(1, 8 // self._each))  # a line has whole classes
        grid = {"rows": self._rows, "columns": columns, "sprite": sprite}
        return {"grid": grid, "thumbs": thumbs}


def fitting_sprite(images: np.ndarray, columns: int, budget: int) -> dict[str, object]:
    """The best ``pack_sprite`` within ``budget`` characters: quality is reduced first, then size."""
    sprite: dict[str, object] = {}
    for side, quality in ((64, 80), (64, 50), (40, 50), (28, 40), (20, 40), (14, 35), (8, 30)):
        small = Shades(images.shape[1:], 0, 255).pixels(torch.from_numpy(images).flatten(1), side)
        sprite = pack_sprite(small, columns, quality)
        if len(str(sprite["uri"])) <= budget:
            break
    return sprite


def pack_sprite(images: np.ndarray, columns: int, quality: int) -> dict[str, object]:
    """Images (n, h, w, …) of bytes in rows of ``columns``, as one WebP image and its layout."""
    from PIL import Image

    n, height, width = images.shape[:3]
    rows = -(-n // columns)
    sheet = np.zeros((rows * columns, *images.shape[1:]), dtype=np.uint8)
    sheet[:n] = images
    sheet = sheet.reshape(rows, columns, *images.shape[1:]).swapaxes(1, 2)  # (rows, h, columns, w)
    content = io.BytesIO()
    picture = Image.fromarray(sheet.reshape(rows * height, columns * width, *images.shape[3:]))
    picture.convert("RGB").save(content, "WEBP", quality=quality, method=2)
    uri = "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()
    return {"uri": uri, "columns": columns, "width": width, "height": height}

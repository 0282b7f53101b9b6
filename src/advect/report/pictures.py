"""Samples that are images: a grid of a few at every frame, and a thumbnail of each at the start, at
the end, of the target.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.spaces.images import layout
from advect.data.spaces.pictures import Pictures
from advect.report.encoding import Shades, fitting_sprite

MOST_IMAGES = 40
# characters; there are up to three sheets of thumbnails
_GRID_BUDGET, _THUMB_BUDGET = 680_000, 400_000
_GRID_SIDE, _THUMB_SIDE = 64, 32  # pixels


class Album:
    """Collects the images of a flow; without any where samples are no images.

    Pixels are scaled by the range of the source and the target, and those that leave it are drawn
    as the nearest in it. ``pictures`` says how samples look that are no images themselves.

    Attributes:
        how: where the images come from, in words; empty if samples are images."""

    def __init__(
        self,
        before: LabeledDataset,
        after: LabeledDataset,
        target: LabeledDataset | None,
        pictures: Pictures | None = None,
    ) -> None:
        self._pictures = pictures if layout(before.sample_shape) is None else None
        self.how = "" if self._pictures is None else self._pictures.how
        before, after = self._look(before), self._look(after)
        target = None if target is None else self._look(target)
        alike = [] if target is None or target.sample_shape != before.sample_shape else [target.x]
        self._shades = Shades.of(before.sample_shape, before.x, *alike)
        self._sets = {"start": (self._shades, before.x), "end": (self._shades, after.x)}
        if target is not None:
            self._sets["target"] = (
                self._shades if alike else Shades.of(target.sample_shape, target.x),
                target.x,
            )
        self._rows, self._columns = _grid_rows(before)
        self._sheets: list[np.ndarray] = []

    def add(self, rho: LabeledDataset) -> None:
        """Keep the images of one frame."""
        if self._shades is not None:
            some = self._look(rho.subset(self._rows))
            self._sheets.append(self._shades.pixels(some.x, _GRID_SIDE))

    def _look(self, data: LabeledDataset) -> LabeledDataset:
        return data if self._pictures is None else self._pictures(data)

    def packed(self, notes: list[str]) -> dict[str, Any]:
        """Grid and thumbnails for the player."""
        if self._shades is None:
            return {"grid": None, "thumbs": None}
        images = np.stack(self._sheets, axis=1)  # (rows, frames, h, w, …)
        sprite = fitting_sprite(
            images.reshape(-1, *images.shape[2:]), images.shape[1], _GRID_BUDGET
        )
        low, high, last = self._shades.low, self._shades.high, self._sets["end"][1]
        if float(last.min()) < low - 0.02 * (high - low) or float(last.max()) > high + 0.02 * (
            high - low
        ):
            notes.append(
                f"Pixels that the flow took beyond {low:.3g} … {high:.3g} are drawn as the nearest "
                "of these."
            )
        thumbs = {
            name: _sheet(shades, x)
            for name, (shades, x) in self._sets.items()
            if shades is not None
        }
        return {
            "grid": {"rows": self._rows, "columns": self._columns, "sprite": sprite},
            "thumbs": thumbs,
        }


def _sheet(shades: Shades, x: Tensor) -> dict[str, object]:
    return fitting_sprite(
        shades.pixels(x, _THUMB_SIDE), math.ceil(math.sqrt(len(x))), _THUMB_BUDGET
    )


def _grid_rows(data: LabeledDataset) -> tuple[list[int], int]:
    """A few samples of each class, equally many where there are enough, and how many make a line:
    whole classes if they fit.
    """
    codes = data.y.tolist()
    by_class = [
        [i for i, code in enumerate(codes) if code == wanted] for wanted in sorted(set(codes))
    ]
    each = max(1, MOST_IMAGES // len(by_class))
    rows = [i for members in by_class for i in members[:each]][:MOST_IMAGES]
    return rows, min(10, each * max(1, 8 // each))

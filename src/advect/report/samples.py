"""Samples on a page: as pictures with one range of shades, or as rows of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from advect.data.dataset import LabeledDataset
from advect.report.encoding import Shades, picture_uri

_MOST_COLUMNS = 8
_SIDE = 56  # pixels of a picture


class Samples:
    """How samples of some datasets are shown beside each other.

    Args:
        first: whose range of values gives the shades, and whose columns have names.
        others: shown with it; of another shape, all are rows of numbers.
        side: pixels of a picture.

    Attributes:
        columns: names of the numbers in a row; none where samples are pictures.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=4)
        >>> looks = Samples(digits)
        >>> [card["uri"][:22] for card in looks.cards(digits, np.array([2]))]
        ['data:image/png;base64,']
    """

    def __init__(self, first: LabeledDataset, *others: LabeledDataset, side: int = _SIDE) -> None:
        self._side, self.shades = side, None
        if all(data.sample_shape == first.sample_shape for data in others):
            self.shades = Shades.of(first.sample_shape, first.x)
        self.columns: list[str] = []
        if self.shades is None:
            names = first.columns or [f"x{i}" for i in range(first.dim)]
            self.columns = [str(name) for name in names][:_MOST_COLUMNS]

    def cards(self, data: LabeledDataset, rows: np.ndarray) -> list[dict[str, Any]]:
        """Some samples of a dataset, for the template."""
        cards: list[dict[str, Any]] = [{"row": int(row)} for row in rows]
        if not cards:
            return []
        if self.shades is None:
            for card in cards:
                values = data.x[card["row"], :_MOST_COLUMNS].tolist()
                card["features"] = [f"{value:.4g}" for value in values]
            return cards
        for card, image in zip(cards, self.shades.pixels(data.x[rows], self._side), strict=True):
            card["uri"] = picture_uri(image)
        return cards

    def of_class(self, data: LabeledDataset, name: Any, each: int) -> list[dict[str, Any]]:
        """The first few samples of a class; none where the dataset does not have it."""
        codes = [code for code, known in enumerate(data.classes) if known == name]
        rows = np.flatnonzero(np.isin(data.y.cpu().numpy(), codes))
        return self.cards(data, rows[:each])

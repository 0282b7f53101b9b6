"""Histograms of projected samples, one for each class and direction, whose cells widen with the
range of the samples and that can be added up.

For a direction, cells have the width 2^e, begin at multiples of it, and are numbered from the one
that holds the least sample. e is the least exponent for which all samples fit: it depends on their
range alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.data.formats.names import pack_name, unpack_name

_DIGITS = 44  # binary ones that cells keep of the largest number: all that is left of a projection
_LEAST = -1000  # exponent, for samples at zero
_TENSORS = ("masses", "low", "high")


@dataclass(frozen=True, eq=False)
class Histograms:
    """Masses of cells (k, p, cells), the range (p,) of what is in them, and the classes.

    Example:
        >>> empty = Histograms.empty(1, 4)
        >>> x = torch.tensor([[0.0], [1.0], [7.0]], dtype=torch.float64)
        >>> held = empty.with_samples(x, torch.tensor([0, 0, 0]), ["a"], torch.ones(3).double())
        >>> held.masses.tolist(), held.widths().tolist(), held.centres().tolist()
        ([[[2.0, 0.0, 0.0, 1.0]]], [2.0], [[1.0, 3.0, 5.0, 7.0]])
    """

    masses: Tensor
    low: Tensor
    high: Tensor
    classes: tuple[Hashable, ...]

    @classmethod
    def empty(cls, n_directions: int, cells: int) -> Histograms:
        """Without samples."""
        none = torch.full((n_directions,), torch.inf, dtype=torch.float64)
        return cls(torch.zeros(0, n_directions, cells, dtype=torch.float64), none, -none, ())

    def with_samples(
        self, x: Tensor, codes: Tensor, classes: Sequence[Hashable], weights: Tensor
    ) -> Histograms:
        """With more samples: x (n, p), positions of their classes, weights."""
        wider = self._covering(x.amin(dim=0), x.amax(dim=0), classes)
        exponent, start = wider.grid()
        cells = wider.masses.shape[2]
        # what is rounded at an edge stays inside
        at = (_cell(x.T, exponent[:, None]) - start[:, None]).clamp(0, cells - 1)  # (p, n)
        rows = torch.tensor([wider.classes.index(name) for name in classes])[codes]  # (n,)
        places = (rows * len(start) + torch.arange(len(start))[:, None]) * cells + at
        masses = wider.masses.flatten().index_add(
            0, places.flatten(), weights.expand(places.shape).flatten()
        )
        return Histograms(masses.reshape(wider.masses.shape), wider.low, wider.high, wider.classes)

    def merged(self, other: Histograms) -> Histograms:
        """Of the samples of both."""
        one = self._covering(other.low, other.high, other.classes)
        two = other._covering(self.low, self.high, one.classes)
        order = torch.tensor([two.classes.index(name) for name in one.classes])
        return Histograms(one.masses + two.masses[order], one.low, one.high, one.classes)

    def grid(self) -> tuple[Tensor, Tensor]:
        """For each direction the exponent of the width, and the number of the first cell."""
        return _grid(self.low, self.high, self.masses.shape[2])

    def widths(self) -> Tensor:
        """Of the cells along each direction, (p,)."""
        return _power(self.grid()[0])

    def centres(self) -> Tensor:
        """Of the cells, (p, cells); no farther out than samples are."""
        exponent, start = self.grid()
        cells = torch.arange(self.masses.shape[2]) + start[:, None]
        middles = (cells.double() + 0.5) * _power(exponent)[:, None]
        return middles.clamp(self.low[:, None], self.high[:, None])

    def packed(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything as tensors and facts."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        return tensors, {"classes": [pack_name(name) for name in self.classes]}

    @classmethod
    def unpacked(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Histograms:
        """What ``packed`` gave; ValueError for parts that do not fit."""
        masses, low, high = (tensors[name] for name in _TENSORS)
        classes = tuple(unpack_name(name) for name in facts["classes"])
        shape = (len(classes), len(low))
        if masses.ndim != 3 or masses.shape[:2] != shape or high.shape != low.shape:
            raise ValueError("histograms do not fit the classes")
        if not bool((masses >= 0).all()) or not bool((low <= high).all()):
            raise ValueError("histograms must not be negative")
        return cls(masses, low, high, classes)

    def _covering(self, low: Tensor, high: Tensor, classes: Sequence[Hashable]) -> Histograms:
        """The same with room for a range and for classes."""
        known = set(self.classes)
        names = self.classes + tuple(name for name in classes if name not in known)
        _, p, cells = self.masses.shape
        lowest, highest = torch.minimum(self.low, low), torch.maximum(self.high, high)
        masses = torch.cat([self.masses, self.masses.new_zeros(len(names) - len(known), p, cells)])
        if len(known):
            before, first = self.grid()
            after, start = _grid(lowest, highest, cells)
            numbers = torch.arange(cells) + first[:, None]  # (p, cells)
            # cells beyond the range are empty, and may go anywhere
            to = (numbers >> (after - before).clamp(0, 62)[:, None]) - start[:, None]
            to = to.clamp(0, cells - 1).expand(masses.shape)
            masses = torch.zeros_like(masses).scatter_add(2, to, masses)
        return Histograms(masses, lowest, highest, names)


def _grid(low: Tensor, high: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """The least exponents for which low and high are fewer than ``cells`` cells apart, and the cell
    of low.
    """
    largest = torch.maximum(low.abs(), high.abs())
    least = torch.where(largest > 0, largest.log2().floor() - _DIGITS, _LEAST)
    # at this width there would be twice as many cells as there may be
    guess = torch.where(high > low, ((high - low) / cells).log2().floor() - 1, _LEAST)
    exponent = torch.maximum(least, guess).clamp_min(_LEAST).long()
    while bool((wide := _cell(high, exponent) - _cell(low, exponent) >= cells).any()):
        exponent = exponent + wide
    return exponent, _cell(low, exponent)


def _cell(x: Tensor, exponent: Tensor) -> Tensor:
    return (x / _power(exponent)).floor().long()


def _power(exponent: Tensor) -> Tensor:
    """2^e to the last bit, which torch does not promise."""
    return torch.from_numpy(np.ldexp(1.0, exponent.numpy()))

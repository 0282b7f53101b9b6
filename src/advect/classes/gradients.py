"""Images as histograms of the directions of their edges: an embedding that needs no training.

Two images of one thing that differ by a pixel's shift, by thickness or by contrast are far from
each other in pixels, and near here. The idea is that of histograms of oriented gradients (Dalal and
Triggs, 2005); here, cells are overlapping Gaussian windows, and histograms are compared by their
roots (Hellinger's distance)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from advect._util.checks import check_count
from advect.data.spaces.images import layout
from advect.errors import InputError

_BLOCK = 512  # images at a time
_WIDTH = 1 / 1.5  # standard deviation of a window, in cells


@dataclass(frozen=True)
class OrientedGradients:
    """How much edge of each direction there is in each part of an image, (n, bins · cells²).

    Rows have norm 1 (0 for an image without edges), whatever brightness and contrast the images
    have. Graphs of nearest neighbours and clusters follow the classes of small images far better
    here than in pixels; photographs of scenes ask for a trained network instead.

    Args:
        bins: directions, all around: dark-to-bright is another one than bright-to-dark.
        cells: windows along each side; no more than half the pixels.

    Example:
        >>> import advect as ad
        >>> digits = ad.datasets.load("digits", n=20)
        >>> ad.classes.OrientedGradients()(digits.samples).shape
        torch.Size([20, 192])
        >>> ad.fill_labels(digits, embedding=ad.classes.OrientedGradients()) is digits   # nothing to fill
        True
    """

    bins: int = 12
    cells: int = 9

    def __post_init__(self) -> None:
        check_count("bins", self.bins, least=2)
        check_count("cells", self.cells)

    def __call__(self, samples: Tensor) -> Tensor:
        """Rows for images (n, H, W), (n, H, W, C) or (n, C, H, W).

        Raises:
            InputError: the samples are no images.
        """
        if layout(tuple(samples.shape[1:])) is None:
            raise InputError(
                "oriented gradients are for images",
                f"samples of shape {tuple(samples.shape[1:])}",
                "Pass samples of shape (height, width), with or without channels.",
            )
        return torch.cat([self._rows(_brightness(part)) for part in samples.split(_BLOCK)])

    def _rows(self, images: Tensor) -> Tensor:
        """(m, H, W) to (m, bins · cells²)."""
        down, across = _slopes(images)
        strength = torch.hypot(down, across)
        turn = torch.atan2(down, across) / (2 * math.pi) % 1 * self.bins  # in [0, bins]
        below, share = turn.floor(), turn - turn.floor()
        rows, columns = (_windows(side, self.cells, images) for side in images.shape[1:])
        parts = []
        for direction in range(self.bins):  # each edge counts for the two directions beside it
            here = (below % self.bins == direction) * (1 - share)
            here = here + ((below + 1) % self.bins == direction) * share
            parts.append(rows @ (here * strength) @ columns.T)  # (m, cells, cells)
        counts = torch.stack(parts, dim=1).flatten(1)
        return (counts / counts.sum(dim=1, keepdim=True).clamp(min=_tiny(counts))).sqrt()


def _brightness(samples: Tensor) -> Tensor:
    """(n, H, W), between 0 and 1 whatever the units are."""
    picture = layout(tuple(samples.shape[1:]))
    assert picture is not None
    images = samples if samples.is_floating_point() else samples.float()
    if images.ndim == 4:
        images = images.mean(dim=3 if images.shape[1:3] == picture[1:] else 1)
    flat = images.flatten(1)
    low, high = flat.amin(dim=1), flat.amax(dim=1)
    height = (high - low).clamp(min=_tiny(flat))
    return (images - low[:, None, None]) / height[:, None, None]


def _slopes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences down and across, one-sided at the border."""
    wide = pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    return wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1], wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2]


def _windows(side: int, cells: int, like: Tensor) -> Tensor:
    """Weights (cells, side) of Gaussian windows, evenly spaced."""
    cells = max(1, min(cells, side // 2))
    centres = (torch.arange(cells, device=like.device, dtype=like.dtype) + 0.5) * side / cells - 0.5
    places = torch.arange(side, device=like.device, dtype=like.dtype)
    away = (places - centres[:, None]) / (_WIDTH * side / cells)
    weights = torch.exp(-away.square() / 2)
    return weights / weights.sum(dim=1, keepdim=True)


def _tiny(values: Tensor) -> float:
    return torch.finfo(values.dtype).tiny

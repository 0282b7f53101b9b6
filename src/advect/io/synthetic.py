"""Small synthetic datasets with known geometry.

Each generator draws float32 samples of (almost) equally frequent classes 0, 1, …; sample i has
class i mod k, so that every prefix is balanced too."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from advect._util import (
    check_count,
    check_kind,
    check_non_negative,
    check_number,
    check_room,
    refuse_if,
)
from advect.data.dataset import LabeledDataset


def gaussians(
    n: int = 500,
    classes: int = 3,
    *,
    separation: float = 4.0,
    spread: float = 1.0,
    shift: Sequence[float] = (0.0, 0.0),
    rotation: float = 0.0,
    generator: torch.Generator | None = None,
) -> LabeledDataset:
    """Gaussian classes in the plane with different covariances, their means on a circle.

        x | y=j  ~  shift + R(rotation + 2πj/k) N((separation, 0), spread² diag(((j+1)/(k+1))², 1))

    Args:
        n: number of samples.  classes: number of classes k, at most n.
        separation: radius of the circle of means.
        spread: standard deviation along the circle.
        shift: centre of the circle.
        rotation: angle in radians by which all samples are rotated about the centre.
        generator: source of randomness; None for torch's default.

    Example:
        >>> import torch, advect as ad
        >>> ad.datasets.gaussians(90, classes=3, generator=torch.Generator().manual_seed(0)).counts
        {0: 30, 1: 30, 2: 30}
    """
    separation = check_non_negative("separation", separation)
    spread = check_non_negative("spread", spread)
    centre = torch.tensor([check_number("shift", value) for value in shift], dtype=torch.float64)
    refuse_if(len(centre) != 2, "shift must be 2 finite numbers", repr(shift), "Pass x and y.")
    turn = check_number("rotation", rotation)
    y, k = _labels(n, classes, generator)
    local = torch.randn(len(y), 2, dtype=torch.float64, generator=generator) * spread
    radial, along = separation + (y + 1) / (k + 1) * local[:, 0], local[:, 1]
    cos, sin = _circle(turn + 2 * math.pi * y / k)
    points = torch.stack([cos * radial - sin * along, sin * radial + cos * along], dim=1)
    return _dataset(centre + points, y, k)


def swiss_roll(
    n: int = 600, classes: int = 4, *, noise: float = 0.05, generator: torch.Generator | None = None
) -> LabeledDataset:
    """A rolled-up sheet in space, cut into k classes along the roll.

        x = (t cos t, h, t sin t) + noise N(0, I) ,   t ∈ [3π/2, 9π/2) ,   h ∈ [0, 21)

    with h uniform and t uniform over the j-th of k equal intervals for class j.

    Args:
        n: number of samples.  classes: number of sections k, at most n.
        noise: standard deviation of the noise.
        generator: source of randomness; None for torch's default.

    Example:
        >>> import torch, advect as ad
        >>> ad.datasets.swiss_roll(100, generator=torch.Generator().manual_seed(0))
        LabeledDataset(n=100, sample_shape=(3,), classes=4, dtype=float32)
    """
    y, k = _labels(n, classes, generator)
    along, height = torch.rand(2, len(y), dtype=torch.float64, generator=generator)
    angle = 1.5 * math.pi * (1 + 2 * (y + along) / k)
    cos, sin = _circle(angle)
    points = torch.stack([angle * cos, 21 * height, angle * sin], dim=1)
    return _dataset(points, y, k, noise, generator)


def moons(
    n: int = 500, *, noise: float = 0.05, generator: torch.Generator | None = None
) -> LabeledDataset:
    """Two interleaving half circles of radius 1, around (0, 0) and (1, ½).

        x | y=0  =  (cos t, sin t) + noise N(0, I) ,   x | y=1  =  (1 − cos t, ½ − sin t) + noise N(0, I) ,   t ∈ [0, π)

    Args:
        n: number of samples, at least 2.  noise: standard deviation of the noise.
        generator: source of randomness; None for torch's default.

    Example:
        >>> import torch, advect as ad
        >>> ad.datasets.moons(101, generator=torch.Generator().manual_seed(0)).counts
        {0: 51, 1: 50}
    """
    y, k = _labels(n, 2, generator)
    cos, sin = _circle(math.pi * torch.rand(len(y), dtype=torch.float64, generator=generator))
    upper, lower = torch.stack([cos, sin], dim=1), torch.stack([1 - cos, 0.5 - sin], dim=1)
    return _dataset(torch.where(y[:, None] == 0, upper, lower), y, k, noise, generator)


def rings(
    n: int = 500, classes: int = 2, *, noise: float = 0.05, generator: torch.Generator | None = None
) -> LabeledDataset:
    """Concentric rings in the plane, class j on radius j + 1.

        x | y=j  =  (j + 1) (cos t, sin t) + noise N(0, I) ,   t ∈ [0, 2π)

    Args:
        n: number of samples.  classes: number of rings, at most n.
        noise: standard deviation of the noise.
        generator: source of randomness; None for torch's default.

    Example:
        >>> import torch, advect as ad
        >>> ad.datasets.rings(60, classes=3, generator=torch.Generator().manual_seed(0))
        LabeledDataset(n=60, sample_shape=(2,), classes=3, dtype=float32)
    """
    y, k = _labels(n, classes, generator)
    cos, sin = _circle(2 * math.pi * torch.rand(len(y), dtype=torch.float64, generator=generator))
    return _dataset((y + 1)[:, None] * torch.stack([cos, sin], dim=1), y, k, noise, generator)


def _labels(n: int, classes: int, generator: torch.Generator | None) -> tuple[Tensor, int]:
    check_kind(
        "generator must be a torch.Generator or None",
        generator,
        (torch.Generator, type(None)),
        "Use torch.Generator().",
    )
    n, classes = check_count("n", n), check_count("classes", classes)
    refuse_if(n < classes, f"n must be at least the number of classes, {classes}", n, "Pass more.")
    check_room(f"a dataset of {n:.3g} samples", 128 * n, "Pass a smaller n.")
    return torch.arange(n) % classes, classes


def _circle(angle: Tensor) -> tuple[Tensor, Tensor]:
    return angle.cos(), angle.sin()


def _dataset(
    points: Tensor,
    y: Tensor,
    classes: int,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
) -> LabeledDataset:
    if check_non_negative("noise", noise):
        points = points + noise * torch.randn(points.shape, dtype=points.dtype, generator=generator)
    return LabeledDataset(points.float(), y, classes=range(classes))

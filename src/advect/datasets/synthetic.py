"""Small synthetic datasets with known geometry: Gaussian classes, a swiss roll, two moons,
concentric rings.

Each generator draws float32 samples of as equally frequent classes as n allows, named 0, 1, …;
sample i has class i mod k, so that every prefix is balanced too. Names and seeds are left to
``advect.datasets.load``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from advect._util.checks import check_count, check_finite, check_kind, check_non_negative
from advect._util.memory import check_room
from advect.data.dataset import LabeledDataset
from advect.errors import InputError

_BYTES = 128  # for a sample while it is drawn, in double precision and a few copies


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
    """Gaussian classes in the plane, their means evenly spread on a circle, each with a covariance
    of its own.

        x | y=j  ~  shift + R(rotation + 2πj/k) N((separation, 0), spread² diag(((j+1)/(k+1))², 1))

    so class j is thinner along the radius than along the circle, and the later the rounder.

    Args:
        n: number of samples.
        classes: number of classes k, at most n.
        separation: radius of the circle of means.
        spread: standard deviation along the circle.
        shift: centre of the circle.
        rotation: angle by which the whole cloud is turned about its centre, in radians.
        generator: source of randomness; None for torch's default one.

    Raises:
        InputError: fewer samples than classes, or an argument out of range.

    Example:
        >>> import torch, advect as ad
        >>> data = ad.datasets.gaussians(90, classes=3, shift=(10.0, 0.0), generator=torch.Generator().manual_seed(0))
        >>> data, data.counts
        (LabeledDataset(n=90, sample_shape=(2,), classes=3, dtype=float32), {0: 30, 1: 30, 2: 30})
    """
    separation = check_non_negative("separation", separation)
    spread = check_non_negative("spread", spread)
    centre, turn = _check_numbers("shift", shift, (2,)), _check_numbers("rotation", rotation, ())
    y, k = _balanced_labels(n, classes, generator)
    radial = (y + 1) / (k + 1)
    local = torch.randn(len(y), 2, dtype=torch.float64, generator=generator) * spread
    local = torch.stack([separation + radial * local[:, 0], local[:, 1]], dim=1)
    cos, sin = _circle(turn + 2 * math.pi * y / k)
    turned = torch.stack(
        [cos * local[:, 0] - sin * local[:, 1], sin * local[:, 0] + cos * local[:, 1]], dim=1
    )
    return _dataset(centre + turned, y, k)


def swiss_roll(
    n: int = 600, classes: int = 4, *, noise: float = 0.05, generator: torch.Generator | None = None
) -> LabeledDataset:
    """A rolled-up sheet in space, cut into classes along the roll.

        x = (t cos t, h, t sin t) + noise N(0, I) ,   t ∈ [3π/2, 9π/2) ,   h ∈ [0, 21)

    with h uniform and t uniform over the j-th of k equal intervals for class j.

    Args:
        n: number of samples.
        classes: number of sections k, at most n.
        noise: standard deviation of the noise.
        generator: source of randomness; None for torch's default one.

    Raises:
        InputError: fewer samples than classes, or an argument out of range.

    Example:
        >>> import torch, advect as ad
        >>> ad.datasets.swiss_roll(100, generator=torch.Generator().manual_seed(0))
        LabeledDataset(n=100, sample_shape=(3,), classes=4, dtype=float32)
    """
    y, k = _balanced_labels(n, classes, generator)
    along, height = torch.rand(2, len(y), dtype=torch.float64, generator=generator)
    angle = 1.5 * math.pi * (1 + 2 * (y + along) / k)
    cos, sin = _circle(angle)
    return _dataset(
        torch.stack([angle * cos, 21 * height, angle * sin], dim=1), y, k, noise, generator
    )


def moons(
    n: int = 500, *, noise: float = 0.05, generator: torch.Generator | None = None
) -> LabeledDataset:
    """Two interleaving half circles of radius 1, around (0, 0) and (1, ½).

        x | y=0  =  (cos t, sin t) + noise N(0, I) ,   x | y=1  =  (1 − cos t, ½ − sin t) + noise N(0, I) ,   t ∈ [0, π)

    Args:
        n: number of samples, at least 2.
        noise: standard deviation of the noise.
        generator: source of randomness; None for torch's default one.

    Raises:
        InputError: an argument out of range.

    Example:
        >>> import torch, advect as ad
        >>> ad.datasets.moons(101, generator=torch.Generator().manual_seed(0)).counts
        {0: 51, 1: 50}
    """
    y, k = _balanced_labels(n, 2, generator)
    cos, sin = _circle(math.pi * torch.rand(len(y), dtype=torch.float64, generator=generator))
    upper, lower = torch.stack([cos, sin], dim=1), torch.stack([1 - cos, 0.5 - sin], dim=1)
    return _dataset(torch.where(y[:, None] == 0, upper, lower), y, k, noise, generator)


def rings(
    n: int = 500, classes: int = 2, *, noise: float = 0.05, generator: torch.Generator | None = None
) -> LabeledDataset:
    """Concentric rings in the plane, class j on radius j + 1.

        x | y=j  =  (j + 1) (cos t, sin t) + noise N(0, I) ,   t ∈ [0, 2π)

    Args:
        n: number of samples.
        classes: number of rings, at most n.
        noise: standard deviation of the noise.
        generator: source of randomness; None for torch's default one.

    Raises:
        InputError: fewer samples than classes, or an argument out of range.

    Example:
        >>> import torch, advect as ad
        >>> data = ad.datasets.rings(60, classes=3, noise=0.0, generator=torch.Generator().manual_seed(0))
        >>> [round(part.x.norm(dim=1).mean().item(), 3) for _, part in data.by_class()]
        [1.0, 2.0, 3.0]
    """
    y, k = _balanced_labels(n, classes, generator)
    cos, sin = _circle(2 * math.pi * torch.rand(len(y), dtype=torch.float64, generator=generator))
    return _dataset((y + 1)[:, None] * torch.stack([cos, sin], dim=1), y, k, noise, generator)


def _balanced_labels(n: int, classes: int, generator: torch.Generator | None) -> tuple[Tensor, int]:
    what, remedy = "generator must be a torch.Generator or None", "Use torch.Generator()."
    check_kind(what, generator, (torch.Generator, type(None)), remedy)
    n, classes = check_count("n", n), check_count("classes", classes)
    if n < classes:
        raise InputError(
            f"n must give each of the {classes} classes a sample", n, f"Pass n={classes} or more."
        )
    check_room(f"a dataset of {n:.3g} samples", _BYTES * n, "Pass a smaller n.")
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


def _check_numbers(name: str, values: object, shape: tuple[int, ...]) -> Tensor:
    wanted = f"{shape[0]} finite numbers" if shape else "a finite number"
    try:
        numbers = torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        numbers = None
    if numbers is None or numbers.shape != shape:
        raise InputError(f"{name} must be {wanted}", repr(values), f"Pass {wanted}.")
    check_finite(name, numbers, f"Pass {wanted}.")
    return numbers

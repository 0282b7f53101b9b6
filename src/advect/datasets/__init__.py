"""Datasets by name: real ones that come inside installed packages, and synthetic ones drawn from a seed.

One registry maps each name to a function of (n, balanced, generator); a new dataset is one line in it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from advect._checks import check_count, check_known
from advect.data import LabeledDataset
from advect.datasets.embedded import digits, mnist
from advect.datasets.synthetic import gaussians, moons, rings, swiss_roll
from advect.errors import InputError

__all__ = ["digits", "gaussians", "load", "mnist", "moons", "rings", "swiss_roll"]

_Loader = Callable[[int | None, bool, torch.Generator], LabeledDataset]


def load(name: str, *, n: int | None = None, balanced: bool = False, seed: int = 0) -> LabeledDataset:
    """The dataset called ``name``.

    Args:
        name: ``"digits"`` or ``"mnist"`` (real images), ``"gaussians"``, ``"swiss_roll"``, ``"moons"`` or ``"rings"``
            (synthetic).
        n: how many samples to draw; None for all of a real dataset, for the default number of a synthetic one.
        balanced: draw equally many of each class. Synthetic datasets always do.
        seed: of the draw.

    Raises:
        InputError: unknown name, more samples than there are, ``balanced`` without ``n`` for a real dataset.

    Example:
        >>> import advect as ad
        >>> ad.datasets.load("mnist", n=100, balanced=True).counts[7]
        10
        >>> ad.datasets.load("moons", n=20, seed=1)
        LabeledDataset(n=20, sample_shape=(2,), classes=2, dtype=float32)
    """
    check_known("dataset", name, _REGISTRY)
    generator = torch.Generator().manual_seed(check_count("seed", seed, least=0))
    return _REGISTRY[name](n, balanced, generator)


def _stored(read: Callable[[], LabeledDataset]) -> _Loader:
    def draw(n: int | None, balanced: bool, generator: torch.Generator) -> LabeledDataset:
        if n is not None:
            return read().sample(n, balanced=balanced, generator=generator)
        if balanced:
            raise InputError("a balanced draw needs its size", "n=None", "Pass n, or load all and take .balanced() weights.")
        return read()

    return draw


def _generated(make: Callable[..., LabeledDataset]) -> _Loader:
    def draw(n: int | None, balanced: bool, generator: torch.Generator) -> LabeledDataset:
        return make(generator=generator) if n is None else make(n, generator=generator)

    return draw


_REGISTRY: dict[str, _Loader] = {
    "digits": _stored(digits),
    "mnist": _stored(mnist),
    "gaussians": _generated(gaussians),
    "moons": _generated(moons),
    "rings": _generated(rings),
    "swiss_roll": _generated(swiss_roll),
}

"""Samples of a feature space as they look before scaling, projection and encoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class Pictures:
    """A function from datasets in a feature space to displayable ones; see ``FeatureSpace.pictures``.

    Attributes:
        sample_shape: of the displayed samples.
        how: where they come from, in words; empty if they are the samples themselves.
    """

    sample_shape: tuple[int, ...]
    how: str
    _dim: int
    _show: Callable[[Tensor], Tensor]

    def __call__(self, data: LabeledDataset) -> LabeledDataset:
        """The displayed samples, with labels and weights."""
        if math.prod(data.sample_shape) != self._dim:
            raise InputError(
                f"pictures are of samples of the common space, of {self._dim} features",
                data.sample_shape,
                "Use space.apply first.",
            )
        x, bare = self._show(data.x.detach()), {"columns": None, "table": None}
        return data.replace(x=x, sample_shape=self.sample_shape, **bare, law=None, law_index=None)


def nearest_samples(features: Tensor, samples: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from rows to the real samples whose features are nearest."""
    from sklearn.neighbors import NearestNeighbors

    tree = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(features.cpu().numpy())

    def show(x: Tensor) -> Tensor:
        rows = tree.kneighbors(x.cpu().numpy(), return_distance=False)[:, 0]
        return samples[torch.from_numpy(rows).to(samples.device)].to(x)

    return show

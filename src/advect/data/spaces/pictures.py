"""Samples of a feature space as something to look at: as they are before scales, components and
encoders.

By the way back where there is one. Features of an encoder without a decoder have none: there each
sample is shown as the nearest real one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.spaces.chain import Chain, through
from advect.data.spaces.step import Step
from advect.errors import InputError


@dataclass(frozen=True, eq=False)
class Pictures:
    """A function from a dataset of the space to the same samples as they look; made by
    ``FeatureSpace.pictures``.

    Attributes:
        sample_shape: of what is shown.
        how: where pictures come from, in a few words; empty if they are the samples themselves.
    """

    sample_shape: tuple[int, ...]
    how: str
    _beyond: tuple[Step, ...]
    _bank: tuple[Tensor, Tensor] | None = None  # real samples: their features, and how they look

    @classmethod
    def of(cls, chains: Sequence[tuple[Chain, Tensor]]) -> Pictures:
        """Pictures for the space that some chains lead to, given samples (n, d) of each."""
        chain = chains[0][0]
        sizes = [laid_out(one) for one, _ in chains]
        beyond = chain.steps[sizes[0] :]
        shape = chain.shape_after(sizes[0])
        if all(step.invertible for step in beyond):
            lossy = any(step.loses() for step in beyond)
            how = f"what {_maker(beyond)} makes of their features" if lossy else ""
            return cls(shape, how, beyond)
        looks = [through(one.steps[:size], x) for (one, x), size in zip(chains, sizes, strict=True)]
        features = [
            through(one.steps[size:], look)
            for (one, _), size, look in zip(chains, sizes, looks, strict=True)
        ]
        bank = torch.cat(features), torch.cat(looks)
        return cls(shape, f"the nearest of {len(bank[0]):,} real samples", beyond, bank)

    def __call__(self, data: LabeledDataset) -> LabeledDataset:
        """The samples as they look; labels, weights and classes stay."""
        at_home = math.prod(data.sample_shape)
        expected = self._beyond[-1].dim_out if self._beyond else math.prod(self.sample_shape)
        if at_home != expected:
            raise InputError(
                f"pictures are of samples of the common space, of {expected} features",
                data.sample_shape,
                "space.apply brings samples there.",
            )
        looks = self._nearest(data.x.detach())
        return data.replace(
            x=looks,
            sample_shape=self.sample_shape,
            columns=None,
            table=None,
            law=None,
            law_index=None,
        )

    def _nearest(self, x: Tensor) -> Tensor:
        if self._bank is None:
            for step in reversed(self._beyond):
                x = step.invert(x)
            return x
        from sklearn.neighbors import NearestNeighbors

        features, looks = self._bank
        tree = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(features.cpu().numpy())
        rows = tree.kneighbors(x.cpu().numpy(), return_distance=False)[:, 0]
        return looks[torch.from_numpy(rows).to(looks.device)].to(x)


def laid_out(chain: Chain) -> int:
    """How many steps only bring samples to one size, or columns to one order."""
    changed = (not (step.only_resizes or step.keeps_units) for step in chain.steps)
    return next((at for at, change in enumerate(changed) if change), len(chain.steps))


def _maker(steps: Sequence[Step]) -> str:
    return "the decoder" if any(step.kind == "encode" for step in steps) else "the way back"

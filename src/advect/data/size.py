"""What is done where a computation over all pairs of samples would take longer than a minute: samples are
drawn and a note says so, or the datasets are refused. Memory is limited by blocks of the cost.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from advect._util import check_count, refuse_if
from advect.data.dataset import LabeledDataset
from advect.data.sampling import by_turns

# samples of each of two datasets in about a minute of one core
SIZES = {"distance": 5000, "flow": 3000, "audit": 10_000, "search": 20_000}


def drawn(
    sets: Sequence[LabeledDataset], work: str, max_samples: int | None = None, seed: int = 0
) -> tuple[list[LabeledDataset], str]:
    """The datasets, or draws of at most ``max_samples`` of each, stratified by class.

    By default draws of the size for the kind of ``work`` are made, with a note, where the two largest
    datasets have more pairs of samples, within and between them, than datasets of this size.

    Example:
        >>> import advect as ad
        >>> data = ad.datasets.gaussians(90)
        >>> (first, second), _ = drawn([data, data.subset(range(30))], "flow", max_samples=50)
        >>> len(first), len(second), sorted(first.counts.values())
        (50, 30, [16, 17, 17])
    """
    most = SIZES[work]
    limit, note = max_samples, ""
    if limit is None:
        n, m = sorted(map(len, sets))[-2:]
        limit = most if n * n + n * m + m * m > 3 * most**2 else m
        sizes = " × ".join(f"{len(data):,}" for data in sets)
        note = (
            f"{sizes} samples would take longer than a minute, so at most {limit:,} of each are drawn at "
            "random. Pass max_samples for another number."
        )
    if max(map(len, sets)) <= check_count("max_samples", limit):
        return list(sets), ""
    generator = torch.Generator().manual_seed(seed)
    return [_stratified(data, limit, generator) for data in sets], note


def refuse_large(what: str, sizes: Sequence[int], work: str, max_samples: int | None) -> None:
    """Refuse datasets of which every sample is needed."""
    limit = SIZES[work] if max_samples is None else check_count("max_samples", max_samples)
    refuse_if(
        max(sizes) > limit,
        f"{what} of {max(sizes):,} samples takes longer than a minute",
        f"max_samples={limit}",
        f"Draw fewer samples, data.sample({limit}), or pass max_samples={max(sizes)}.",
    )


def _stratified(data: LabeledDataset, n: int, generator: torch.Generator) -> LabeledDataset:
    if len(data) <= n:
        return data
    even = torch.full_like(data.weights, 1 / len(data))
    return data.subset(by_turns(even, n, generator, groups=data.y).sort().values)

"""Conditional flow matching as a map (Lipman et al. 2023; Tong et al. 2024).

    min_v E ‖v((1 − t) x_0 + t x_1, t, y_0) − (x_1 − x_0)‖²      x ↦ x(1),  dx/dt = v(x, t, y),  x(0) = x

Pairs come from a flow, or from two datasets through a ``PairSampler``."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from advect._util import Progress, refuse_if, track
from advect.data.dataset import LabeledDataset
from advect.data.sampling import by_turns
from advect.maps.base import positions_of
from advect.maps.neural import Carrier, NetworkMap, Velocity, standard_units
from advect.maps.pair_sampler import Pairs, PairSampler

_N_STATISTICS = 1024  # pairs from which scales are computed
_LEARNING_RATE = 2e-3
_BATCH_SIZE = 128
_PAIRED_AT_ONCE = 1024  # samples of each dataset that a PairSampler pairs
_HIDDEN_LABELS = 0.5  # share of the pairs whose label is hidden in training
_ODE_STEPS = 10


@dataclass(eq=False)
class FlowMatchingMap(NetworkMap, kind="flow-matching"):
    """x ↦ x(1) along dx/dt = v(x, t, y), a network fitted on straight paths between pairs.

    Use it if there is no flow, or too much data for one: a ``PairSampler`` of two datasets is enough.
    For a few thousand samples with a flow, ``EntropicMap`` is the safer choice. Labels of new samples
    are used if they are known; training hides half of them, so samples without labels can be mapped too.

    Args:
        updates: number of Adam steps; the learning rate decreases by a cosine.
        width: width of the hidden layers.
        noise: noise around the paths in standard deviations of the samples; helps with few samples
            of many features.
        seed: seed of weights, pairs and times; torch's random state is not changed.
        progress: None shows slow progress, False is silent, a function gets (done, total).

    Example:
        >>> import torch, advect as ad
        >>> draw = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(100, generator=draw)
        >>> target = ad.datasets.gaussians(120, shift=(8.0, 3.0), generator=draw)
        >>> pairs = ad.PairSampler(source, target)
        >>> matching = ad.maps.FlowMatchingMap(updates=50, progress=False).fit(pairs)
        >>> new = ad.datasets.gaussians(50, generator=draw)
        >>> ad.otdd(matching.transform(new), target).value < 0.2 * ad.otdd(new, target).value
        True
    """

    updates: int = 2000
    width: int = 512
    noise: float = 0.0
    seed: int = 0
    progress: Progress = field(default=None, repr=False)
    options: ClassVar = {"updates": 0, "width": 1, "noise": None, "seed": 0}

    def fit(self, start: Any, end: Any = None) -> Self:
        """Fit the map on pairs.

        Args:
            start: an ``ad.PairSampler`` of two datasets; or pairs as for other maps, the result of
                ``ad.flow`` or the first states.
            end: the last states, row i of which belongs to row i of ``start``.
        """
        if not isinstance(start, PairSampler):
            return super().fit(start, end)
        refuse_if(end is not None, "fit(pairs) takes no end", "one", "Call fit(pairs).")
        source, present = start.source, start.drawn_classes
        self.sample_shape_ = None
        self.classes_, self.columns_ = (), source.columns
        position = positions_of(present, len(source.classes))
        generator = torch.Generator().manual_seed(self.seed)
        names = tuple(source.classes[code] for code in present)
        self._train(_sampled(start, position, generator), names, generator)
        self.sample_shape_ = source.sample_shape
        return self

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self._train(_rows(start, end, generator), start.classes, generator)

    def _train(
        self, batches: Iterator[Pairs], classes: tuple[Hashable, ...], generator: torch.Generator
    ) -> None:
        first = [next(batches) for _ in range(-(-_N_STATISTICS // _BATCH_SIZE))]
        x0, x1 = (torch.cat([batch[side] for batch in first]) for side in (0, 1))
        with torch.random.fork_rng(devices=[]):  # torch's random state is restored
            torch.default_generator.manual_seed(
                int(torch.randint(2**31, (1,), generator=generator))
            )
            network = Velocity(tuple(x0.shape[1:]), len(classes), self.width)
            statistics = standard_units(
                torch.cat([x0, x1]),
                x1.double() - x0.double(),
                torch.promote_types(x0.dtype, x1.dtype),
            )
            carrier = Carrier(network, len(classes), _ODE_STEPS, *statistics).to(x0.device)
            optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(self.updates, 1))
            with track(self.updates, "fitting a velocity", self.progress) as advance:
                for pairs in islice(batches, self.updates):
                    optimizer.zero_grad()
                    self._loss(carrier, pairs, generator).backward()
                    optimizer.step()
                    schedule.step()
                    advance(1)
        self.classes_ = classes
        self.network_ = carrier.eval().requires_grad_(False)

    def _loss(self, carrier: Carrier, pairs: Pairs, generator: torch.Generator) -> Tensor:
        (x0, x1, codes, _), n, device = pairs, len(pairs.x0), carrier.centre.device
        hidden = torch.rand(n, generator=generator) < _HIDDEN_LABELS
        codes = torch.where(hidden, -1, codes.cpu()).to(device)
        # evenly spread over [0, 1], which reduces the variance
        times = (torch.arange(n) + torch.rand((), generator=generator)) / n
        x0, x1 = (part.to(device, carrier.centre.dtype) for part in (x0, x1))
        x = x0 + times.to(x0).reshape(-1, *[1] * (x0.ndim - 1)) * (x1 - x0)
        if self.noise:
            x = x + self.noise * carrier.scale * torch.randn_like(x)
        target = (x1 - x0 - carrier.shift) / carrier.spread
        return (carrier.standard(x, times.to(device), codes) - target.float()).square().mean()

    def build(self, shape: tuple[int, ...], statistics: list[Tensor], facts: Any) -> Carrier:
        if facts.get("ode_steps", _ODE_STEPS) != _ODE_STEPS:  # an option of advect 0.2
            raise ValueError(f"{facts['ode_steps']} steps, which need advect 0.2")
        k = len(self.classes_)
        return Carrier(Velocity(shape, k, self.width), k, _ODE_STEPS, *statistics)


def _sampled(pairs: PairSampler, position: Tensor, generator: torch.Generator) -> Iterator[Pairs]:
    """Batches of pairs of two datasets, with labels by ``position``."""
    size = max(_BATCH_SIZE, min(_PAIRED_AT_ONCE, len(pairs.source), len(pairs.target)))
    for batch in pairs.batches(size, generator=generator):
        y0, y1 = pairs.source.y[batch.rows], pairs.target.y[batch.columns]
        columns = batch.x0, batch.x1.reshape(batch.x0.shape), position[y0.cpu()], y1
        for parts in zip(*(column.split(_BATCH_SIZE) for column in columns), strict=True):
            yield Pairs(*parts)


def _rows(
    start: LabeledDataset, end: LabeledDataset, generator: torch.Generator
) -> Iterator[Pairs]:
    """Batches of given pairs, by weight."""
    x0, x1 = start.samples, end.samples
    while True:
        rows = by_turns(start.weights, _BATCH_SIZE, generator)
        yield Pairs(x0[rows], x1[rows], start.y[rows], end.y[rows])

"""Conditional flow matching as a map (Lipman et al. 2023; Tong et al. 2024).

    min_v E ‖v((1 − t) x_0 + t x_1, t, y_0) − (x_1 − x_0)‖²      x ↦ x(1),  dx/dt = v(x, t, y),  x(0) = x

Pairs come from a flow, or from two datasets through a ``PairSampler``."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from advect._util.checks import check_count, check_non_negative
from advect._util.progress import Progress, track
from advect.data.dataset import LabeledDataset
from advect.data.sampling import by_turns
from advect.errors import InputError
from advect.maps.base import Map
from advect.maps.networks import (
    STATISTICS,
    Carrier,
    Velocity,
    fixed_random_state,
    standard_units,
    write_program,
)
from advect.maps.pair_sampler import Pairs, PairSampler

_BLOCK = 512  # rows carried at once
_N_STATISTICS = 1024  # pairs from which scales are computed
_N_HISTORY = 50  # entries of the history
_LEARNING_RATE = 2e-3
_BATCH_SIZE = 128
_PAIRED_AT_ONCE = 1024  # samples of each dataset that a PairSampler pairs
_HIDDEN_LABELS = 0.5  # share of the pairs whose label is hidden in training
_ODE_STEPS = 10
_MAX_ODE_STEPS = 1000
_OPTIONS = ("updates", "width", "noise", "seed")


@dataclass(eq=False)
class FlowMatchingMap(Map, kind="flow-matching"):
    """x ↦ x(1) along dx/dt = v(x, t, y), a network fitted on straight paths between pairs.

    Use it if there is no flow, or too much data for one: a ``PairSampler`` of two datasets is enough.
    For a few thousand samples with a flow, ``EntropicMap`` is the safer choice. Labels of new samples
    are used if they are known; training hides half of them, so samples without labels are carried too.

    Args:
        updates: number of Adam steps; the learning rate decreases by a cosine.
        width: width of the hidden layers.
        noise: noise around the paths in standard deviations of the samples; helps with few samples
            of many features.
        seed: seed of weights, pairs and times; torch's random state is not changed.
        progress: None shows slow progress, False is silent, a function gets (done, total).

    Attributes:
        history_: mean losses of up to 50 parts of the training. They do not fall to 0: paths cross.

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

    def __post_init__(self) -> None:
        for name, least in (("updates", 0), ("width", 1), ("seed", 0)):
            setattr(self, name, check_count(name, getattr(self, name), least=least))
        self.noise = check_non_negative("noise", self.noise)

    def fit(self, start: Any, end: Any = None) -> Self:
        """Fit the map on pairs.

        Args:
            start: an ``ad.PairSampler`` of two datasets; or pairs as for other maps, the result of
                ``ad.flow`` or the first states.
            end: the last states, row i of which belongs to row i of ``start``.
        """
        if not isinstance(start, PairSampler):
            _check_pairs(start, end)
            return super().fit(start, end)
        if end is not None:
            raise InputError("a sampler has both datasets", "an end as well", "Call fit(pairs).")
        source, present = start.source, start.drawn_classes
        self.sample_shape_ = None
        self.classes_, self.columns_ = (), source.columns
        position = torch.full((len(source.classes) + 1,), -1)  # the last entry: no label
        position[list(present)] = torch.arange(len(present))
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
        seed = int(torch.randint(2**31, (1,), generator=generator))
        losses = []
        with fixed_random_state(seed):
            network = Velocity(tuple(x0.shape[1:]), len(classes), self.width)
            statistics = standard_units(
                torch.cat([x0, x1]),
                x1.double() - x0.double(),
                torch.promote_types(x0.dtype, x1.dtype),
            )
            carrier = Carrier(network, len(classes), _ODE_STEPS, *statistics).to(x0.device).train()
            optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(self.updates, 1))
            with track(self.updates, "fitting a velocity", self.progress) as advance:
                for _, pairs in zip(range(self.updates), batches, strict=False):
                    loss = self._loss(carrier, pairs, generator)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    schedule.step()
                    losses.append(loss.detach())
                    advance(1)
        size = max(1, -(-len(losses) // _N_HISTORY))
        parts = [torch.stack(losses[at : at + size]) for at in range(0, len(losses), size)]
        self.history_ = [float(part.mean()) for part in parts]
        self.classes_, self._module = classes, carrier.eval().requires_grad_(False)

    def _loss(self, carrier: Carrier, pairs: Pairs, generator: torch.Generator) -> Tensor:
        (x0, x1, codes, _), n, device = pairs, len(pairs.x0), carrier.centre.device
        hidden = torch.rand(n, generator=generator) < _HIDDEN_LABELS
        codes = torch.where(hidden, -1, codes.cpu()).to(device)
        # evenly spread over [0, 1], which reduces the variance
        times = (torch.arange(n) + torch.rand((), generator=generator)) / n
        x0, x1 = (part.to(device, carrier.centre.dtype) for part in (x0, x1))
        along = times.to(x0).reshape(-1, *[1] * (x0.ndim - 1))
        place = x0 + along * (x1 - x0)
        if self.noise:
            place = place + self.noise * carrier.scale * torch.randn_like(place)
        target = (x1 - x0 - carrier.shift) / carrier.spread
        predicted = carrier.standard(place, times.to(device), codes)
        return (predicted - target.float()).square().mean()

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        module = self._module
        samples = x.reshape(len(x), *module.centre.shape).to(module.centre.device)
        parts = zip(samples.split(_BLOCK), codes.to(samples.device).split(_BLOCK), strict=True)
        return torch.cat([module(*part) for part in parts]).reshape(x.shape)

    def export(self, path: str | Path) -> Path:
        """Write the map for use without advect: ``.pt2`` (torch.export) or ``.onnx``.

        Inputs are ``x``, in the dtype of the data of the fit, and after a fit with labels ``y``:
        positions in ``classes_``, −1 for unknown. The ONNX output is ``moved``, or ``y`` without labels.
        """
        shape, module = self._fitted(), copy.deepcopy(self._module).cpu()
        inputs = {"x": torch.zeros(2, *shape, dtype=module.centre.dtype)}
        if self.classes_:
            inputs["y"] = torch.zeros(2, dtype=torch.int64)
        return write_program(Path(path), module, inputs)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        facts: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        facts |= {"history": self.history_, "ode_steps": self._module.n_steps}
        return dict(self._module.state_dict()), facts

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        for name in _OPTIONS:
            setattr(self, name, facts[name])
        self.__post_init__()
        self.history_ = [float(loss) for loss in facts["history"]]
        n_steps = check_count("ode_steps", facts["ode_steps"])  # an option of advect 0.2
        shape, k = self._fitted(), len(self.classes_)
        statistics = [tensors[name] for name in STATISTICS]
        if any(value.shape != shape for value in statistics) or n_steps > _MAX_ODE_STEPS:
            raise ValueError(f"statistics are not of shape {shape}, or {n_steps} steps")
        with torch.device("meta"):  # no memory until the weights are known to fit
            network = Velocity(shape, k, self.width)
        self._module = Carrier(network, k, n_steps, *statistics)
        self._module.load_state_dict(tensors, assign=True)
        self._module.eval().requires_grad_(False)


def _sampled(pairs: PairSampler, position: Tensor, generator: torch.Generator) -> Iterator[Pairs]:
    """Batches of pairs of two datasets, with labels by ``position``."""
    size = max(_BATCH_SIZE, min(_PAIRED_AT_ONCE, len(pairs.source), len(pairs.target)))
    for x0, x1, y0, y1 in pairs.batches(size, generator=generator):
        whole = x0, x1.reshape(x0.shape), position[y0.cpu()], y1
        parts = zip(*(part.split(_BATCH_SIZE) for part in whole), strict=True)
        yield from (Pairs(*part) for part in parts)


def _rows(
    start: LabeledDataset, end: LabeledDataset, generator: torch.Generator
) -> Iterator[Pairs]:
    """Batches of given pairs, by weight."""
    x0, x1 = start.samples, end.samples
    while True:
        rows = by_turns(start.weights, _BATCH_SIZE, generator)
        yield Pairs(x0[rows], x1[rows], start.y[rows], end.y[rows])


def _check_pairs(start: Any, end: Any) -> None:
    """An error for datasets of different sizes; a warning if most rows have different labels."""
    labels, others = (getattr(data, "labels", None) for data in (start, end))
    if labels is None or others is None:
        return
    remedy = "For two datasets that are not paired, call fit(ad.PairSampler(start, end))."
    if len(labels) != len(others):
        what = "start and end must be the same particles, row by row"
        raise InputError(what, f"{len(labels)} and {len(others)} samples", remedy)
    other = sum(a != b for a, b in zip(labels, others, strict=True))
    if 2 * other > len(labels) and set(labels) == set(others):
        text = f"{other} of {len(labels)} pairs of start and end have different labels. {remedy}"
        warnings.warn(text, stacklevel=3)

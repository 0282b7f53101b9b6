"""Conditional flow matching as a map (Lipman et al. 2023; Tong et al. 2024): a velocity v(x, t, y) is fitted
to straight paths between paired samples, and a new sample follows it.

    min_v E ‖v((1 − t) x_0 + t x_1, t, y_0) − (x_1 − x_0)‖²      x ↦ x(1),  dx/dt = v(x, t, y),  x(0) = x

Pairs are those of a flow, or are drawn from two datasets by a ``PairSampler``: then no particle is
ever moved. Networks and steps are left to others."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from advect._util.checks import check_count, check_non_negative, check_number, check_positive
from advect._util.progress import Progress, track
from advect.data.dataset import LabeledDataset
from advect.data.sampling import by_turns
from advect.errors import InputError
from advect.maps.base import Map
from advect.maps.exports import write_program
from advect.maps.networks import deviation, is_image, own_randomness
from advect.maps.pair_sampler import Pairs, PairSampler
from advect.maps.velocity import Carrier, VelocityNetwork, build_velocity

_BATCH = 512  # rows carried at once
_LOOKED_AT = 1024  # pairs that scales are taken from
_STRETCHES = 50  # of training, of which the mean loss is kept
_OPTIONS = (
    *("updates", "learning_rate", "batch_size", "paired_at_once"),
    *("width", "ode_steps", "hidden_labels", "noise", "seed"),
)
_STATISTICS = ("centre", "scale", "shift", "spread")
_MOST_STEPS = 1000


@dataclass(eq=False)
class FlowMatchingMap(Map, kind="flow-matching"):
    """x ↦ x(1) along dx/dt = v(x, t, y), a network fitted on straight paths between pairs.

    Take it where no flow has been run, or the data are too many for one: fitted on a
    ``PairSampler`` it needs two datasets and mini-batches of them, nothing else. For some thousand
    samples whose flow is at hand, ``EntropicMap`` needs no training and is the safer choice. Labels
    of new samples are used where they are known; part of the training hides them, so that samples
    without a label are carried too.

    Args:
        network: a function from the sample shape and the number of labels k to a torch module of
            (x, t, y), used instead of fully connected layers; y is k where the label is not known.
        updates: steps of Adam, whose rate falls to 0 by a cosine.
        learning_rate: at the start.
        batch_size: pairs of an update.
        paired_at_once: samples of each dataset that a ``PairSampler`` pairs among themselves, for
            one or more updates; no more than there are. The more, the nearer is a sample's partner, and the less a
            network has to average.
        width: of the hidden layers.
        ode_steps: Heun's steps along a path, two evaluations each.
        hidden_labels: share of the pairs whose label is hidden from the network in training; with 1
            it never looks at labels.
        noise: of the paths, in standard deviations of the samples: a network that has seen samples
            around a path, and not on it alone, is surer of new ones. For few samples of many
            features; it blurs what there is to learn of few features.
        seed: of initial weights, pairs, times; torch's own random state is left as it was.
        progress: None shows it on stderr when it takes long; False is silent; a function is called
            with (done, total).
        device: where to train and carry; by default where the pairs are.

    Attributes:
        history_: mean loss, in standard units, over each of up to 50 stretches of the training. It
            does not fall to 0: paths cross.

    Example:
        >>> import torch, advect as ad
        >>> draw = torch.Generator().manual_seed(0)
        >>> source = ad.datasets.gaussians(100, generator=draw)
        >>> target = ad.datasets.gaussians(120, shift=(8.0, 3.0), generator=draw)
        >>> carry = ad.maps.FlowMatchingMap(updates=50, progress=False).fit(ad.PairSampler(source, target))
        >>> new = ad.datasets.gaussians(50, generator=draw)
        >>> ad.otdd(carry.transform(new), target).value < 0.2 * ad.otdd(new, target).value
        True
    """

    network: VelocityNetwork | None = None
    updates: int = 2000
    learning_rate: float = 2e-3
    batch_size: int = 128
    paired_at_once: int = 1024
    width: int = 512
    ode_steps: int = 10
    hidden_labels: float = 0.5
    noise: float = 0.0
    seed: int = 0
    progress: Progress = field(default=None, repr=False)
    device: torch.device | str | None = None

    def __post_init__(self) -> None:
        if self.network is not None and (
            isinstance(self.network, nn.Module) or not callable(self.network)
        ):
            raise InputError(
                "network must be a function from a sample shape and a number of labels to a torch "
                "module",
                type(self.network).__name__,
                "Each fit needs a new one: pass lambda shape, labels: ….",
            )
        for name, least in {
            "updates": 0,
            "batch_size": 1,
            "paired_at_once": 1,
            "width": 1,
            "ode_steps": 1,
            "seed": 0,
        }.items():
            setattr(self, name, check_count(name, getattr(self, name), least=least))
        if self.ode_steps > _MOST_STEPS:
            remedy = "Paths are straight: some ten will do."
            raise InputError(f"ode_steps must be at most {_MOST_STEPS}", self.ode_steps, remedy)
        self.learning_rate = check_positive("learning_rate", self.learning_rate)
        self.noise = check_non_negative("noise", self.noise)
        if not 0 < check_number("hidden_labels", self.hidden_labels) <= 1:
            raise InputError(
                "hidden_labels must be a share above 0, and at most 1",
                self.hidden_labels,
                "1 never looks at labels; samples without a label need some.",
            )

    def fit(self, start: Any, end: Any = None) -> Self:
        """Learn from pairs.

        Args:
            start: an ``ad.PairSampler`` of two datasets, whose rows are no pairs; or pairs as every
                map takes them: what ``ad.flow`` returned, or the first states.
            end: the last states, row i of which is where row i of ``start`` went; left out
                otherwise.

        Returns:
            The map itself.

        Raises:
            InputError: a sampler without datasets, or with an end; states that are not the same
                particles.

        Example:
            >>> import advect as ad
            >>> data = ad.datasets.gaussians(60)
            >>> carry = ad.maps.FlowMatchingMap(updates=1, progress=False)
            >>> carry.fit(data, data.replace(x=data.x + 1)).transform([[0.0, 0.0]]).round(3).tolist()
            [[1.0, 1.0]]
        """
        if not callable(getattr(start, "batches", None)):
            _look_like_pairs(start, end)
            return super().fit(start, end)
        if end is not None:
            raise InputError(
                "a sampler has both datasets in it", "an end as well", "Call fit(pairs)."
            )
        source, present = start.whole.source, start.drawn_classes
        self.sample_shape_ = None
        self.classes_, self.columns_ = (), source.columns
        # the last entry is for missing labels
        position = torch.full((len(source.classes) + 1,), -1)
        position[list(present)] = torch.arange(len(present))
        names = tuple(source.classes[code] for code in present)
        generator = torch.Generator().manual_seed(self.seed)
        self._train(self._drawn(start, position, generator), names, generator)
        self.sample_shape_ = source.sample_shape
        return self

    def _drawn(
        self, pairs: PairSampler, position: Tensor, generator: torch.Generator
    ) -> Iterator[Pairs]:
        """Batches of as many pairs as are learned from at once, with labels by ``position``."""
        # samples that come twice in a batch say nothing new
        size = max(self.batch_size, min(self.paired_at_once, *map(len, pairs.whole)))
        for x0, x1, y0, y1 in pairs.batches(size, generator=generator):
            whole = x0, x1.reshape(x0.shape), position[y0.cpu()], y1
            parts = zip(*(part.split(self.batch_size) for part in whole), strict=True)
            yield from (Pairs(*part) for part in parts)

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        self._train(_rows(start, end, self.batch_size, generator), start.classes, generator)

    def _train(
        self, batches: Iterator[Pairs], classes: tuple[Hashable, ...], generator: torch.Generator
    ) -> None:
        classes = classes if self.hidden_labels < 1 else ()
        some = [next(batches) for _ in range(-(-_LOOKED_AT // self.batch_size))]
        with own_randomness():
            torch.default_generator.manual_seed(
                int(torch.randint(2**31, (1,), generator=generator))
            )
            device = some[0].x0.device if self.device is None else self.device
            carrier = self._new(some, len(classes)).to(device)
            losses = self._updates(carrier, batches, device, generator)
            with track(self.updates, "fitting a velocity", self.progress) as advance:
                kept = [_advanced(loss, advance) for loss in losses]
        stretch = max(1, -(-len(kept) // _STRETCHES))
        parts = [torch.stack(kept[at : at + stretch]) for at in range(0, len(kept), stretch)]
        self.history_ = [float(part.mean()) for part in parts]
        self.classes_, self._module = classes, carrier.eval().requires_grad_(False)

    def _new(self, some: list[Pairs], labels: int) -> Carrier:
        """A network that was not trained, between the units of the data."""
        x0, x1 = (torch.cat([batch[side] for batch in some]) for side in (0, 1))
        shape, image = tuple(x0.shape[1:]), is_image(tuple(x0.shape[1:]))
        places, ways = torch.cat([x0, x1]).double(), x1.double() - x0.double()
        statistics = [
            part
            for values in (places, ways)
            for part in (values.mean(dim=0), deviation(values, together=image))
        ]
        dtype = torch.promote_types(x0.dtype, x1.dtype)
        ready = (part.to(dtype).expand(shape).contiguous() for part in statistics)
        network = build_velocity(self.network, shape, labels, self.width)
        return Carrier(network, labels, self.ode_steps, *ready)

    def _updates(
        self,
        carrier: Carrier,
        batches: Iterator[Pairs],
        device: torch.device | str,
        generator: torch.Generator,
    ) -> Iterator[Tensor]:
        """Train, and give the loss of each update."""
        optimizer = torch.optim.Adam(carrier.network.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(self.updates, 1))
        carrier.train()
        for _, (x0, x1, codes, _) in zip(range(self.updates), batches, strict=False):
            n = len(x0)
            hidden = torch.rand(n, generator=generator) < self.hidden_labels
            codes = torch.where(hidden, -1, codes.cpu()).to(device)
            # spread evenly over 0 … 1: the loss of a batch varies less
            times = (torch.arange(n) + torch.rand((), generator=generator)) / n
            x0, x1 = (part.to(device, carrier.centre.dtype) for part in (x0, x1))
            along = times.to(x0).reshape(-1, *[1] * (x0.ndim - 1))
            wanted = (x1 - x0 - carrier.shift) / carrier.spread
            place = x0 + along * (x1 - x0)
            if self.noise:
                place = place + self.noise * carrier.scale * torch.randn_like(place)
            found = carrier.standard(place, times.to(device), codes)
            loss = (found - wanted.float()).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            yield loss.detach()

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        module = self._module
        samples = x.reshape(len(x), *module.centre.shape).to(module.centre.device)
        parts = zip(samples.split(_BATCH), codes.to(samples.device).split(_BATCH), strict=True)
        return torch.cat([module(part, own) for part, own in parts]).reshape(x.shape)

    def path(self, x: Any, y: Any = None, frames: int = 5) -> Tensor:
        """Where samples are on their way, at times from 0 to 1: for looking at, not for many samples.

        Args:
            x, y: as for ``transform``.
            frames: how many states, the first and the last among them; at most ``ode_steps`` + 1.

        Returns:
            A tensor ``(frames, n, *sample_shape)``.

        Example:
            >>> import torch, advect as ad
            >>> carry = ad.maps.FlowMatchingMap(updates=1, ode_steps=2, progress=False).fit(torch.zeros(4, 2), torch.ones(4, 2))
            >>> carry.path(torch.zeros(1, 2), frames=3)[:, 0, 0].round(decimals=3).tolist()
            [0.0, 0.5, 1.0]
        """
        samples, module = self._opened(x), self._module
        last = min(check_count("frames", frames, least=2), self.ode_steps + 1) - 1
        values = samples.values.reshape(-1, *module.centre.shape).to(module.centre.device)
        codes = self._codes(samples, y).to(values.device)
        with torch.no_grad():
            states = module.states(values, codes)
        return torch.stack([states[round(k * self.ode_steps / last)] for k in range(last + 1)])

    def as_module(self) -> nn.Module:
        """What carries samples as a torch module, a copy of its own: batches ``(n, *sample_shape)``, and
        optionally positions in ``classes_``, −1 for a label that is not known.

        Example:
            >>> import torch, advect as ad
            >>> carry = ad.maps.FlowMatchingMap(updates=1, ode_steps=2, progress=False).fit(torch.zeros(4, 2), torch.ones(4, 2))
            >>> carry.as_module()(torch.zeros(1, 2)).round(decimals=3).tolist()
            [[1.0, 1.0]]
        """
        self._fitted()
        return copy.deepcopy(self._module)

    def export(self, path: str | Path) -> Path:
        """Write what carries samples for use without advect: ``.pt2`` for torch.export, ``.onnx``
        for ONNX; any batch size. All steps along a path are inside.

        Inputs are ``x``, in the dtype of the data of the fit, and after a fit with labels ``y``,
        whole numbers: positions in ``classes_``, −1 for a label that is not known. The output of
        ONNX is ``moved``, or ``y`` where there are no labels.

        Raises:
            InputError: another suffix, or ``.onnx`` without the packages of ``pip install
                'advect[onnx]'``.

        Example:
            >>> import tempfile, pathlib, torch, advect as ad
            >>> carry = ad.maps.FlowMatchingMap(updates=1, ode_steps=2, progress=False).fit(torch.zeros(4, 2), torch.ones(4, 2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = carry.export(pathlib.Path(folder) / "map.pt2")
            ...     torch.export.load(path).module()(torch.zeros(1, 2)).round(decimals=3).tolist()
            [[1.0, 1.0]]
        """
        shape, module = self._fitted(), copy.deepcopy(self._module).cpu()
        inputs = {"x": torch.zeros(2, *shape, dtype=module.centre.dtype)}
        if self.classes_:
            inputs["y"] = torch.tensor([0, -1])
        return write_program(Path(path), module, inputs)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if self.network is not None:
            raise InputError(
                "a file cannot hold the code of a network of your own",
                f"network={self.network!r}",
                "Use export(path), or save map.as_module().state_dict() and build it again.",
            )
        facts: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        return dict(self._module.state_dict()), facts | {"history": self.history_}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        for name in _OPTIONS:
            setattr(self, name, facts[name])
        self.__post_init__()
        self.history_ = [float(loss) for loss in facts["history"]]
        shape = self._fitted()
        if any(tensors[name].shape != shape for name in _STATISTICS):
            raise ValueError(f"statistics are not of shape {shape}")
        # takes no memory until the weights are known to fit, and no random numbers
        with torch.device("meta"):
            network = build_velocity(None, shape, len(self.classes_), self.width)
        statistics = (tensors[name] for name in _STATISTICS)
        self._module = Carrier(network, len(self.classes_), self.ode_steps, *statistics)
        self._module.load_state_dict(tensors, assign=True)
        self._module.eval().requires_grad_(False)


def _rows(
    start: LabeledDataset, end: LabeledDataset, size: int, generator: torch.Generator
) -> Iterator[Pairs]:
    """Batches of pairs that are given, by weight."""
    x0, x1 = start.samples, end.samples
    while True:
        rows = by_turns(start.weights, size, generator)
        yield Pairs(x0[rows], x1[rows], start.y[rows], end.y[rows])


def _advanced(loss: Tensor, advance: Any) -> Tensor:
    advance(1)
    return loss


def _look_like_pairs(start: Any, end: Any) -> None:
    """An error for two datasets of different sizes; a warning where the rows of datasets with the
    same classes mostly have other labels: they are taken for pairs.
    """
    labels, others = (getattr(data, "labels", None) for data in (start, end))
    if labels is None or others is None:
        return
    if len(labels) != len(others):
        raise InputError(
            "start and end must be the same particles, row by row",
            f"{len(labels)} and {len(others)} samples",
            "For two datasets that are no pairs, call fit(ad.PairSampler(start, end)).",
        )
    other = sum(a != b for a, b in zip(labels, others, strict=True))
    if 2 * other > len(labels) and set(labels) == set(others):
        warnings.warn(
            f"rows of start and end are taken for pairs, but {other} of {len(labels)} have other "
            "labels. If they are no pairs, call fit(ad.PairSampler(start, end)).",
            stacklevel=3,
        )

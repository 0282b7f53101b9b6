"""The paper's parametric map, a network h(x_0) ≈ x_T (sections 5.3 and 6.2, appendix C), and networks of
maps: an autoencoder for images, perceptrons for vectors, and the velocity of flow matching.

    min_h Σ_i a_i ‖h(x_0,i) − x_T,i‖²     in standard units

by Adam from several random starts; the best epoch on held-out pairs is kept."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from advect._util import Progress, check_count, track
from advect.data.dataset import LabeledDataset
from advect.maps.base import Map

STATISTICS = ("centre", "scale", "shift", "spread")
_WIDTHS = (512, 256, 256, 128, 128)  # fully connected layers of the encoder
_CHANNELS = (16, 32)  # its convolutions
_HIDDEN = (256, 256)  # of the perceptron
_N_WAVES = 4  # frequencies of time
_BLOCK = 512  # rows that are moved at once
_HELD_OUT = 0.1  # share of the pairs on which epochs are compared
_PATIENCE = 5  # epochs without improvement before a start is given up
_LEARNING_RATE, _BATCH_SIZE = 1e-3, 64


def is_image(shape: tuple[int, ...]) -> bool:
    """(H, W) or (H, W, 3), large enough for two convolutions that halve it."""
    return (len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)) and min(shape[:2]) >= 4


class Autoencoder(nn.Module):
    """Two convolutions and five fully connected layers, and the same in reverse; (n, H, W) or
    (n, H, W, 3) to the same shape.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.coloured = len(shape) == 3
        inner, outer = _CHANNELS
        sizes = [shape[:2]]
        for _ in _CHANNELS:
            sizes.append(tuple((side + 1) // 2 for side in sizes[-1]))
        widths = (outer * math.prod(sizes[-1]), *_WIDTHS)
        colours = shape[2] if self.coloured else 1
        # the inverse of a convolution that halves n to ⌈n/2⌉ adds a row if n was even
        extra = [(1 - height % 2, 1 - width % 2) for height, width in sizes[:2]]
        self.encoder = nn.Sequential(
            nn.Conv2d(colours, inner, 3, stride=2, padding=1),
            nn.ELU(),
            nn.Conv2d(inner, outer, 3, stride=2, padding=1),
            nn.ELU(),
            nn.Flatten(),
            *_dense(widths),
        )
        self.decoder = nn.Sequential(
            *_dense(widths[::-1]),
            nn.Unflatten(1, (outer, *sizes[-1])),
            nn.ConvTranspose2d(outer, inner, 3, stride=2, padding=1, output_padding=extra[1]),
            nn.ELU(),
            nn.ConvTranspose2d(inner, colours, 3, stride=2, padding=1, output_padding=extra[0]),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.coloured:
            return self.decoder(self.encoder(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1)
        return self.decoder(self.encoder(x.unsqueeze(1))).squeeze(1)


def _dense(widths: tuple[int, ...]) -> list[nn.Module]:
    return [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ELU())]


def _zero_layer(width: int, out: int) -> nn.Linear:
    """A layer that starts at zero."""
    layer = nn.Linear(width, out)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Perceptron(nn.Module):
    """Fully connected layers; the last starts at zero, so that x + f(x) starts as the identity."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        last = _zero_layer(_HIDDEN[-1], math.prod(shape))
        self.layers = nn.Sequential(*_dense((math.prod(shape), *_HIDDEN)), last)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1)).reshape(x.shape)


class Velocity(nn.Module):
    """v(x, t, y): fully connected layers with skips, shifted by time and label; starts at zero."""

    waves: Tensor

    def __init__(self, shape: tuple[int, ...], n_labels: int, width: int) -> None:
        super().__init__()
        d = math.prod(shape)
        self.first = nn.Linear(d, width)
        self.time = nn.Linear(2 * _N_WAVES + 1, width)
        self.label = nn.Embedding(n_labels + 1, width)  # the last is for unknown labels
        self.inner = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.last = _zero_layer(width, d)
        nn.init.normal_(self.label.weight, std=0.5)
        self.register_buffer("waves", math.pi * torch.arange(1.0, _N_WAVES + 1))

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        phases = t[:, None] * self.waves
        time = torch.cat([t[:, None], phases.cos(), phases.sin()], dim=1)
        h = self.first(x.flatten(1)) + self.time(time) + self.label(y)
        for layer in self.inner:
            h = h + layer(nn.functional.silu(h))
        return self.last(nn.functional.silu(h)).reshape(x.shape)


class Standardized(nn.Module):
    """A float32 network in standard units, with statistics of the sample shape as buffers."""

    centre: Tensor
    scale: Tensor
    shift: Tensor
    spread: Tensor

    def __init__(self, network: nn.Module, *statistics: Tensor) -> None:
        super().__init__()
        self.network = network
        for name, value in zip(STATISTICS, statistics, strict=True):
            self.register_buffer(name, value)


class Pushforward(Standardized):
    """h(x) = [x +] shift + spread · f((x − centre)/scale)."""

    def __init__(self, network: nn.Module, residual: bool, *statistics: Tensor) -> None:
        super().__init__(network, *statistics)
        self.residual = residual

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        x = x.to(self.centre.dtype)
        moved = self.network(((x - self.centre) / self.scale).float()).to(x.dtype)
        moved = self.shift + self.spread * moved
        return x + moved if self.residual else moved


class Carrier(Standardized):
    """Heun's method for dx/dt = shift + spread · f((x − centre)/scale, t, y) from t = 0 to 1."""

    def __init__(
        self, network: nn.Module, n_labels: int, n_steps: int, *statistics: Tensor
    ) -> None:
        super().__init__(network, *statistics)
        self.n_labels, self.n_steps = n_labels, n_steps

    def standard(self, x: Tensor, t: Tensor, codes: Tensor) -> Tensor:
        """f at samples in the units of the data; codes outside 0 … n_labels − 1 are unknown."""
        codes = torch.where((codes >= 0) & (codes < self.n_labels), codes, self.n_labels)
        return self.network(((x - self.centre) / self.scale).float(), t.float(), codes)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        x = x.to(self.centre.dtype)
        n, step = x.shape[0], 1 / self.n_steps
        codes = x.new_full((n,), -1, dtype=torch.int64) if y is None else y

        def velocity(x: Tensor, t: Tensor) -> Tensor:
            return self.shift + self.spread * self.standard(x, t, codes).to(x.dtype)

        for k in range(self.n_steps):
            now, then = (x.new_full((n,), (k + ahead) * step) for ahead in (0, 1))
            slope = velocity(x, now)
            x = x + step / 2 * (slope + velocity(x + step * slope, then))
        return x


def standard_units(x: Tensor, y: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Means and deviations of inputs and outputs; images have one deviation for all pixels."""
    shape, statistics = x.shape[1:], []
    for values in (x.double(), y.double()):
        squares = (values - values.mean(dim=0)).square()
        overall = squares.mean().sqrt()
        overall = torch.where(overall > 0, overall, 1.0)
        each = squares.mean(dim=0).sqrt()
        each = torch.where(each > 1e-6 * overall, each, overall)
        statistics += [values.mean(dim=0), overall if is_image(tuple(shape)) else each]
    return [part.to(dtype).expand(shape).contiguous() for part in statistics]


class NetworkMap(Map, kind=""):
    """A map whose network moves samples in their shape, with labels if it has classes.

    Attributes:
        network_: the fitted ``torch.nn.Module``. Its inputs are samples in the dtype of the fit and, after
            a fit with labels, positions in ``classes_``, −1 for unknown.
    """

    # saved fields: counts with their least values, None for a number of at least 0
    options: ClassVar[dict[str, int | None]]
    network_: Any

    def __post_init__(self) -> None:
        for name, least in self.options.items():
            value, whole = getattr(self, name), least is not None
            setattr(self, name, check_count(name, value, least or 0, whole))

    @abstractmethod
    def build(self, shape: tuple[int, ...], statistics: list[Tensor], facts: Any) -> Standardized:
        """The module without its weights, from the facts of a file."""

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        samples, like = x.reshape(len(x), *self.network_.centre.shape), self.network_.centre.device
        parts = (part.to(like).split(_BLOCK) for part in (samples, codes))
        return torch.cat([*map(self.network_, *parts)]).reshape(x.shape)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return self.network_.state_dict(), {name: getattr(self, name) for name in self.options}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        for name in self.options:
            setattr(self, name, facts[name])
        self.__post_init__()
        shape, statistics = self._fitted(), [tensors[name] for name in STATISTICS]
        if any(value.shape != shape for value in statistics):
            raise ValueError(f"statistics are not of shape {shape}")
        with torch.device("meta"):  # no memory until the weights are known to fit
            module = self.build(shape, statistics, facts)
        module.load_state_dict(tensors, assign=True)
        self.network_ = module.eval().requires_grad_(False)


@dataclass(eq=False)
class NeuralMap(NetworkMap, kind="neural"):
    """x ↦ h(x), a network fitted on the pairs; it ignores labels.

    Use it to map very many samples, or to use ``network_`` without advect. Images of shape (H, W) or
    (H, W, 3) go through the paper's autoencoder (two convolutions and five fully connected layers, and
    the same in reverse); other samples through x + mlp(x). Inputs and outputs are standardized.

    Args:
        epochs: number of epochs of Adam.
        restarts: number of random starts; the paper uses ten.
        seed: seed of initial weights and batches; torch's random state is not changed.
        progress: None shows slow progress, False is silent, a function gets (done, total).

    Attributes:
        network_: the fitted ``torch.nn.Module``.
        held_out_error_: mean square error of the network on held-out pairs; not saved.

    Example:
        >>> import torch, advect as ad
        >>> start = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
        >>> neural = ad.maps.NeuralMap(epochs=5, restarts=1).fit(start, 2 * start)
        >>> neural.held_out_error_ < 0.05, neural.transform(start).shape
        (True, torch.Size([100, 2]))
    """

    epochs: int = 20
    restarts: int = 3
    seed: int = 0
    progress: Progress = field(default=None, repr=False)
    options: ClassVar = {"epochs": 0, "restarts": 1, "seed": 0}

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        pairs, target = _Pairs(start, end), end.samples
        if not is_image(start.sample_shape):  # the network adds to its input
            target = target.double() - start.samples.double()
        statistics = standard_units(pairs.x, target, pairs.x.dtype)
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(start), generator=generator)
        n_held_out = min(max(round(_HELD_OUT * len(start)), 1), len(start) - 1)
        held_out, training = order[: n_held_out or 1], order[n_held_out:]
        best, chosen = math.inf, None
        with track(self.restarts * self.epochs, "fitting a network", self.progress) as advance:
            for restart in range(self.restarts):
                errors: list[float] = []  # held-out errors before training and after each epoch
                with torch.random.fork_rng(devices=[]):  # torch's random state is restored
                    seed = int(torch.randint(2**31, (1,), generator=generator))
                    torch.default_generator.manual_seed(seed)
                    module = self.build(start.sample_shape, statistics, None).to(start.x.device)
                    optimizer = torch.optim.Adam(module.network.parameters(), lr=_LEARNING_RATE)
                    for epoch in range(self.epochs + 1):
                        if epoch:
                            pairs.train(module, optimizer, training, generator)
                            advance(1)
                        errors.append(pairs.error(module, held_out))
                        if errors[-1] < best or restart == epoch == 0:
                            best, chosen = errors[-1], copy.deepcopy(module)
                        if epoch - errors.index(min(errors)) >= _PATIENCE:
                            advance(self.epochs - epoch)
                            break
        assert chosen is not None
        self.network_ = chosen.eval().requires_grad_(False)
        self.held_out_error_ = best

    def build(self, shape: tuple[int, ...], statistics: list[Tensor], facts: Any) -> Pushforward:
        image = is_image(shape)
        network = Autoencoder(shape) if image else Perceptron(shape)
        return Pushforward(network, not image, *statistics)


class _Pairs:
    """Pairs as tensors, and training and errors of a network on some of them."""

    def __init__(self, start: LabeledDataset, end: LabeledDataset) -> None:
        self.x, self.y = start.samples, end.samples
        self.weights = start.weights * len(start)

    def train(
        self,
        module: Pushforward,
        optimizer: torch.optim.Optimizer,
        rows: Tensor,
        generator: torch.Generator,
    ) -> None:
        """An epoch with the weighted mean square error in standard units."""
        for batch in rows[torch.randperm(len(rows), generator=generator)].split(_BATCH_SIZE):
            errors = (module(self.x[batch]) - self.y[batch]) / module.spread
            errors = errors.square().flatten(1).mean(dim=1)
            optimizer.zero_grad()
            (self.weights[batch].to(errors) * errors).mean().backward()
            optimizer.step()

    def error(self, module: Pushforward, rows: Tensor) -> float:
        """Weighted mean square error in the units of the data."""
        with torch.no_grad():
            parts = [
                self.weights[part]
                * (module(self.x[part]) - self.y[part]).double().square().flatten(1).mean(dim=1)
                for part in rows.split(_BLOCK)
            ]
        return float(torch.cat(parts).sum() / self.weights[rows].sum())

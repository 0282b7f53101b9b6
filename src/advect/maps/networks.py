"""Networks of maps: the paper's autoencoder for images, perceptrons for vectors (paper, appendix C),
and the velocity of flow matching.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

STATISTICS = ("centre", "scale", "shift", "spread")
_WIDTHS = (512, 256, 256, 128, 128)  # fully connected layers of the encoder
_CHANNELS = (16, 32)  # its convolutions
_HIDDEN = (256, 256)  # of the perceptron
_N_WAVES = 4  # frequencies of time


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


class Perceptron(nn.Module):
    """Fully connected layers; the last starts at zero, so that x + f(x) starts as the identity."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        last = nn.Linear(_HIDDEN[-1], math.prod(shape))
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
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
        self.last = nn.Linear(width, d)
        nn.init.normal_(self.label.weight, std=0.5)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
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
        known = (codes >= 0) & (codes < self.n_labels)
        labels = torch.where(known, codes, self.n_labels)
        return self.network(((x - self.centre) / self.scale).float(), t.float(), labels)

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


@contextmanager
def fixed_random_state(seed: int) -> Iterator[None]:
    """Torch's random state with a seed, restored afterwards."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)

"""The networks of ``NeuralMap``: the paper's autoencoder for images, a residual perceptron for
vectors (paper, appendix C).

A ``Pushforward`` puts one between the units of the data and standard ones, so that scales do not
matter to the training. How networks are trained is left to others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from advect._util.checks import check_kind
from advect.errors import InputError

Network = Callable[[tuple[int, ...]], nn.Module]

_WIDTHS = (512, 256, 256, 128, 128)  # of the five fully connected layers of the encoder
_CHANNELS = (16, 32)  # of its two convolutions
_HIDDEN = (256, 256)  # of the perceptron


def is_image(shape: tuple[int, ...]) -> bool:
    """(H, W) or (H, W, 3), large enough for two convolutions that halve it."""
    return (len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)) and min(shape[:2]) >= 4


class Autoencoder(nn.Module):
    """Two convolutions and five fully connected layers, and the same in reverse; (n, H, W) or (n,
    H, W, 3) to the same.

    Example:
        >>> import torch
        >>> Autoencoder((28, 28))(torch.zeros(2, 28, 28)).shape
        torch.Size([2, 28, 28])
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.coloured = len(shape) == 3
        inner, outer = _CHANNELS
        sizes = [shape[:2]]
        for _ in _CHANNELS:
            sizes.append(tuple((side + 1) // 2 for side in sizes[-1]))
        flat = outer * math.prod(sizes[-1])
        widths = (flat, *_WIDTHS)
        colours = shape[2] if self.coloured else 1
        # a convolution that halves n sides to ⌈n/2⌉ is undone by one that adds a row where n was
        # even
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
    """Fully connected layers on flattened samples; the last starts at zero, so that x + f(x) starts
    as the identity.

    Example:
        >>> import torch
        >>> Perceptron((3,))(torch.ones(2, 3)).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        last = nn.Linear(_HIDDEN[-1], math.prod(shape))
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(*_dense((math.prod(shape), *_HIDDEN)), last)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1)).reshape(x.shape)


class Pushforward(nn.Module):
    """Samples to samples in the units of the data: h(x) = [x +] shift + spread · f((x −
    centre)/scale).

    Args:
        network: f, in standard units and float32.
        residual: whether x is added, so that f is left the displacement.
        centre, scale, shift, spread: statistics, of the sample shape.

    Example:
        >>> import torch
        >>> zero, one = torch.zeros(2), torch.ones(2)
        >>> Pushforward(torch.nn.Identity(), True, zero, one, one, 2 * one)(torch.tensor([[1.0, 3.0]])).tolist()
        [[4.0, 10.0]]
    """

    centre: Tensor
    scale: Tensor
    shift: Tensor
    spread: Tensor

    def __init__(
        self,
        network: nn.Module,
        residual: bool,
        centre: Tensor,
        scale: Tensor,
        shift: Tensor,
        spread: Tensor,
    ) -> None:
        super().__init__()
        self.network, self.residual = network, residual
        for name, value in {
            "centre": centre,
            "scale": scale,
            "shift": shift,
            "spread": spread,
        }.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.centre.dtype)
        moved = self.network(((x - self.centre) / self.scale).float()).to(x.dtype)
        moved = self.shift + self.spread * moved
        return x + moved if self.residual else moved


def build(network: Network | None, shape: tuple[int, ...]) -> nn.Module:
    """A new network for samples of a shape: the one asked for, checked on a batch; else the one for
    its kind of data.
    """
    if network is None:
        return Autoencoder(shape) if is_image(shape) else Perceptron(shape)
    made = network(shape)
    what = "network must make a torch module from a sample shape"
    check_kind(what, made, nn.Module, "Return an nn.Module.")
    made = made.float().eval()
    with torch.no_grad():
        out = made(torch.zeros(2, *shape))
    got = tuple(out.shape) if torch.is_tensor(out) else type(out).__name__
    if got != (2, *shape):
        raise InputError(
            f"the network must map (2, *{shape}) to the same shape", got, "Check its last layer."
        )
    return made


def deviation(values: Tensor, *, together: bool) -> Tensor:
    """Standard deviation of each feature, or of all together; that of all where a feature is
    constant, one where all are.
    """
    centred = values - values.mean(dim=0)
    whole = centred.square().mean().sqrt()
    whole = torch.where(whole > 0, whole, 1.0)
    each = centred.square().mean(dim=0).sqrt()
    return whole if together else torch.where(each > 1e-6 * whole, each, whole)


@contextmanager
def own_randomness() -> Iterator[None]:
    """Weights and dropout draw from torch's random state: it is as it was afterwards."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)

"""Velocities v(x, t, y) as networks, and what carries samples along them: dx/dt = v(x, t, y) from t = 0
to 1, by Heun's steps.

How velocities are learned is left to others."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from advect._util.checks import check_kind
from advect.errors import InputError

VelocityNetwork = Callable[[tuple[int, ...], int], nn.Module]

_WAVES = 4  # of time, cos and sin each


class Velocity(nn.Module):
    """Fully connected layers with skips on flattened samples, shifted by time and label; the last
    starts at zero.

    Args:
        shape: of a sample.
        labels: how many labels there are; one more stands for one that is not known.
        width: of the hidden layers.

    Example:
        >>> import torch
        >>> still = Velocity((3,), 2, 8)
        >>> still(torch.ones(2, 3), torch.zeros(2), torch.tensor([0, 2])).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    waves: Tensor

    def __init__(self, shape: tuple[int, ...], labels: int, width: int) -> None:
        super().__init__()
        d = math.prod(shape)
        self.first = nn.Linear(d, width)
        self.time = nn.Linear(2 * _WAVES + 1, width)
        self.label = nn.Embedding(labels + 1, width)
        self.inner = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.last = nn.Linear(width, d)
        nn.init.normal_(self.label.weight, std=0.5)  # as much as samples in standard units
        for part in (self.last.weight, self.last.bias):
            nn.init.zeros_(part)
        self.register_buffer("waves", math.pi * torch.arange(1.0, _WAVES + 1))

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        phases = t[:, None] * self.waves
        when = torch.cat([t[:, None], phases.cos(), phases.sin()], dim=1)
        h = self.first(x.flatten(1)) + self.time(when) + self.label(y)
        for layer in self.inner:
            h = h + layer(nn.functional.silu(h))
        return self.last(nn.functional.silu(h)).reshape(x.shape)


class Carrier(nn.Module):
    """Samples to samples in the units of the data, by Heun's steps along

        v(x, t, y) = shift + spread · f((x − centre)/scale, t, y)

    Args:
        network: f, in standard units and float32.
        labels: how many labels it knows; positions outside of 0 … labels − 1 are not known.
        steps: of the same length.
        centre, scale, shift, spread: statistics, of the sample shape.

    Example:
        >>> import torch
        >>> zero, one = torch.zeros(1), torch.ones(1)
        >>> class Ahead(torch.nn.Module):
        ...     def forward(self, x, t, y):
        ...         return x
        >>> ahead = Carrier(Ahead(), 0, 50, zero, one, zero, one)          # dx/dt = x
        >>> round(float(ahead(torch.ones(1, 1))), 3)
        2.718
    """

    centre: Tensor
    scale: Tensor
    shift: Tensor
    spread: Tensor

    def __init__(
        self,
        network: nn.Module,
        labels: int,
        steps: int,
        centre: Tensor,
        scale: Tensor,
        shift: Tensor,
        spread: Tensor,
    ) -> None:
        super().__init__()
        self.network, self.labels, self.steps = network, labels, steps
        statistics = {"centre": centre, "scale": scale, "shift": shift, "spread": spread}
        for name, value in statistics.items():
            self.register_buffer(name, value)

    def standard(self, x: Tensor, t: Tensor, codes: Tensor) -> Tensor:
        """f at samples in the units of the data."""
        known = (codes >= 0) & (codes < self.labels)
        labels = torch.where(known, codes, self.labels)
        return self.network(((x - self.centre) / self.scale).float(), t.float(), labels)

    def velocity(self, x: Tensor, t: Tensor, codes: Tensor) -> Tensor:
        """v(x, t, y), in the units of the data."""
        return self.shift + self.spread * self.standard(x, t, codes).to(x.dtype)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        return self.states(x, y)[-1]

    def states(self, x: Tensor, y: Tensor | None = None) -> list[Tensor]:
        """Where samples are after 0, 1, …, ``steps`` steps."""
        x = x.to(self.centre.dtype)
        n, step, found = x.shape[0], 1 / self.steps, [x]
        codes = x.new_full((n,), -1, dtype=torch.int64) if y is None else y
        for k in range(self.steps):
            now, then = (x.new_full((n,), (k + ahead) * step) for ahead in (0, 1))
            slope = self.velocity(x, now, codes)
            x = x + step / 2 * (slope + self.velocity(x + step * slope, then, codes))
            found.append(x)
        return found


def build_velocity(
    network: VelocityNetwork | None, shape: tuple[int, ...], labels: int, width: int
) -> nn.Module:
    """A new network: the one asked for, checked on a batch; else fully connected layers."""
    if network is None:
        return Velocity(shape, labels, width)
    made = network(shape, labels)
    what = "network must make a torch module from a sample shape and a number of labels"
    check_kind(what, made, nn.Module, "Return an nn.Module of (x, t, y).")
    made = made.float().eval()
    with torch.no_grad():
        out = made(torch.zeros(2, *shape), torch.zeros(2), torch.full((2,), labels))
    got = tuple(out.shape) if torch.is_tensor(out) else type(out).__name__
    if got != (2, *shape):
        raise InputError(
            f"the network must map (2, *{shape}), times and labels to the same shape",
            got,
            "Check its last layer.",
        )
    return made

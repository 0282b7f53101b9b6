"""The paper's parametric map: a network h(x_0) ≈ x_T (sections 5.3 and 6.2, appendix C).

    min_h Σ_i a_i ‖h(x_0,i) − x_T,i‖²     in standard units

by Adam from several random starts; the best epoch on held-out pairs is kept."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util.checks import check_count
from advect._util.progress import Progress, track
from advect.data.dataset import LabeledDataset
from advect.maps.network_map import NetworkMap
from advect.maps.networks import (
    Autoencoder,
    Perceptron,
    Pushforward,
    fixed_random_state,
    is_image,
    standard_units,
)

_BLOCK = 512  # rows whose errors are computed at once
_HELD_OUT = 0.1  # share of the pairs on which epochs are compared
_PATIENCE = 5  # epochs without improvement before a start is given up
_LEARNING_RATE, _BATCH_SIZE = 1e-3, 64


@dataclass(eq=False)
class NeuralMap(NetworkMap, kind="neural"):
    """x ↦ h(x), a network fitted on the pairs; it ignores labels.

    Use it to carry very many samples, or to export a network. Images of shape (H, W) or (H, W, 3) go
    through the paper's autoencoder (two convolutions and five fully connected layers, and the same in
    reverse); other samples through x + mlp(x). Inputs and outputs are standardized.

    Args:
        epochs: number of epochs of Adam.
        restarts: number of random starts; the paper uses ten.
        seed: seed of initial weights and batches; torch's random state is not changed.
        progress: None shows slow progress, False is silent, a function gets (done, total).

    Attributes:
        held_out_error_: mean square error of the network on held-out pairs.

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
    options: ClassVar = ("epochs", "restarts", "seed")

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("restarts", 1), ("seed", 0)):
            setattr(self, name, check_count(name, getattr(self, name), least=least))

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        pairs, residual = _Pairs(start, end), not is_image(start.sample_shape)
        target = pairs.y.double() - pairs.x.double() if residual else pairs.y
        statistics = standard_units(pairs.x, target, pairs.x.dtype)
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(start), generator=generator)
        n_held = min(max(round(_HELD_OUT * len(start)), 1), len(start) - 1)
        held, rest = (order[:n_held] if n_held else order), order[n_held:]
        best, chosen = math.inf, None
        with track(self.restarts * self.epochs, "fitting a network", self.progress) as advance:
            for restart in range(self.restarts):
                errors: list[float] = []  # held-out errors before training and after each epoch
                seed = int(torch.randint(2**31, (1,), generator=generator))
                with fixed_random_state(seed):
                    module = self.build(start.sample_shape, statistics, None).to(start.x.device)
                    optimizer = torch.optim.Adam(module.network.parameters(), lr=_LEARNING_RATE)
                    for epoch in range(self.epochs + 1):
                        if epoch:
                            pairs.train(module, optimizer, rest, generator)
                            advance(1)
                        errors.append(pairs.error(module, held))
                        if errors[-1] < best or restart == epoch == 0:
                            best, chosen = errors[-1], copy.deepcopy(module)
                        if epoch - errors.index(min(errors)) >= _PATIENCE:
                            advance(self.epochs - epoch)
                            break
        assert chosen is not None
        self.freeze(chosen)
        self.held_out_error_ = best

    def build(self, shape: tuple[int, ...], statistics: list[Tensor], facts: Any) -> Pushforward:
        image = is_image(shape)
        network = Autoencoder(shape) if image else Perceptron(shape)
        return Pushforward(network, not image, *statistics)

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, facts = super().pack()
        return tensors, facts | {"held_out_error": self.held_out_error_}

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        super().unpack(tensors, facts)
        self.held_out_error_ = float(facts["held_out_error"])


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
        module.train()
        for batch in rows[torch.randperm(len(rows), generator=generator)].split(_BATCH_SIZE):
            errors = (module(self.x[batch]) - self.y[batch]) / module.spread
            errors = errors.square().flatten(1).mean(dim=1)
            optimizer.zero_grad()
            (self.weights[batch].to(errors) * errors).mean().backward()
            optimizer.step()

    def error(self, module: Pushforward, rows: Tensor) -> float:
        """Weighted mean square error in the units of the data."""
        module.eval()
        with torch.no_grad():
            parts = [
                self.weights[part]
                * (module(self.x[part]) - self.y[part]).double().square().flatten(1).mean(dim=1)
                for part in rows.split(_BLOCK)
            ]
        return float(torch.cat(parts).sum() / self.weights[rows].sum())

"""The paper's parametric map: a network h(x_0) ≈ x_T (sections 5.3 and 6.2, appendix C).

    min_h Σ_i a_i ‖h(x_0,i) − x_T,i‖²     in standard units

by Adam from several random starts; the best epoch on held-out pairs is kept."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from advect._util.checks import check_count
from advect._util.progress import Progress, track
from advect.data.dataset import LabeledDataset
from advect.maps.base import Map
from advect.maps.networks import (
    STATISTICS,
    Pushforward,
    build,
    fixed_random_state,
    is_image,
    standard_units,
    write_program,
)

_BLOCK = 512  # rows carried at once
_HELD_OUT = 0.1  # share of the pairs on which epochs are compared
_PATIENCE = 5  # epochs without improvement before a start is given up
_LEARNING_RATE, _BATCH_SIZE = 1e-3, 64
_OPTIONS = ("epochs", "restarts", "seed")


@dataclass(eq=False)
class NeuralMap(Map, kind="neural"):
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
        history_: for each start, (training error, held-out error) before training and after each
            epoch, as mean squares.
        held_out_error_: held-out error of the network.

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

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("restarts", 1), ("seed", 0)):
            setattr(self, name, check_count(name, getattr(self, name), least=least))

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        pairs = _Pairs(start, end)
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(start), generator=generator)
        n_held = min(max(round(_HELD_OUT * len(start)), 1), len(start) - 1)
        held, rest = (order[:n_held] if n_held else order), order[n_held:]
        best, self.history_ = math.inf, []
        with track(self.restarts * self.epochs, "fitting a network", self.progress) as advance:
            for restart in range(self.restarts):
                errors: list[tuple[float, float]] = []
                self.history_.append(errors)
                seed = int(torch.randint(2**31, (1,), generator=generator))
                with fixed_random_state(seed):
                    module = pairs.pushforward(build(start.sample_shape))
                    optimizer = torch.optim.Adam(module.network.parameters(), lr=_LEARNING_RATE)
                    for epoch in range(self.epochs + 1):
                        if epoch:
                            module.train()
                            shuffled = rest[torch.randperm(len(rest), generator=generator)]
                            for batch in shuffled.split(_BATCH_SIZE):
                                optimizer.zero_grad()
                                pairs.loss(module, batch).backward()
                                optimizer.step()
                            advance(1)
                        errors.append((pairs.error(module, rest), pairs.error(module, held)))
                        if errors[-1][1] < best or restart == epoch == 0:
                            best, self._module = errors[-1][1], copy.deepcopy(module)
                        if epoch - min(range(epoch + 1), key=lambda i: errors[i][1]) >= _PATIENCE:
                            advance(self.epochs - epoch)
                            break
        self._module = self._module.eval().requires_grad_(False)
        self.held_out_error_ = best

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        samples = x.reshape(len(x), *self._module.centre.shape).to(self._module.centre.device)
        return torch.cat([self._module(part) for part in samples.split(_BLOCK)]).reshape(x.shape)

    def export(self, path: str | Path) -> Path:
        """Write the network for use without advect: ``.pt2`` (torch.export) or ``.onnx``.

        The input is called ``x`` and has the dtype of the data of the fit.
        """
        shape, module = self._fitted(), copy.deepcopy(self._module).cpu()
        example = torch.zeros(2, *shape, dtype=self._module.centre.dtype)
        return write_program(Path(path), module, {"x": example})

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        facts: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        facts |= {"history": self.history_, "held_out_error": self.held_out_error_}
        return dict(self._module.state_dict()), facts

    def unpack(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        for name in _OPTIONS:
            setattr(self, name, facts[name])
        self.__post_init__()
        self.history_ = [[(float(a), float(b)) for a, b in errors] for errors in facts["history"]]
        self.held_out_error_ = float(facts["held_out_error"])
        shape = self._fitted()
        statistics = [tensors[name] for name in STATISTICS]
        if any(value.shape != shape for value in statistics):
            raise ValueError(f"statistics are not of shape {shape}")
        with torch.device("meta"):  # no memory until the weights are known to fit
            network = build(shape)
        self._module = Pushforward(network, not is_image(shape), *statistics)
        self._module.load_state_dict(tensors, assign=True)
        self._module.eval().requires_grad_(False)


class _Pairs:
    """Pairs as tensors, and the errors of a network."""

    def __init__(self, start: LabeledDataset, end: LabeledDataset) -> None:
        self.x, self.y = start.samples, end.samples
        self.weights = start.weights * len(start)

    def pushforward(self, network: nn.Module) -> Pushforward:
        residual = not is_image(tuple(self.x.shape[1:]))
        target = self.y.double() - self.x.double() if residual else self.y
        statistics = standard_units(self.x, target, self.x.dtype)
        return Pushforward(network.to(self.x.device), residual, *statistics)

    def loss(self, module: Pushforward, rows: Tensor) -> Tensor:
        """Weighted mean square error in standard units."""
        errors = (module(self.x[rows]) - self.y[rows]) / module.spread
        errors = errors.square().flatten(1).mean(dim=1)
        return (self.weights[rows].to(errors) * errors).mean()

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

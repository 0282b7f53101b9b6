"""The paper's parametric map: a network fitted on first and last states, h(x_0) ≈ x_T (sections 5.3
and 6.2, appendix C).

    min_h Σ_i a_i ‖h(x_0,i) − x_T,i‖²     in standard units

by Adam from several random starts, of which the best epoch on held-out pairs is kept. Architectures
are left to others."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from advect._util.checks import check_count, check_number, check_positive
from advect._util.progress import Progress, track
from advect.data.dataset import LabeledDataset
from advect.errors import InputError
from advect.maps.base import Map
from advect.maps.exports import write_program
from advect.maps.networks import (
    Network,
    Pushforward,
    build,
    deviation,
    is_image,
    own_randomness,
)

_BATCH = 512  # rows carried at once
_OPTIONS = ("epochs", "learning_rate", "batch_size", "restarts", "held_out", "patience", "seed")
_STATISTICS = ("centre", "scale", "shift", "spread")


@dataclass(eq=False)
class NeuralMap(Map, kind="neural"):
    """x ↦ h(x), a network fitted on the pairs; it never looks at labels.

    Images, of shape (H, W) or (H, W, 3), go through the paper's autoencoder (two convolutions and
    five fully connected layers, and the same in reverse); other samples through x + mlp(x). Inputs
    and outputs are standardised inside.

    Args:
        network: a function from the sample shape to a torch module on batches of that shape, used
            as x + network(x) instead.
        epochs, learning_rate, batch_size: of Adam.
        restarts: how many random starts; the paper takes ten.
        held_out: share of the pairs on which starts and epochs are compared; with 0, or a single
            pair, on those it learns from.
        patience: epochs without a better one before a start is given up.
        seed: of initial weights and batches; torch's own random state is left as it was.
        progress: None shows it on stderr when it takes long; False is silent; a function is called
            with (done, total).
        device: where to train and carry; by default where the pairs are.

    Attributes:
        history_: for each start, (error on the pairs it learns from, error on held-out pairs)
            before training and after each epoch, as mean squares over samples and features.
        held_out_error_: the least held-out error, that of the network that was kept.

    Example:
        >>> import torch, advect as ad
        >>> start = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
        >>> neural = ad.maps.NeuralMap(epochs=5, restarts=1).fit(start, 2 * start)
        >>> neural.held_out_error_ < 0.05, neural.transform(start).shape
        (True, torch.Size([100, 2]))
    """

    network: Network | None = None
    epochs: int = 20
    learning_rate: float = 1e-3
    batch_size: int = 64
    restarts: int = 3
    held_out: float = 0.1
    patience: int = 5
    seed: int = 0
    progress: Progress = field(default=None, repr=False)
    device: torch.device | str | None = None

    def __post_init__(self) -> None:
        if self.network is not None and (
            isinstance(self.network, nn.Module) or not callable(self.network)
        ):
            raise InputError(
                "network must be a function from a sample shape to a torch module",
                type(self.network).__name__,
                "Each restart needs a new one: pass lambda shape: ….",
            )
        for name, least in {
            "epochs": 0,
            "batch_size": 1,
            "restarts": 1,
            "patience": 1,
            "seed": 0,
        }.items():
            setattr(self, name, check_count(name, getattr(self, name), least=least))
        self.learning_rate = check_positive("learning_rate", self.learning_rate)
        if not 0 <= check_number("held_out", self.held_out) < 1:
            raise InputError(
                "held_out must be a share of at least 0 and below 1",
                self.held_out,
                "0.1 keeps a tenth aside.",
            )

    def learn(self, start: LabeledDataset, end: LabeledDataset) -> None:
        pairs = _Pairs(start, end, self.device)
        generator = torch.Generator().manual_seed(self.seed)
        order = torch.randperm(len(start), generator=generator)
        aside = (
            min(max(round(self.held_out * len(start)), 1), len(start) - 1) if self.held_out else 0
        )
        held, rest = (order[:aside] if aside else order), order[aside:]
        best, self.history_ = math.inf, []
        total = self.restarts * self.epochs
        with track(total, "fitting a network", self.progress) as advance, own_randomness():
            for restart in range(self.restarts):
                torch.default_generator.manual_seed(
                    int(torch.randint(2**31, (1,), generator=generator))
                )
                module = pairs.pushforward(
                    build(self.network, start.sample_shape), self.network is None
                )
                errors: list[tuple[float, float]] = []
                self.history_.append(errors)
                for epoch, train_error in enumerate(self._epochs(module, pairs, rest, generator)):
                    error = pairs.error(module, held)
                    errors.append((train_error, error))
                    if error < best or restart == epoch == 0:
                        best, self._module = error, copy.deepcopy(module)
                    if epoch:
                        advance(1)
                    least = min(range(len(errors)), key=lambda index: errors[index][1])
                    if epoch - least >= self.patience:
                        advance(self.epochs - epoch)
                        break
        self._module = self._module.eval().requires_grad_(False)
        self.held_out_error_ = best

    def _epochs(
        self, module: Pushforward, pairs: _Pairs, rows: Tensor, generator: torch.Generator
    ) -> Iterator[float]:
        """Training error before the first epoch, then after each."""
        yield pairs.error(module, rows)
        optimizer = torch.optim.Adam(module.network.parameters(), lr=self.learning_rate)
        for _ in range(self.epochs):
            module.train()
            for batch in rows[torch.randperm(len(rows), generator=generator)].split(
                self.batch_size
            ):
                optimizer.zero_grad()
                pairs.loss(module, batch).backward()
                optimizer.step()
            yield pairs.error(module, rows)

    def move(self, x: Tensor, codes: Tensor) -> Tensor:
        samples = x.reshape(len(x), *self._module.centre.shape).to(self._module.centre.device)
        return torch.cat([self._module(part) for part in samples.split(_BATCH)]).reshape(x.shape)

    def as_module(self) -> nn.Module:
        """The fitted network as a torch module on batches ``(n, *sample_shape)``, a copy of its own.

        Example:
            >>> import torch, advect as ad
            >>> neural = ad.maps.NeuralMap(epochs=1, restarts=1).fit(torch.zeros(4, 2), torch.ones(4, 2))
            >>> neural.as_module()(torch.zeros(3, 2)).tolist()
            [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
        """
        self._fitted()
        return copy.deepcopy(self._module)

    def export(self, path: str | Path) -> Path:
        """Write the fitted network for use without advect: ``.pt2`` for torch.export, ``.onnx`` for
        ONNX; any batch size.

        The input is called ``x`` and has the dtype of the data of the fit.

        Raises:
            InputError: another suffix, or ``.onnx`` without the packages of ``pip install
                'advect[onnx]'``.

        Example:
            >>> import tempfile, pathlib, torch, advect as ad
            >>> neural = ad.maps.NeuralMap(epochs=1, restarts=1).fit(torch.zeros(4, 2), torch.ones(4, 2))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = neural.export(pathlib.Path(folder) / "map.pt2")
            ...     torch.export.load(path).module()(torch.zeros(1, 2)).tolist()
            [[1.0, 1.0]]
        """
        path, shape = Path(path), self._fitted()
        module = copy.deepcopy(self._module).cpu()
        return write_program(path, module, {"x": torch.zeros(2, *shape, dtype=module.centre.dtype)})

    def pack(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if self.network is not None:
            raise InputError(
                "a file cannot hold the code of a network of your own",
                f"network={self.network!r}",
                "Use export(path), or save map.as_module().state_dict() and build it again.",
            )
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
        if any(tensors[name].shape != shape for name in _STATISTICS):
            raise ValueError(f"statistics are not of shape {shape}")
        # takes no memory until the weights are known to fit, and no random numbers
        with torch.device("meta"):
            network = build(None, shape)
        self._module = Pushforward(
            network, not is_image(shape), *(tensors[name] for name in _STATISTICS)
        )
        self._module.load_state_dict(tensors, assign=True)
        self._module.eval().requires_grad_(False)


class _Pairs:
    """The pairs as a network sees them."""

    def __init__(
        self, start: LabeledDataset, end: LabeledDataset, device: torch.device | str | None
    ) -> None:
        self.shape = start.sample_shape
        self.x, self.y = (part.samples.to(device) for part in (start, end))
        self.weights = (start.weights * len(start)).to(device)  # mean one

    def pushforward(self, network: nn.Module, ours: bool) -> Pushforward:
        """The network between the units of these pairs; images have one scale, since pixels at the
        border hardly vary.
        """
        image = is_image(self.shape)
        residual = not (ours and image)
        x, y = self.x.double(), self.y.double()
        y = y - x if residual else y
        statistics = [
            part
            for values in (x, y)
            for part in (values.mean(dim=0), deviation(values, together=image))
        ]
        ready = (part.to(self.x).expand(self.shape).contiguous() for part in statistics)
        return Pushforward(network.to(self.x.device), residual, *ready)

    def loss(self, module: Pushforward, rows: Tensor) -> Tensor:
        """Weighted mean square error in standard units."""
        errors = (
            ((module(self.x[rows]) - self.y[rows]) / module.spread).square().flatten(1).mean(dim=1)
        )
        return (self.weights[rows].to(errors) * errors).mean()

    def error(self, module: Pushforward, rows: Tensor) -> float:
        """Weighted mean square error in the units of the data."""
        module.eval()
        with torch.no_grad():
            parts = [
                self.weights[part]
                * (module(self.x[part]) - self.y[part]).double().square().flatten(1).mean(dim=1)
                for part in rows.split(_BATCH)
            ]
        return float(torch.cat(parts).sum() / self.weights[rows].sum())

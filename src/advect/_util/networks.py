"""Networks as functions of samples: torch modules in evaluation mode."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BATCH = 1024  # samples


def evaluate(module: nn.Module, samples: Tensor) -> Tensor:
    """Call a module on batches, in evaluation mode and without gradients.

    The mode of each layer is restored afterwards.
    """
    modes = [(layer, layer.training) for layer in module.modules()]
    parameter = next(module.parameters(), samples)
    dtype = parameter.dtype if parameter.is_floating_point() else samples.dtype
    try:
        module.eval()
        with torch.no_grad():
            batches = samples.to(device=parameter.device, dtype=dtype).split(BATCH)
            return torch.cat([module(batch) for batch in batches])
    finally:
        for layer, training in modes:
            layer.training = training  # train() would also change the layers inside

"""Networks as functions of samples: torch modules in evaluation mode, and ONNX files.

Opening an ONNX file runs no code of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from advect._util.checks import refuse_if
from advect.errors import InputError

BATCH = 1024  # samples
_MAX_CHANNELS = 4  # of an image


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
            return torch.cat([_forward(module, batch) for batch in batches])
    finally:
        for layer, training in modes:
            layer.training = training  # train() would also change the layers inside


def _forward(module: nn.Module, batch: Tensor) -> Tensor:
    """Call a module, with images as (n, C, H, W) if it has convolutions and does not take others."""
    images = batch.ndim == 3 or (batch.ndim == 4 and batch.shape[3] <= _MAX_CHANNELS)
    if not images or not any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        return module(batch)
    if batch.ndim == 3 and len(batch) <= _MAX_CHANNELS:  # would be taken for channels of one image
        return _forward(module, torch.cat([batch] * (_MAX_CHANNELS + 1)))[: len(batch)]
    try:
        return module(batch)
    except RuntimeError as error:
        try:
            return module(batch[:, None] if batch.ndim == 3 else batch.permute(0, 3, 1, 2))
        except RuntimeError:
            raise error from None


class OnnxModel:
    """The first output of a network with one input, for samples (n, …)."""

    def __init__(self, path: Path, what: str) -> None:
        refuse_if(not path.is_file(), f"no such file for {what}", path, "Check the path.")
        self.path, self.what = path, what
        try:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
            self._session: Any = onnxruntime.InferenceSession(str(path), options)
        except ImportError as error:
            remedy = "Install it: pip install 'advect[onnx]'."
            raise InputError("ONNX models need onnxruntime", str(error), remedy) from None
        except Exception as error:  # onnxruntime has many kinds of its own
            got = f"{path} ({error})"
            raise InputError("not an ONNX model, or damaged", got, "Export it again.") from None
        self._input = self._session.get_inputs()[0]

    def __call__(self, samples: Tensor) -> np.ndarray:
        """Outputs of samples, which are reshaped if the network expects channels first or flat rows."""
        array = samples.detach().cpu().numpy()
        batch, *shape = (size if isinstance(size, int) else -1 for size in self._input.shape)
        if math.prod(shape) == math.prod(array.shape[1:]):
            if array.ndim == 4 and [array.shape[3], *array.shape[1:3]] == shape:
                array = np.moveaxis(array, 3, 1)
            array = array.reshape(len(array), *shape)
        array = array.astype("float64" if "double" in self._input.type else "float32")
        size = min(len(array), BATCH) if batch < 0 else batch
        parts = [array[start : start + size] for start in range(0, len(array), size)]
        try:  # the last batch is filled up, for a network of one batch size
            batches = [np.resize(part, (size, *array.shape[1:])) for part in parts]
            outputs = [self._session.run(None, {self._input.name: b})[0] for b in batches]
        except Exception as error:
            got = f"shape {array.shape} for {self.path} ({str(error).splitlines()[0]})"
            remedy = "Resize the images, or export the network for samples of this shape."
            raise InputError(f"{self.what} must take samples like these", got, remedy) from None
        return np.concatenate(outputs)[: len(array)]

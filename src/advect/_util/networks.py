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

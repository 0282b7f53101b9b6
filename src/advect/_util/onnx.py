"""Networks in ONNX files as functions of a batch of samples. Opening a file runs no code of it."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from advect._util.checks import refuse_if
from advect.errors import InputError


class OnnxModel:
    """The first output of a network with one input, for samples (n, …)."""

    def __init__(self, path: Path, what: str) -> None:
        self.path, self.what, self.digest = path, what, file_digest(path, what)
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

    def __call__(self, samples: torch.Tensor) -> np.ndarray:
        """Outputs of samples, which are reshaped if the network expects channels first or flat rows."""
        array = samples.detach().cpu().numpy()
        batch, *shape = (size if isinstance(size, int) else -1 for size in self._input.shape)
        if math.prod(shape) == math.prod(array.shape[1:]):
            if array.ndim == 4 and [array.shape[3], *array.shape[1:3]] == shape:
                array = np.moveaxis(array, 3, 1)
            array = array.reshape(len(array), *shape)
        array = array.astype("float64" if "double" in self._input.type else "float32")
        size = len(array) if batch < 0 else batch
        parts = [array[start : start + size] for start in range(0, len(array), size)]
        try:  # a network of one batch size: the last batch is filled up
            batches = [np.resize(part, (size, *array.shape[1:])) for part in parts]
            outputs = [self._session.run(None, {self._input.name: b})[0] for b in batches]
        except Exception as error:
            got = f"shape {array.shape} for {self.path} ({str(error).splitlines()[0]})"
            remedy = "Resize the images, or export the network for samples of this shape."
            raise InputError(f"{self.what} must take samples like these", got, remedy) from None
        return np.concatenate(outputs)[: len(array)]


def file_digest(path: Path, what: str) -> str:
    """SHA-256 of a file and of the weights that torch.onnx writes beside it."""
    refuse_if(not path.is_file(), f"no such file for {what}", path, "Check the path.")
    files = (path, path.with_name(f"{path.name}.data"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in files if p.is_file())).hexdigest()

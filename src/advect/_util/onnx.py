"""Networks in ONNX files, asked on arrays of samples: the file is data, and no code in it is run.

What the answers mean is for those who ask."""

from __future__ import annotations

import hashlib
import importlib
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.errors import InputError

# where a file says that weights are in another file: an entry of its table with the key "location",
# then the length of the name and the name
_LOCATION = re.compile(rb"\n\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])")


class OnnxModel:
    """A network in a file, as a function of a batch of samples; its first output counts.

    Args:
        path: the file.  what: what it is, for messages: a model, an encoder.

    Raises:
        InputError: no such file, no ONNX file, or not one input.
    """

    def __init__(self, path: str | Path, what: str = "a model") -> None:
        self.path, self.what = Path(path).expanduser().absolute(), what
        self.digest = file_digest(self.path, what)
        self._session = _session(self.path)
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            raise InputError(
                f"{what} must have one input",
                f"{len(inputs)} in {self.path}",
                "Export a network of samples alone.",
            )
        self._name, self._dtype = (
            inputs[0].name,
            "float64" if "double" in inputs[0].type else "float32",
        )
        shape: list[Any] = inputs[0].shape or [None]
        batch, sides = shape[0], shape[1:]
        self._batch = batch if type(batch) is int and batch > 0 else None
        known = all(type(side) is int for side in sides)
        self._sides: tuple[int, ...] | None = tuple(sides) if known else None

    def __call__(self, samples: Any) -> np.ndarray:
        """Answers for samples (n, …), in the shape they have or as the network wants it: flat, with
        an axis for one channel, with channels first."""
        array = _fitting(torch.as_tensor(samples).detach().cpu(), self._sides, self)
        array = np.ascontiguousarray(array.numpy().astype(self._dtype, copy=False))
        n, batch = len(array), self._batch or max(len(array), 1)
        answers = []
        for start in range(0, max(n, 1), batch):
            part = array[start : start + batch]
            # a network of batches of one size: the last one is filled up
            rest = (self._batch or len(part)) - len(part)
            whole = np.concatenate([part, np.repeat(part[-1:], rest, axis=0)]) if rest else part
            answers.append(self._run(whole)[: len(part)] if rest else self._run(whole))
        return np.concatenate(answers)

    def _run(self, array: np.ndarray) -> np.ndarray:
        try:
            return np.asarray(self._session.run(None, {self._name: array})[0])
        except Exception as error:  # of many kinds of its own
            raise InputError(
                f"{self.what} must take samples like these",
                f"shape {array.shape} for {self.path} ({str(error).splitlines()[0]})",
                "Export it for samples of this shape, with a first axis of any length.",
            ) from None


def file_digest(path: Path, what: str = "a model") -> str:
    """SHA-256 of a file, and of the files beside it that it says its weights are in.

    Raises:
        InputError: there is no such file.
    """
    if not path.is_file():
        raise InputError(f"no such file for {what}", path, "Check the path.")
    content = path.read_bytes()
    hasher = hashlib.sha256(content)
    for name in _elsewhere(content):
        beside = path.parent / name
        if beside.is_file() and path.parent.resolve() in beside.resolve().parents:
            hasher.update(beside.read_bytes())
    return hasher.hexdigest()


def _elsewhere(content: bytes) -> list[str]:
    """Names of the files with weights, in order."""
    names = set()
    for found in _LOCATION.finditer(content):
        first, *more = found[1]
        length = first if not more else (first & 0x7F) | (more[0] << 7)
        names.add(content[found.end() : found.end() + length].decode("utf-8", "replace"))
    return sorted(name for name in names if "\0" not in name)


def _session(path: Path) -> Any:
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InputError(
            "ONNX models need onnxruntime", str(error), "Install it: pip install 'advect[onnx]'."
        ) from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors are raised
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of many kinds of its own
        raise InputError(
            "not an ONNX model, or damaged", f"{path} ({error})", "Export it again."
        ) from None


def _fitting(samples: Tensor, sides: tuple[int, ...] | None, model: OnnxModel) -> Tensor:
    """Samples in the shape that a network wants: (n, 28, 28) as (n, 1, 28, 28), (n, H, W, 3) as
    (n, 3, H, W); as they are where it takes any."""
    shape = tuple(samples.shape[1:])
    if sides is None or shape == sides:
        return samples
    if len(shape) == len(sides) == 3 and (shape[2], *shape[:2]) == sides:
        return samples.movedim(3, 1)
    real, wanted = ([side for side in s if side != 1] for s in (shape, sides))
    if real == wanted or (1 in (len(real), len(wanted)) and math.prod(shape) == math.prod(sides)):
        return samples.reshape(len(samples), *sides)
    raise InputError(
        f"{model.what} must take samples like these",
        f"samples of shape {shape} for {sides} of {model.path}",
        "Bring images to its size and channels, or export it for this shape.",
    )

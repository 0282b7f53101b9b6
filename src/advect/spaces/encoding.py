"""Encoders and decoders of samples: torch modules, functions and ONNX files.

A saved space holds the name and a digest of its encoder, never the encoder itself. The encoder is
passed again when the space is loaded; an ONNX file is opened again if its content is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from advect._util.checks import check_finite
from advect._util.onnx import OnnxModel, file_digest
from advect._util.progress import Progress, track
from advect.data.digest import digest
from advect.errors import InputError
from advect.spaces.inputs import require
from advect.spaces.steps import Step

_NUMBERS, _ROWS = 2**22, 1024  # limits of a batch: numbers and samples


@dataclass(frozen=True, eq=False)
class Coder:
    """A function ``call`` of a batch of samples, made from the object that a user passed.

    ``get_digest`` identifies its parameters; a function has no digest and is identified by its name.
    ``given`` is None if the coder of a saved space was not passed again.
    """

    kind: str  # torch, function or onnx
    name: str
    given: Any
    call: Callable[[Tensor], Any] | None
    get_digest: Callable[[], str | None] = lambda: None
    path: str | None = None

    def to_dict(self) -> dict[str, Any]:
        facts = {"kind": self.kind, "name": self.name, "digest": self.get_digest()}
        return facts if self.path is None else facts | {"path": self.path}


def as_coder(given: Any, what: str) -> Coder:
    """The object that a user passed as ``what``, "encoder" or "decoder"."""
    if isinstance(given, str | Path):
        path = Path(given).expanduser().absolute()
        remedy = "Export the network to ONNX, or load it and pass the object."
        is_onnx = path.suffix.lower() == ".onnx"
        require(is_onnx, f"the file of the {what} must be an ONNX file", path, remedy)
        model = OnnxModel(path, f"the {what}")
        return Coder("onnx", path.name, path, model, lambda: model.digest, str(path))
    if isinstance(given, torch.nn.Module):
        call, get_digest = partial(_call_module, given), partial(_module_digest, given)
        return Coder("torch", type(given).__name__, given, call, get_digest)
    require(
        callable(given) and not isinstance(given, type),
        f"the {what} must be a torch module, a function of samples or the path of an ONNX file",
        f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__,
        "Pass such an object; of a scikit-learn transformer, pass its method transform.",
    )
    named = given if hasattr(given, "__qualname__") else type(given)
    return Coder("function", f"{named.__module__}.{named.__qualname__}", given, given)


def _call_module(module: torch.nn.Module, samples: Tensor) -> Any:
    """The output in evaluation mode, on the device and in the dtype of the module."""
    modes = [(layer, layer.training) for layer in module.modules()]
    tensors = (*module.parameters(), *module.buffers())
    like = next((tensor for tensor in tensors if tensor.is_floating_point()), samples)
    try:
        module.eval()
        with torch.set_grad_enabled(samples.requires_grad and torch.is_grad_enabled()):
            return module(samples.to(device=like.device, dtype=like.dtype))
    finally:
        for layer, training in modes:
            layer.training = training  # train() would change the layers below too


def _module_digest(module: torch.nn.Module) -> str:
    state = {
        name: (str(value.dtype), value.float() if value.dtype is torch.bfloat16 else value)
        for name, value in module.state_dict().items()
        if torch.is_tensor(value)
    }
    return digest(type(module).__qualname__, repr(module), state)


def _load_coder(facts: Any, what: str, given: Any) -> Coder:
    """The coder of a saved space: the one passed again, or an unchanged ONNX file."""
    kind, name, saved_digest = facts["kind"], facts["name"], facts["digest"]
    path = facts.get("path")
    if given is None and kind == "onnx" and Path(path).is_file():
        given = path if file_digest(Path(path), what) == saved_digest else None
    if given is None:
        return Coder(kind, name, None, None, lambda: saved_digest, path)
    coder = as_coder(given, what)
    version = (coder.kind, coder.name) == (kind, name)
    require(
        (coder.kind, coder.get_digest() or coder.name) == (kind, saved_digest or name),
        f"the {what} must be the one of the fit: {name} ({kind})",
        "another version of it" if version else f"{coder.name} ({coder.kind})",
        f"Pass the same {what}, or fit the space again.",
    )
    return coder


@dataclass(frozen=True, eq=False)
class Encoding(Step):
    """Samples of ``shape`` as the ``dim`` features that an encoder computes, in batches."""

    shape: tuple[int, ...]
    dim: int
    encoder: Coder
    decoder: Coder | None = None
    progress: Progress = None
    kind: ClassVar[str] = "encode"

    @property
    def coders(self) -> dict[str, Coder]:
        pairs = {"encoder": self.encoder, "decoder": self.decoder}
        return {what: coder for what, coder in pairs.items() if coder is not None}

    @property
    def invertible(self) -> bool:
        return self.decoder is not None and self.decoder.given is not None

    def apply(self, x: Tensor) -> Tensor:
        return run_coder(self.encoder, x, self.shape, "encoder", self.dim, self.progress)

    def invert(self, x: Tensor) -> Tensor:
        if self.decoder is None:
            what = "the features of an encoder cannot be inverted without a decoder"
            raise InputError(what, self.encoder.name, "Pass decoder= to FeatureSpace.fit.")
        dim = math.prod(self.shape)
        return run_coder(self.decoder, x, (self.dim,), "decoder", dim, self.progress)

    def describe(self) -> str:
        decoded = "" if self.decoder is None else ", with a decoder"
        return f"{self.dim} features of the encoder {self.encoder.name}{decoded}"

    def to_dict(self) -> dict[str, Any]:
        decoder = None if self.decoder is None else self.decoder.to_dict()
        coders = {"encoder": self.encoder.to_dict(), "decoder": decoder}
        return {"shape": list(self.shape), "dim": self.dim, **coders}

    @classmethod
    def from_dict(cls, facts: Any, **coders: Any) -> Encoding:
        """The step that ``to_dict`` returned, with the coders that were passed again."""
        encoder, decoder = (
            facts[what] and _load_coder(facts[what], what, coders[what])
            for what in ("encoder", "decoder")
        )
        return cls(tuple(facts["shape"]), facts["dim"], encoder, decoder, coders["progress"])


def run_coder(
    coder: Coder,
    x: Tensor,
    shape: tuple[int, ...],
    what: str,
    dim: int | None = None,
    progress: Progress = None,
) -> Tensor:
    """Features (n, dim) of flat samples, which the coder gets in this shape and in batches."""
    rows = max(1, min(_ROWS, _NUMBERS // max(1, x.shape[1])))
    parts = []
    with track(len(x), what.replace("er", "ing"), progress) as advance:
        for part in x.split(rows):
            parts.append(call_coder(coder, part.reshape(-1, *shape), what, dim))
            advance(len(part))
    return torch.cat(parts)


def call_coder(coder: Coder, samples: Tensor, what: str, dim: int | None) -> Tensor:
    """Checked rows (n, dim) of a coder, in the dtype and on the device of the samples."""
    n, shape = len(samples), tuple(samples.shape[1:])
    if coder.call is None:
        what, remedy = f"the feature space needs its {what} again", f"Pass {what}= to from_dict."
        raise InputError(what, f"{coder.name} ({coder.kind}), not found or changed", remedy)
    try:
        output = torch.as_tensor(coder.call(samples))
    except InputError:
        raise
    except Exception as error:  # user code may raise anything
        raise InputError(
            f"the {what} must accept batches of shape (n, {', '.join(map(str, shape))})",
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]} from {coder.name}",
            f"For a network of (n, 1, H, W), prepend torch.nn.Unflatten(1, (1, {shape[0]}))."
            if len(shape) == 2
            else "Wrap it in a function that reshapes the batch.",
        ) from error
    require(
        (output.ndim > 0 and len(output) == n and output.numel() > 0 and not output.is_complex())
        and (dim is None or output.numel() == n * dim),
        f"the {what} must return {dim or 'some'} real numbers for each of the {n} samples",
        f"shape {tuple(output.shape)}, {output.dtype} from {coder.name}",
        "Keep the batch axis; a decoder returns samples in the shape that the encoder takes.",
    )
    rows = output.reshape(n, -1).to(device=samples.device, dtype=samples.dtype)
    check_finite(f"the output of the {what} {coder.name}", rows, "Check the range of the samples.")
    return rows

"""Encoders and decoders of samples: torch modules, functions and ONNX files.

A saved space holds the name and a digest of its encoder, never the encoder itself. The encoder is
passed again when the space is loaded; an ONNX file is found again by its path and content.
"""

from __future__ import annotations

import math
import os
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
from advect.spaces.steps import Shapes, Step, read_shape, require

_NUMBERS, _ROWS = 2**22, 1024  # limits of a batch: numbers and samples


@dataclass(frozen=True, eq=False)
class Coder:
    """A function ``call`` of a batch of samples, from the object that a user passed (``given``).

    ``get_digest`` identifies its parameters; a function has no digest and is identified by its name.
    """

    kind: str  # torch, function or onnx; missing if it was not passed again
    name: str
    given: Any
    call: Callable[[Tensor], Any]
    get_digest: Callable[[], str | None] = lambda: None
    saved: dict[str, Any] | None = None  # the saved form of a missing one

    def to_dict(self, folder: Path | None) -> dict[str, Any]:
        if self.saved is not None:
            return self.saved
        facts = {"kind": self.kind, "name": self.name, "digest": self.get_digest()}
        if self.kind == "onnx":
            path, relative = self.given, None
            if folder is not None and folder.absolute().drive == path.drive:
                near = os.path.relpath(path.resolve(), folder.expanduser().resolve())
                relative = Path(near).as_posix()
            facts |= {"path": str(path), "relative": relative}
        return facts


def as_coder(given: Any, what: str) -> Coder:
    """The object that a user passed as ``what``, "encoder" or "decoder"."""
    if isinstance(given, str | Path):
        path = Path(given).expanduser().absolute()
        if path.suffix.lower() != ".onnx":
            remedy = "Export the network to ONNX, or load it and pass the object."
            raise InputError(f"the file of the {what} must be an ONNX file", path, remedy)
        model = OnnxModel(path, f"the {what}")
        return Coder("onnx", path.name, path, model, lambda: model.digest)
    if isinstance(given, type) or not callable(given):
        raise InputError(
            f"the {what} must be a torch module, a function of samples or the path of an ONNX file",
            f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__,
            "Pass such an object; of a scikit-learn transformer, pass its method transform.",
        )
    if isinstance(given, torch.nn.Module):
        call, get_digest = partial(_call_module, given), partial(_module_digest, given)
        return Coder("torch", type(given).__name__, given, call, get_digest)
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


def load_coder(facts: Any, what: str, given: Any, folder: Path | None) -> Coder:
    """The coder of a saved space: the one passed again, or an ONNX file found again."""
    kind, name, known = facts["kind"], facts["name"], facts["digest"]
    require(kind in ("torch", "function", "onnx"), f"{what} of an unknown kind, {kind!r:.20}")
    text = type(known) is (type(None) if kind == "function" else str)
    require(type(name) is str and text, f"the {what} needs a name and a digest")
    if given is None and kind == "onnx":
        near = (folder or Path()).expanduser() / str(facts.get("relative") or facts["path"])
        places = (near.resolve(), Path(str(facts["path"])))
        same = (place for place in places if place.is_file() and file_digest(place) == known)
        given = next(same, None)
    if given is None:

        def call(samples: Tensor) -> Any:
            got = f"{name} ({kind}), not found or another version" if kind == "onnx" else name
            remedy = f"Pass {what}= to FeatureSpace.from_dict."
            raise InputError(f"the feature space needs its {what} again", got, remedy)

        return Coder("missing", name, None, call, lambda: known, facts)
    coder = as_coder(given, what)
    if coder.kind != kind or (known or name) != (coder.get_digest() or coder.name):
        version = (coder.kind, coder.name) == (kind, name)
        raise InputError(
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

    @classmethod
    def fit(cls, x: Tensor, shape: tuple[int, ...], encoder: Coder, **options: Any) -> Encoding:
        """The step, with a decoder and a progress, tried on the first two samples of x (n, d)."""
        rows = call_coder(encoder, x[:2].reshape(-1, *shape), "encoder", None)
        step = cls(shape, rows.shape[1], encoder, **options)
        if step.decoder is not None:
            step.invert(rows)
        return step

    @property
    def shapes(self) -> Shapes:
        return self.shape, (self.dim,)

    @property
    def invertible(self) -> bool:
        return self.decoder is not None and self.decoder.kind != "missing"

    def apply(self, x: Tensor) -> Tensor:
        return self._in_batches(self.encoder, "encoder", x, self.shape, self.dim)

    def invert(self, x: Tensor) -> Tensor:
        if self.decoder is None:
            raise InputError(
                "the features of an encoder cannot be inverted without a decoder",
                self.encoder.name,
                "Pass decoder= to FeatureSpace.fit, or use space.pictures(…).",
            )
        return self._in_batches(self.decoder, "decoder", x, (self.dim,), math.prod(self.shape))

    def _in_batches(
        self, coder: Coder, what: str, x: Tensor, shape: tuple[int, ...], dim: int
    ) -> Tensor:
        rows = max(1, min(_ROWS, _NUMBERS // max(1, x.shape[1])))
        parts = []
        with track(len(x), what.replace("er", "ing"), self.progress) as advance:
            for part in x.split(rows):
                parts.append(call_coder(coder, part.reshape(-1, *shape), what, dim))
                advance(len(part))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def loses(self) -> str:
        return f"only the {self.dim} features of {self.encoder.name}"

    def describe(self) -> str:
        decoded = "" if self.decoder is None else ", with a decoder"
        return f"{self.dim} features of the encoder {self.encoder.name}{decoded}"

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        facts = {"shape": list(self.shape), "dim": self.dim}
        decoder = None if self.decoder is None else self.decoder.to_dict(folder)
        return facts | {"encoder": self.encoder.to_dict(folder), "decoder": decoder}

    @classmethod
    def load(cls, facts: Any, coders: dict[str, Any], folder: Path | None) -> Encoding:
        shape, (dim,) = read_shape(facts["shape"]), read_shape([facts["dim"]])
        encoder = load_coder(facts["encoder"], "encoder", coders["encoder"], folder)
        decoder = facts["decoder"]
        if decoder is not None:
            decoder = load_coder(decoder, "decoder", coders["decoder"], folder)
        return cls(shape, dim, encoder, decoder, coders["progress"])


def call_coder(coder: Coder, samples: Tensor, what: str, dim: int | None) -> Tensor:
    """Checked rows (n, dim) of a coder, in the dtype and on the device of the samples."""
    n, shape = len(samples), tuple(samples.shape)
    try:
        answer = torch.as_tensor(coder.call(samples))
    except InputError:
        raise
    except Exception as error:  # user code may raise anything
        raise InputError(
            f"the {what} must accept batches of shape (n, {', '.join(map(str, shape[1:]))})",
            f"{type(error).__name__}: {str(error).partition(chr(10))[0]} from {coder.name}",
            f"For a network of (n, 1, H, W), prepend torch.nn.Unflatten(1, (1, {shape[1]}))."
            if len(shape) == 3
            else "Wrap it in a function that reshapes the batch.",
        ) from error
    real = answer.ndim > 0 and len(answer) == n and answer.numel() > 0 and not answer.is_complex()
    if not real or (dim is not None and answer.numel() != n * dim):
        raise InputError(
            f"the {what} must return {dim or 'some'} real numbers for each of the {n} samples",
            f"shape {tuple(answer.shape)}, {answer.dtype} from {coder.name}",
            "Keep the batch axis; a decoder returns samples in the shape that the encoder takes.",
        )
    rows = answer.reshape(n, -1).to(device=samples.device, dtype=samples.dtype)
    check_finite(f"the output of the {what} {coder.name}", rows, "Check the range of the samples.")
    return rows

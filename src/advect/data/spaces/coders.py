"""What may encode samples or decode them: a torch module, a function, a scikit-learn transformer, an
ONNX file, each asked in the same way.

Nothing of it is ever written but what it is known by again: a digest, or a name. Batches, shapes
and checks are ``encoding``'s."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from advect._util.onnx import OnnxModel
from advect.errors import InputError


class Coder(Protocol):
    """A function of a batch of samples that is known again when it is given a second time.

    Attributes:
        kind: its name where a space is saved.  given: the object that the user gave.
        name: what it is called in words.
        digest: of all that it computes with; None for a function, which is known by its name alone.
        backward: the way back that it knows itself, if any.
    """

    kind: ClassVar[str]

    @property
    def given(self) -> Any: ...
    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str | None: ...
    @property
    def backward(self) -> Coder | None: ...
    def __call__(self, samples: Tensor) -> Any: ...
    def to_dict(self, folder: Path | None) -> dict[str, Any]: ...


class _Known:
    """What most coders say of themselves where a space is saved."""

    kind: ClassVar[str]

    @property
    def backward(self) -> Coder | None:
        return None

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def digest(self) -> str | None:
        return None

    def to_dict(self, folder: Path | None) -> dict[str, Any]:
        """What it is known by; ``folder`` is where the space is kept."""
        return {"kind": self.kind, "name": self.name, "digest": self.digest}


@dataclass(frozen=True, eq=False)
class ModuleCoder(_Known):
    """A torch module, asked in evaluation mode on its own device and in its own dtype; each layer is
    left in the mode it was in.

    Gradients are those of the samples: without any, none are kept."""

    given: torch.nn.Module
    kind: ClassVar[str] = "torch"

    def __call__(self, samples: Tensor) -> Any:
        modes = [(layer, layer.training) for layer in self.given.modules()]
        tensors = (*self.given.parameters(), *self.given.buffers())
        like = next((tensor for tensor in tensors if tensor.is_floating_point()), samples)
        try:
            self.given.eval()
            with torch.set_grad_enabled(samples.requires_grad and torch.is_grad_enabled()):
                return self.given(samples.to(device=like.device, dtype=like.dtype))
        finally:
            for layer, training in modes:
                layer.training = training  # not train(), which reaches into the layers below

    @property
    def name(self) -> str:
        return type(self.given).__name__

    @property
    def digest(self) -> str:
        from advect.data.digest import digest

        held = {
            name: (str(value.dtype), value.float() if value.dtype is torch.bfloat16 else value)
            for name, value in self.given.state_dict().items()
            if torch.is_tensor(value)
        }
        return digest(type(self.given).__qualname__, repr(self.given), held)


@dataclass(frozen=True, eq=False)
class FunctionCoder(_Known):
    """A function of a tensor of samples."""

    given: Callable[[Tensor], Any]
    kind: ClassVar[str] = "function"

    def __call__(self, samples: Tensor) -> Any:
        return self.given(samples)

    @property
    def name(self) -> str:
        named = self.given if hasattr(self.given, "__qualname__") else type(self.given)
        return f"{named.__module__}.{named.__qualname__}"


@dataclass(frozen=True, eq=False)
class EstimatorCoder(_Known):
    """A fitted scikit-learn transformer, on flattened samples; ``method`` of it is called."""

    given: Any
    method: str = "transform"
    kind: ClassVar[str] = "sklearn"

    def __call__(self, samples: Tensor) -> Any:
        table = samples.detach().reshape(len(samples), -1).cpu().numpy()
        found = getattr(self.given, self.method)(table)
        return found.toarray() if hasattr(found, "toarray") else found  # sparse ones

    @property
    def backward(self) -> Coder | None:
        knows = self.method == "transform" and hasattr(self.given, "inverse_transform")
        # a FunctionTransformer takes the identity for what it was not told
        knows &= getattr(self.given, "inverse_func", self) is not None
        return EstimatorCoder(self.given, "inverse_transform") if knows else None

    @property
    def name(self) -> str:
        return type(self.given).__name__

    @property
    def digest(self) -> str:
        from advect.data.digest import digest

        fitted = {name: value for name, value in vars(self.given).items() if name.endswith("_")}
        whole = (f"{type(self.given).__module__}.{type(self.given).__qualname__}", self.method)
        try:
            return digest(*whole, self.given.get_params(), fitted)
        except (InputError, AttributeError) as error:
            raise InputError(
                "a space is saved with transformers that are known again by their numbers",
                f"{self.name} ({error})",
                "Wrap its transform in a function, which is known by its name.",
            ) from None


@dataclass(frozen=True, eq=False)
class OnnxCoder(_Known):
    """A network in an ONNX file, known by its content wherever it is."""

    path: Path
    what: str = "an encoder"
    kind: ClassVar[str] = "onnx"

    @cached_property
    def _model(self) -> OnnxModel:
        return OnnxModel(self.path, self.what)

    @property
    def given(self) -> Path:
        return self.path

    def __call__(self, samples: Tensor) -> Any:
        return self._model(samples)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def digest(self) -> str:
        return self._model.digest

    def to_dict(self, folder: Path | None) -> dict[str, Any]:
        """What it is known by and where it was, also as seen from the folder of the saved space."""
        facts = super().to_dict(folder) | {"path": str(self.path), "relative": None}
        if folder is not None:
            try:
                near = os.path.relpath(self.path.resolve(), folder.expanduser().resolve())
            except ValueError:  # on another drive
                return facts
            facts["relative"] = Path(near).as_posix()
        return facts


def as_coder(given: Any, what: str) -> Coder:
    """What the user gave as ``what``, "encoder" or "decoder"; an unfitted transformer stays so.

    Raises:
        InputError: nothing that can be asked, or a file that would have to be unpickled.
    """
    if isinstance(given, str | Path):
        path = Path(given).expanduser().absolute()
        if path.suffix.lower() != ".onnx":
            raise InputError(
                f"a file for the {what} must be an ONNX file",
                repr(str(given)),
                "Export the network to ONNX; or load it yourself and pass the object.",
            )
        coder = OnnxCoder(path, f"the {what}")
        _ = coder.digest  # it is there, and it can be read
        return coder
    if isinstance(given, type):
        raise InputError(
            f"the {what} must be an object",
            f"the class {given.__name__}",
            f"Make one: {given.__name__}(…).",
        )
    if isinstance(given, torch.nn.Module):
        return ModuleCoder(given)
    if callable(getattr(given, "transform", None)):
        return EstimatorCoder(given)
    if callable(given):
        return FunctionCoder(given)
    raise InputError(
        f"the {what} must be a torch module, a function of samples, a scikit-learn transformer or the "
        "path of an ONNX file",
        type(given).__name__,
        "Pass one of these.",
    )


def fitted(coder: Coder, samples: Callable[[], Tensor]) -> Coder:
    """The same coder; where it is a transformer that is not fitted, a copy of it fitted on samples
    (n, …)."""
    if not isinstance(coder, EstimatorCoder) or not hasattr(coder.given, "fit"):
        return coder
    from sklearn.base import clone
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(coder.given)
        return coder
    except NotFittedError:
        table = samples()
    table = table.detach().reshape(len(table), -1).cpu().numpy()
    copy: Any = clone(coder.given)
    try:
        return EstimatorCoder(copy.fit(table))
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            "the encoder cannot be fitted on these samples without labels",
            f"{coder.name} ({str(error).splitlines()[0]})",
            "Fit it yourself and pass it fitted.",
        ) from None

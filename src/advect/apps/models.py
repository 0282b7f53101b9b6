"""Models as black boxes: asked in batches, never differentiated; and models split after a layer.

Torch modules, scikit-learn estimators and plain functions all answer through ``query``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from advect._util.checks import check_known
from advect.classes.matching import codes_of
from advect.data.dataset import LabeledDataset
from advect.errors import AdvectError, InputError

_BATCH = 1024
_MAX_CHANNELS = 4  # of an image
_REMEDY = "Use the features as data, and the rest of the model as the model."


def query(model: Any, samples: Tensor) -> np.ndarray:
    """The answers of a model: (n, k) probabilities, or n labels. Other scores are taken as logits.

    Example:
        >>> query(lambda x: torch.zeros(len(x), 4), torch.zeros(1, 2)).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    call = _callable(model)
    try:
        answers = [_as_answer(call(part), len(part)) for part in samples.split(_BATCH)]
        joined = np.concatenate(answers)
    except AdvectError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {error} on shape {tuple(samples.shape)}"
        remedy = "Wrap it so that it takes a batch of samples of the reference's shape."
        raise InputError("the model must take samples like these", got, remedy) from error
    return joined if joined.ndim == 1 else _probabilities(joined)


def answer_codes(answers: np.ndarray, classes: Sequence[Hashable]) -> np.ndarray:
    """The class position of each answer: the most likely class, or the class of that name."""
    if answers.ndim == 1:
        return codes_of(answers, classes)
    if answers.shape[1] != len(classes):
        what = f"scores must be of the {len(classes)} reference classes"
        remedy = "Give the reference all classes of the model, in its order."
        raise InputError(what, f"{answers.shape[1]}", remedy)
    return answers.argmax(axis=1)


def _callable(model: Any) -> Callable[[Tensor], Any]:
    if isinstance(model, nn.Module):
        return lambda part: _call_module(model, part)
    for name in ("predict_proba", "predict"):
        if callable(getattr(model, name, None)):
            return lambda part: getattr(model, name)(part.reshape(len(part), -1).cpu().numpy())
    if callable(model):
        return model
    remedy = "Pass a function, a torch module or an estimator."
    raise InputError("a model must be callable", type(model).__name__, remedy)


def _call_module(module: nn.Module, part: Tensor) -> Tensor:
    """Call a module in evaluation mode and without gradients, and restore the mode of each layer."""
    modes = [(layer, layer.training) for layer in module.modules()]
    parameter = next(module.parameters(), None)
    try:
        module.eval()
        if parameter is not None:
            part = part.to(device=parameter.device, dtype=parameter.dtype)
        with torch.no_grad():
            return _forward(module, part)
    finally:
        for layer, training in modes:
            layer.training = training  # not train(), which would reach into the layers below


def _forward(module: nn.Module, part: Tensor) -> Tensor:
    """Call a module, with images as (n, C, H, W) if it has convolutions and does not take others."""
    images = part.ndim == 3 or (part.ndim == 4 and part.shape[3] <= _MAX_CHANNELS)
    if not images or not any(isinstance(layer, nn.Conv2d) for layer in module.modules()):
        return module(part)
    if part.ndim == 3 and len(part) <= _MAX_CHANNELS:  # would be taken for channels of one image
        return _forward(module, torch.cat([part] * (_MAX_CHANNELS + 1)))[: len(part)]
    try:
        return module(part)
    except RuntimeError as error:
        try:
            return module(part[:, None] if part.ndim == 3 else part.permute(0, 3, 1, 2))
        except RuntimeError:
            raise error from None


def _as_answer(answer: Any, n: int) -> np.ndarray:
    array = np.asarray(answer.detach().cpu() if torch.is_tensor(answer) else answer)
    if array.ndim == 2 and array.shape[-1] == 1 and array.dtype.kind in "OUSib":
        array = array[:, 0]
    if array.ndim not in (1, 2) or len(array) != n:
        what = f"the model must return a row of scores or a label for each of {n} samples"
        got = f"{type(answer).__name__} of shape {array.shape}"
        raise InputError(what, got, "Return (n, k) scores or n labels.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        remedy = "Check the range of the samples that it was trained on."
        raise InputError("answers must be finite", "NaN or infinite scores", remedy)
    return array


def _probabilities(scores: np.ndarray) -> np.ndarray:
    scores = scores.astype(np.float64)
    if (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3):
        return scores
    return torch.softmax(torch.from_numpy(scores), dim=1).numpy()


@dataclass(frozen=True, eq=False)
class SplitModel:
    """``body`` maps samples to features (None for samples as they are), ``head`` features to answers."""

    body: nn.Module | None
    head: Any

    def features(self, samples: Tensor) -> Tensor:
        """Features (n, …) of samples (n, …)."""
        if self.body is None or not len(samples):
            return samples
        try:
            parts = [_call_module(self.body, part) for part in samples.split(_BATCH)]
        except RuntimeError as error:
            what, got = "features must be computable", f"{error} on shape {tuple(samples.shape)}"
            raise InputError(what, got, "Pass samples of the model's shape.") from error
        rows = torch.cat(parts).to(samples.device)
        if rows.ndim < 2 or len(rows) != len(samples) or not bool(torch.isfinite(rows).all()):
            what = f"features must be finite, a row for each of {len(samples)} samples"
            raise InputError(what, f"shape {tuple(rows.shape)}", "Choose another layer.")
        return rows

    def encoded(self, data: LabeledDataset) -> LabeledDataset:
        """The dataset with the features of the model as its features."""
        if self.body is None:
            return data
        rows = self.features(data.samples)
        changes = {"x": rows.flatten(1), "sample_shape": tuple(rows.shape[1:])}
        return data.replace(**changes, law=None, law_index=None, columns=None)


def split_model(model: Any, features: str | None = None) -> SplitModel:
    """Split a chain of layers after one of them, as ``repurpose`` documents it.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> split_model(model, "1").encoded(LabeledDataset(torch.zeros(5, 4))).sample_shape
        (3,)
    """
    if features is None:
        return SplitModel(None, model)
    if not isinstance(model, nn.Module):
        got = f"{features!r} of {type(model).__name__}"
        raise InputError("features must be the name of a layer of a torch module", got, _REMEDY)
    check_known("layer", features, [name for name, _ in model.named_modules() if name])
    body, rest = _cut(model, features.split("."))
    if not rest:
        what, got = "a layer must follow the features", f"{features!r}, the last layer"
        raise InputError(what, got, "Name a layer before it.")
    return SplitModel(nn.Sequential(*body), nn.Sequential(*rest))


def _cut(module: nn.Module, path: list[str]) -> tuple[list[nn.Module], list[nn.Module]]:
    """The layers up to one and those after it, through nested chains."""
    if not isinstance(module, nn.Sequential):
        what = f"only an nn.Sequential can be split after {'.'.join(path)!r}"
        raise InputError(what, type(module).__name__, _REMEDY)
    position, layers = list(module._modules).index(path[0]), list(module)
    if len(path) == 1:
        return layers[: position + 1], layers[position + 1 :]
    body, rest = _cut(layers[position], path[1:])
    return [*layers[:position], *body], [*rest, *layers[position + 1 :]]

"""Asking a model that is a black box: any callable from samples to scores or labels, queried in
batches, never differentiated.

Torch modules, scikit-learn estimators and plain functions answer the same way from here on. What an
answer means for another set of classes is for ``advect.classes.matching``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.classes.matching import codes_of
from advect.errors import AdvectError, InputError

_BATCH = 1024
_MOST_CHANNELS = 4  # of an image


def query(model: Any, samples: Tensor, *, batch: int = _BATCH) -> np.ndarray:
    """The model's answers: (n, k) probabilities, or n labels.

    Scores that are not probabilities (negative ones, or rows that do not sum to one) are taken as
    logits and pass through a softmax. A torch module is asked in evaluation mode and each of its
    layers left in the mode it was in, and one with convolutions about images with their channels first
    if it does not take them as they are; an estimator through ``predict_proba`` or ``predict`` on
    flattened samples; anything else is called with a tensor of samples.

    Raises:
        InputError: no answer, NaN, another number of answers than samples.

    Example:
        >>> import torch
        >>> query(lambda x: x.sum(dim=1) > 1, torch.tensor([[0.0, 0.0], [1.0, 1.0]])).tolist()
        [False, True]
        >>> query(lambda x: torch.zeros(len(x), 4), torch.zeros(1, 2)).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    ask = _asker(model)
    answers = []
    for start in range(0, len(samples), batch):
        part = samples[start : start + batch]
        try:
            answer = ask(part)
        except AdvectError:
            raise
        except Exception as error:
            raise InputError(
                "the model must answer for samples like these",
                f"{type(error).__name__}: {error} on shape {tuple(part.shape)}",
                "Wrap it so that it takes a batch of samples of the reference's shape.",
            ) from error
        answers.append(_as_answer(answer, len(part)))
    shapes = {answer.shape[1:] for answer in answers}
    if len(shapes) > 1:
        raise InputError(
            "the model must answer alike for every batch",
            f"shapes {sorted(shapes)}",
            "Check its output.",
        )
    whole = np.concatenate(answers)
    return whole if whole.ndim == 1 else _probabilities(whole)


def answer_codes(answers: np.ndarray, classes: Sequence[Hashable]) -> np.ndarray:
    """Which of the classes each answer of a model means: the most likely, or the one of that name.

    Raises:
        InputError: another number of scores, or a label that is none of the classes.

    Example:
        >>> answer_codes(np.array([[0.2, 0.8]]), "ab").tolist(), answer_codes(np.array(["b"]), "ab").tolist()
        ([1], [1])
    """
    if answers.ndim == 2:
        if answers.shape[1] != len(classes):
            raise InputError(
                f"scores must be of the {len(classes)} reference classes",
                f"{answers.shape[1]}",
                "Give the reference all classes of the model, in its order.",
            )
        return answers.argmax(axis=1)
    return codes_of(answers, classes)


def _asker(model: Any) -> Any:
    if isinstance(model, torch.nn.Module):
        return lambda part: ask_module(model, part)
    for name in ("predict_proba", "predict"):
        if callable(getattr(model, name, None)):
            return lambda part: getattr(model, name)(part.reshape(len(part), -1).cpu().numpy())
    if callable(model):
        return model
    raise InputError(
        "a model must be callable",
        type(model).__name__,
        "Pass a function, a torch module or an estimator.",
    )


def ask_module(module: torch.nn.Module, part: Tensor) -> Tensor:
    # layers may be frozen one by one
    modes = [(layer, layer.training) for layer in module.modules()]
    parameter = next(module.parameters(), None)
    try:
        module.eval()
        if parameter is not None:
            part = part.to(device=parameter.device, dtype=parameter.dtype)
        with torch.no_grad():
            return _answered(module, part)
    finally:
        for layer, training in modes:
            layer.training = training  # not train(), which reaches into the layers below


def _answered(module: torch.nn.Module, part: Tensor) -> Tensor:
    """What a module says; images (n, H, W) or (n, H, W, C), which it does not take, are asked about as
    (n, C, H, W), which convolutions take.
    """
    images = part.ndim == 3 or (part.ndim == 4 and part.shape[3] <= _MOST_CHANNELS)
    if not images or not any(isinstance(layer, torch.nn.Conv2d) for layer in module.modules()):
        return module(part)
    if part.ndim == 3 and len(part) <= _MOST_CHANNELS:
        # so few images could be taken for the channels of one
        return _answered(module, torch.cat([part] * (_MOST_CHANNELS + 1)))[: len(part)]
    try:
        return module(part)
    except RuntimeError as error:
        try:
            return module(part[:, None] if part.ndim == 3 else part.permute(0, 3, 1, 2))
        except RuntimeError:
            raise error from None


def _as_answer(answer: Any, n: int) -> np.ndarray:
    if torch.is_tensor(answer):
        answer = answer.detach().cpu().numpy()
    try:
        array = np.asarray(answer)
    except ValueError:
        array = np.empty(0)
    if array.ndim == 2 and array.shape[-1] == 1 and array.dtype.kind in "OUSib":
        array = array[:, 0]
    if array.ndim not in (1, 2) or len(array) != n:
        raise InputError(
            f"the model must give a row of scores or a label for each of {n} samples",
            f"{type(answer).__name__} of shape {array.shape}",
            "Return (n, k) scores or n labels.",
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(
            "the model's answers must be finite",
            "NaN or infinite scores",
            "Check the range of the samples it was trained on.",
        )
    return array


def _probabilities(scores: np.ndarray) -> np.ndarray:
    scores = scores.astype(np.float64)
    if (scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3):
        return scores
    return torch.softmax(torch.from_numpy(scores), dim=1).numpy()

"""From what users have (lists, arrays, tensors, frames) to the tensors that a ``LabeledDataset`` holds, or a clear error."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._checks import check_finite, check_weights
from advect.errors import InputError
from advect.gaussians import Gaussians


def as_features(x: Any) -> Tensor:
    try:
        values = x if isinstance(x, Tensor) else _tensor_from(x)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "features must be a numeric array (n, …)", type(x).__name__, "Pass numbers only; every sample needs the same shape."
        ) from None
    if values.ndim == 0 or values.numel() == 0:
        raise InputError(
            "features must hold at least one sample and one number", f"shape {tuple(values.shape)}", "Pass an array (n, …)."
        )
    if values.is_complex():
        raise InputError("features must be real", values.dtype, "Split real and imaginary parts into features.")
    if values.ndim == 1:
        values = values[:, None]
    if not values.is_floating_point() or values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    check_finite("features", values)
    return values


def _tensor_from(x: Any) -> Tensor:
    """A copy, so that a caller who later changes the array does not change the dataset."""
    array = x.to_numpy() if hasattr(x, "to_numpy") else np.asarray(x)
    values = torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True))
    return values.float() if isinstance(x, (list, tuple)) and values.dtype == torch.float64 else values  # as torch reads lists


def as_codes(y: Any, classes: Sequence[Hashable] | None, n: int) -> tuple[Tensor, tuple[Hashable, ...]]:
    labels = _as_label_list(y)
    if len(labels) != n:
        raise InputError(
            "features and labels must have the same length",
            f"{n} features, {len(labels)} labels",
            "Pass one label for each sample.",
        )
    if classes is None:
        distinct = dict.fromkeys(labels)
        try:
            names = tuple(sorted(distinct))  # pyright: ignore[reportArgumentType]
        except TypeError:  # kinds that do not compare: keep the order of appearance
            names = tuple(distinct)
    else:
        names = tuple(_as_label_list(classes))
        if len(set(names)) != len(names):
            raise InputError("class names must differ", names, "Give each class its own name.")
    position = {name: code for code, name in enumerate(names)}
    if all(label in position for label in labels):
        codes = [position[label] for label in labels]
    elif all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
        codes = labels
    else:
        unknown = next(label for label in labels if label not in position)
        raise InputError(
            "labels must be among classes, or be positions in it",
            f"{unknown!r} with classes {names}",
            "Add the class, or leave classes out to take it from the labels.",
        )
    return torch.tensor(codes, dtype=torch.int64), names


def _as_label_list(y: Any) -> list[Any]:
    if isinstance(y, str):
        raise InputError("labels must be a sequence", "one string", "Pass a list with one label for each sample.")
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, np.ndarray):
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1:
            raise InputError(
                "labels must be one for each sample",
                f"shape {y.shape}",
                "Pass a vector; turn one-hot rows to labels with argmax(1).",
            )
        y = y.tolist()
    labels = [
        label.item() if isinstance(label, (np.generic, Tensor)) and getattr(label, "ndim", 0) == 0 else label for label in y
    ]
    for row, label in enumerate(labels):
        if isinstance(label, float):
            if math.isnan(label):
                raise InputError("labels must not be NaN", f"NaN in row {row}", "Drop or label these samples.")
            if label.is_integer():
                labels[row] = int(label)
        try:
            hash(label)
        except TypeError:
            raise InputError(
                "labels must be hashable", f"{type(label).__name__} in row {row}", "Use strings, numbers or tuples."
            ) from None
    return labels


def as_weights(weights: Any, codes: Tensor, n_classes: int, like: Tensor) -> Tensor:
    if weights is None:
        return torch.full((len(codes),), 1 / len(codes), dtype=torch.float64, device=like.device)
    if isinstance(weights, str):
        if weights != "balanced":
            raise InputError(
                "weights must be None, 'balanced' or numbers", repr(weights), "Use 'balanced' for the same mass for each class."
            )
        return balanced_weights(codes, n_classes)
    try:
        values = torch.as_tensor(weights if isinstance(weights, Tensor) else np.asarray(weights, dtype=np.float64))
    except (TypeError, ValueError):
        raise InputError(
            "weights must be numbers", type(weights).__name__, "Pass one non-negative number for each sample."
        ) from None
    return check_weights("weights", values.to(device=like.device, dtype=torch.float64), len(codes))


def balanced_weights(codes: Tensor, n_classes: int) -> Tensor:
    counts = torch.bincount(codes, minlength=n_classes)
    return 1 / (counts[codes] * (counts > 0).sum()).double()


def as_law(law: Gaussians | None, index: Tensor | None, codes: Tensor, n_classes: int, dim: int) -> dict[str, Any]:
    if law is None:
        if index is not None:
            raise InputError("law_index needs a law", "law=None", "Pass the Gaussians it points into.")
        return {"law": None, "law_index": None}
    if law.dim != dim:
        raise InputError(
            "laws and features must have one dimension", f"{law.dim} and {dim}", "Estimate the laws in the same space."
        )
    rows = codes if index is None else torch.as_tensor(index, dtype=torch.int64, device=codes.device)
    if rows.shape != codes.shape or int(rows.min()) < 0 or int(rows.max()) >= len(law):
        raise InputError(
            f"law_index must give each of the {len(codes)} samples one of {len(law)} laws",
            f"shape {tuple(rows.shape)} with values {int(rows.min())} to {int(rows.max())}",
            f"Without law_index there must be a law for each of the {n_classes} classes.",
        )
    return {"law": law, "law_index": None if index is None else rows}

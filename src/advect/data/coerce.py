"""From what users have (lists, arrays, tensors, frames) to the tensors that a ``LabeledDataset``
holds, or a clear error.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_weights
from advect.data.laws import Gaussians
from advect.errors import InputError


def as_features(x: Any) -> Tensor:
    try:
        values = x if isinstance(x, Tensor) else _tensor_from(x)
        values = (
            values.clone() if values is x and not x.requires_grad else values
        )  # gradients reach the caller's own tensor
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "features must be a numeric array (n, …)",
            type(x).__name__,
            "Pass numbers only; every sample needs the same shape.",
        ) from None
    if values.ndim == 0 or values.numel() == 0:
        raise InputError(
            "features must hold at least one sample and one number",
            f"shape {tuple(values.shape)}",
            "Pass an array (n, …).",
        )
    if values.layout != torch.strided:
        raise InputError("features must be dense", values.layout, "Pass x.to_dense().")
    if values.is_complex():
        raise InputError(
            "features must be real", values.dtype, "Split real and imaginary parts into features."
        )
    if values.ndim == 1:
        values = values[:, None]
    if values.dtype not in (torch.float32, torch.float64):
        values = _floats(values)
    check_finite("features", values)
    return values


def _floats(values: Tensor) -> Tensor:
    """float32, but float64 for whole numbers that it would round."""
    if values.is_floating_point() or values.dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
    ):
        return values.float()
    wide = values.double()
    return wide if float(wide.abs().max()) >= 2.0**24 else wide.float()


def _tensor_from(x: Any) -> Tensor:
    values, first = own_tensor(x), x
    while isinstance(first, (list, tuple)) and len(first):
        first = first[0]
    python = (
        type(first) in (bool, int, float) and values.dtype == torch.float64
    )  # as torch reads lists
    return values.float() if python else values


def own_tensor(x: Any) -> Tensor:
    """A copy, so that a caller who later changes the array does not change the dataset; any byte
    order and stride.
    """
    array = np.asarray(x.to_numpy() if hasattr(x, "to_numpy") else x)
    return torch.from_numpy(
        np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    )


def as_columns(columns: Sequence[str] | None, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    if columns is None:
        return None
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if (
        shape != (len(names),)
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) != len(names)
    ):
        raise InputError(
            f"columns must be different names, one for each feature of samples of shape {shape}",
            f"{len(names)} names: {', '.join(map(str, names[:8]))}{' …' if len(names) > 8 else ''}",
            "Pass one string for each feature, or None.",
        )
    return names


def as_codes(
    y: Any, classes: Sequence[Hashable] | None, n: int
) -> tuple[Tensor, tuple[Hashable, ...]]:
    """Class positions and names; −1 where a label is missing."""
    labels = (
        [None] * n
        if y is None
        else [None if _is_missing(label) else label for label in _as_label_list(y)]
    )
    if len(labels) != n:
        raise InputError(
            "features and labels must have the same length",
            f"{n} features, {len(labels)} labels",
            "Pass one label for each sample.",
        )
    if classes is None:
        distinct = dict.fromkeys(label for label in labels if label is not None)
        try:
            names = tuple(sorted(distinct))  # pyright: ignore[reportArgumentType]
        except TypeError:  # kinds that do not compare: keep the order of appearance
            names = tuple(distinct)
    else:
        names = tuple(_as_label_list(classes))
        if len(set(names)) != len(names):
            raise InputError("class names must differ", names, "Give each class its own name.")
        if any(_is_missing(name) for name in names):
            raise InputError(
                "a class needs a name",
                "None or NaN among classes",
                "Leave missing labels out of classes.",
            )
    position = {name: code for code, name in enumerate(names)}
    given = [label for label in labels if label is not None]
    strange = [label for label in given if label not in position]
    unplaced = [
        label for label in strange if not (isinstance(label, int) and 0 <= label < len(names))
    ]
    if not strange:
        codes = [-1 if label is None else position[label] for label in labels]
    elif not unplaced and len(strange) == len(
        given
    ):  # never some labels as names and others as positions
        codes = [-1 if label is None else label for label in labels]
    else:
        unknown = (unplaced or strange)[0]
        raise InputError(
            "labels must be among classes, or be positions in it",
            f"{unknown!r} with classes {names}",
            "Add the class, or leave classes out to take it from the labels.",
        )
    return torch.tensor(codes, dtype=torch.int64), names


def _as_label_list(y: Any) -> list[Any]:
    if isinstance(y, str):
        raise InputError(
            "labels must be a sequence", "one string", "Pass a list with one label for each sample."
        )
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        y = (y.double() if y.is_floating_point() else y).numpy()  # numpy has no bfloat16
    if not hasattr(y, "__iter__"):
        raise InputError(
            "labels must be a sequence",
            type(y).__name__,
            "Pass a list with one label for each sample.",
        )
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
        label.item()
        if isinstance(label, (np.generic, Tensor)) and getattr(label, "ndim", 0) == 0
        else label
        for label in y
    ]
    for row, label in enumerate(labels):
        if isinstance(label, float) and label.is_integer():
            labels[row] = int(label)
        try:
            if isinstance(label, Tensor):  # hashes by identity: each would be a class of its own
                raise TypeError
            hash(label)
        except TypeError:
            raise InputError(
                "labels must be hashable",
                f"{type(label).__name__} in row {row}",
                "Use strings, numbers or tuples.",
            ) from None
    return labels


def _is_missing(label: Any) -> bool:
    """None, NaN, and pandas' NA and NaT: what is not equal to itself."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, float) and math.isnan(label)


def as_weights(weights: Any, codes: Tensor, n_classes: int, like: Tensor) -> Tensor:
    if weights is None:
        return torch.full((len(codes),), 1 / len(codes), dtype=torch.float64, device=like.device)
    if isinstance(weights, str):
        if weights != "balanced":
            raise InputError(
                "weights must be None, 'balanced' or numbers",
                repr(weights),
                "Use 'balanced' for the same mass for each class.",
            )
        if bool((codes < 0).any()):
            raise InputError(
                "balanced weights need a label for each sample",
                "missing labels",
                "Label them, or drop them first.",
            )
        return balanced_weights(codes, n_classes)
    try:
        values = weights if isinstance(weights, Tensor) else own_tensor(weights)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "weights must be numbers",
            type(weights).__name__,
            "Pass one non-negative number for each sample.",
        ) from None
    if values.is_complex():
        raise InputError(
            "weights must be real", values.dtype, "Pass one non-negative number for each sample."
        )
    return check_weights("weights", values.to(device=like.device, dtype=torch.float64), len(codes))


def balanced_weights(codes: Tensor, n_classes: int) -> Tensor:
    counts = torch.bincount(codes, minlength=n_classes)
    return 1 / (counts[codes] * (counts > 0).sum()).double()


def as_law(
    law: Gaussians | None, index: Tensor | None, codes: Tensor, n_classes: int, dim: int
) -> dict[str, Any]:
    if law is None:
        if index is not None:
            raise InputError(
                "law_index needs a law", "law=None", "Pass the Gaussians it points into."
            )
        return {"law": None, "law_index": None}
    if not isinstance(law, Gaussians):
        raise InputError(
            "law must be Gaussians",
            type(law).__name__,
            "Pass advect.Gaussians, or None to estimate the laws.",
        )
    if law.dim != dim:
        raise InputError(
            "laws and features must have one dimension",
            f"{law.dim} and {dim}",
            "Estimate the laws in the same space.",
        )
    try:
        rows = (
            codes
            if index is None
            else index.clone()
            if isinstance(index, Tensor)
            else own_tensor(index)
        )
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            "law_index must be whole numbers",
            type(index).__name__,
            "Pass one row of law for each sample.",
        ) from None
    if rows.is_floating_point() or rows.is_complex():
        raise InputError(
            "law_index must be whole numbers", rows.dtype, "Pass one row of law for each sample."
        )
    rows = rows.to(device=codes.device, dtype=torch.int64)
    if rows.shape != codes.shape or int(rows.min()) < 0 or int(rows.max()) >= len(law):
        values = f" with values {int(rows.min())} to {int(rows.max())}" if rows.numel() else ""
        raise InputError(
            f"law_index must give each of the {len(codes)} samples one of {len(law)} laws",
            f"shape {tuple(rows.shape)}{values}",
            f"Without law_index there must be a law for each of the {n_classes} classes.",
        )
    return {"law": law, "law_index": None if index is None else rows}

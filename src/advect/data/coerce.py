"""From what users have (lists, arrays, tensors, frames) to the tensors that a ``LabeledDataset``
holds, or a clear error.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_kind, check_weights, one_or_more
from advect.data.formats.content import class_names, plain
from advect.data.laws import Gaussians
from advect.errors import InputError

_SMALL = (torch.bool, torch.uint8, torch.int8, torch.int16)
_MANY = 20  # classes that are fractions: more are hardly meant as such
_ONE_EACH = "Pass a list with one label for each sample."


def as_features(x: Any) -> Tensor:
    """Features (n, …) in float32 or float64; a copy, unless gradients are to pass."""
    try:
        values = as_tensor(x)
        if values is x:
            values = x if x.requires_grad else x.clone()
        elif values.dtype == torch.float64 and _is_python(x):
            values = values.float()  # as torch reads lists
    except (TypeError, ValueError, RuntimeError):
        if hasattr(x, "toarray"):  # of scipy.sparse
            raise InputError(
                "features must be a dense array (n, …)",
                f"a sparse {type(x).__name__}, {getattr(x, 'shape', ())}",
                "Pass x.toarray(), or fewer columns first (TruncatedSVD of scikit-learn, say).",
            ) from None
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
    if values.is_floating_point() or values.dtype in _SMALL:
        return values.float()
    wide = values.double()
    return wide if float(wide.abs().max()) >= 2.0**24 else wide.float()


def _is_python(x: Any) -> bool:
    """Whether nested lists hold numbers of Python, which have no precision of their own."""
    while type(x) in (list, tuple) and len(x):
        x = x[0]
    return type(x) in (bool, int, float)


def as_tensor(x: Any) -> Tensor:
    """A tensor as it is; a copy of anything else, so that later changes of it have no effect."""
    if isinstance(x, Tensor):
        return x
    array = np.asarray(x.to_numpy() if hasattr(x, "to_numpy") else x)
    return torch.from_numpy(
        np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    )


def as_columns(columns: Sequence[str] | None, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    if columns is None:
        return None
    names = tuple(one_or_more(columns))
    texts = all(isinstance(name, str) for name in names)
    if shape != (len(names),) or not texts or len(set(names)) != len(names):
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
    labels = [None] * n if y is None else _labels(y)
    if len(labels) != n:
        raise InputError(
            "features and labels must have the same length",
            f"{n} features, {len(labels)} labels",
            "Pass one label for each sample.",
        )
    names = class_names(labels) if classes is None else _class_names(classes)
    if (fractions := sum(type(name) is float for name in names)) > _MANY:
        warnings.warn(
            f"{fractions} of the classes are fractions: numbers to be predicted are targets and no "
            "labels, ad.LabeledDataset(x, targets=y), ?target=column of a file, from_torch(…, "
            "targets=True)",
            stacklevel=4,
        )
    position = {name: code for code, name in enumerate(names)}
    given = [label for label in labels if label is not None]
    unknown = [label for label in given if label not in position]
    unplaced = [
        label for label in unknown if type(label) not in (int, bool) or not 0 <= label < len(names)
    ]
    if not unknown:
        codes = [-1 if label is None else position[label] for label in labels]
    elif not unplaced and len(unknown) == len(given):  # never some as names, others as positions
        codes = [-1 if label is None else label for label in labels]
    else:
        raise InputError(
            "labels must be among classes, or be positions in it",
            f"{(unplaced or unknown)[0]!r} with classes {names}",
            "Add the class, or leave classes out to take it from the labels.",
        )
    return torch.tensor(codes, dtype=torch.int64), names


def _class_names(classes: Sequence[Hashable]) -> tuple[Hashable, ...]:
    names = tuple(_labels(classes))
    if len(set(names)) != len(names):
        raise InputError("class names must differ", names, "Give each class its own name.")
    if None in names:
        raise InputError(
            "a class needs a name",
            "None or NaN among classes",
            "Leave missing labels out of classes.",
        )
    return names


def _labels(y: Any) -> list[Any]:
    """Labels as Python's objects, None where they are missing; whole floats are ints."""
    labels = [plain(label) for label in _entries(y)]
    for row, label in enumerate(labels):
        if type(label) is float and label.is_integer():
            labels[row] = int(label)
        try:
            hash(label)
            fine = not getattr(label, "ndim", 0)  # tensors hash, each as a class of its own
        except TypeError:
            fine = False
        if not fine:
            raise InputError(
                "labels must be hashable",
                f"{type(label).__name__} in row {row}",
                "Use strings, numbers or tuples.",
            )
    return labels


@singledispatch
def _entries(y: Any) -> list[Any]:
    if hasattr(y, "to_numpy"):
        return _entries(y.to_numpy())
    if not hasattr(y, "__iter__"):
        raise InputError("labels must be a sequence", type(y).__name__, _ONE_EACH)
    return list(y)


@_entries.register
def _(y: str) -> list[Any]:
    raise InputError("labels must be a sequence", "one string", _ONE_EACH)


@_entries.register
def _(y: Tensor) -> list[Any]:
    y = y.detach().cpu()
    return _entries((y.double() if y.is_floating_point() else y).numpy())  # numpy has no bfloat16


@_entries.register
def _(y: np.ndarray) -> list[Any]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise InputError(
            "labels must be one for each sample",
            f"shape {y.shape}",
            "Pass a vector; turn one-hot rows to labels with argmax(1).",
        )
    return y.tolist()


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
    remedy = "Pass one non-negative number for each sample."
    try:
        values = as_tensor(weights)
    except (TypeError, ValueError, RuntimeError):
        raise InputError("weights must be numbers", type(weights).__name__, remedy) from None
    if values.is_complex():
        raise InputError("weights must be real", values.dtype, remedy)
    return check_weights("weights", values.to(device=like.device, dtype=torch.float64), len(codes))


def balanced_weights(codes: Tensor, n_classes: int) -> Tensor:
    counts = torch.bincount(codes, minlength=n_classes)
    return 1 / (counts[codes] * (counts > 0).sum()).double()


def as_shares(shares: Any, classes: tuple[Hashable, ...], like: Tensor) -> Tensor:
    """Shares of classes that sum to one, from numbers by name or in order."""
    if hasattr(shares, "keys"):
        unknown = [name for name in shares if name not in classes]
        if unknown:
            raise InputError(
                "shares must be of classes of the dataset",
                ", ".join(map(str, unknown[:5])),
                f"Classes: {', '.join(map(str, classes))}.",
            )
        shares = [shares.get(name, 0.0) for name in classes]
    remedy = "Pass one non-negative number for each class, or a dictionary by name."
    try:
        values = as_tensor(shares)
    except (TypeError, ValueError, RuntimeError):
        raise InputError("shares must be numbers", type(shares).__name__, remedy) from None
    if values.is_complex() or values.shape != (len(classes),):
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise InputError(f"shares must be {len(classes)} real numbers", got, remedy)
    return check_weights("shares", values.to(like), len(classes))


def as_law(
    law: Gaussians | None, index: Any, codes: Tensor, n_classes: int, dim: int
) -> dict[str, Any]:
    """The fields ``law`` and ``law_index`` of a dataset."""
    if law is None:
        if index is not None:
            raise InputError(
                "law_index needs a law", "law=None", "Pass the Gaussians it points into."
            )
        return {"law": None, "law_index": None}
    remedy = "Pass advect.Gaussians, or None to estimate the laws."
    check_kind("law must be Gaussians", law, Gaussians, remedy)
    if law.dim != dim:
        raise InputError(
            "laws and features must have one dimension",
            f"{law.dim} and {dim}",
            "Estimate the laws in the same space.",
        )
    rows = codes if index is None else _law_rows(index).to(device=codes.device, dtype=torch.int64)
    if rows.shape != codes.shape or int(rows.min()) < 0 or int(rows.max()) >= len(law):
        values = f" with values {int(rows.min())} to {int(rows.max())}" if rows.numel() else ""
        raise InputError(
            f"law_index must give each of the {len(codes)} samples one of {len(law)} laws",
            f"shape {tuple(rows.shape)}{values}",
            f"Without law_index there must be a law for each of the {n_classes} classes.",
        )
    return {"law": law, "law_index": None if index is None else rows}


def _law_rows(index: Any) -> Tensor:
    what, remedy = "law_index must be whole numbers", "Pass one row of law for each sample."
    try:
        rows = as_tensor(index)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(what, type(index).__name__, remedy) from None
    if rows.is_floating_point() or rows.is_complex():
        raise InputError(what, rows.dtype, remedy)
    return rows.clone() if rows is index else rows

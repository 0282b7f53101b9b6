"""Conversion of user input (lists, arrays, tensors, frames) to the tensors of a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util import (
    InputError,
    check_finite,
    check_known,
    check_weights,
    one_or_more,
    refuse_if,
)
from advect.data.laws import Gaussians
from advect.io.formats.content import class_names, plain

_SMALL = (torch.bool, torch.uint8, torch.int8, torch.int16)
_HASHABLE = {int, bool, str, type(None)}  # labels of these types need no further check
_MAX_FRACTIONS = 20  # above this number, classes that are fractions are probably continuous targets
_SUM_TOLERANCE = 1e-3  # of the sum of probabilities; accepts half precision
_BALANCE_STEPS = 200
ALL = "all"  # the class of samples with targets and no labels


def as_features(x: Any) -> Tensor:
    """Features (n, …) in float32 or float64; a copy, unless gradients are to pass."""
    try:
        values = as_tensor(x)
    except (TypeError, ValueError, RuntimeError, BufferError):
        raise InputError(
            "features must be a dense numeric array (n, …)",
            type(x).__name__,
            "Pass numbers only, every sample in the same shape; a sparse matrix as x.toarray().",
        ) from None
    if values is x:
        values = x if x.requires_grad else x.clone()
    elif values.dtype == torch.float64 and _is_python(x):
        values = values.float()  # as torch reads lists
    refuse_if(
        values.ndim == 0 or values.numel() == 0,
        "features must hold at least one sample and one number",
        f"shape {tuple(values.shape)}",
        "Pass an array (n, …).",
    )
    refuse_if(
        values.layout != torch.strided or values.is_complex(),
        "features must be real and dense",
        f"{values.layout}, {values.dtype}",
        "Pass x.to_dense(), and real and imaginary parts as separate features.",
    )
    if values.ndim == 1:
        values = values[:, None]
    if values.dtype not in (torch.float32, torch.float64):
        values = _floats(values)
    check_finite(
        "features", values, "Remove or impute these rows, or read the file with missing='median'."
    )
    return values


def _floats(values: Tensor) -> Tensor:
    """float32, but float64 for whole numbers that it would round."""
    if values.is_floating_point() or values.dtype in _SMALL:
        return values.float()
    wide = values.double()
    return wide if float(wide.abs().max()) >= 2.0**24 else wide.float()


def _is_python(x: Any) -> bool:
    """Whether nested lists hold Python numbers, which have no dtype."""
    while type(x) in (list, tuple) and len(x):
        x = x[0]
    return type(x) in (bool, int, float)


def as_tensor(x: Any) -> Tensor:
    """A tensor as it is, or a copy of other data, so that later changes have no effect."""
    x = from_dlpack(x)
    if isinstance(x, Tensor):
        return x
    array = np.asarray(x.to_numpy() if hasattr(x, "to_numpy") else x)
    return torch.from_numpy(
        np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    )


def from_dlpack(x: Any) -> Any:
    """A copy of an array of another library (DLPack, array API) as a tensor; anything else as it is."""
    members = {*dir(type(x))}
    if "__dlpack__" not in members or members & {"to_numpy", "__array_interface__", "new_tensor"}:
        return x
    return torch.from_dlpack(x).clone()


def _numbers(name: str, values: Any, remedy: str, bools: bool = True) -> Tensor:
    """A real tensor from an object that holds numbers."""
    try:
        tensor = as_tensor(values)
    except (TypeError, ValueError, RuntimeError, BufferError):
        raise InputError(f"{name} must be numbers", type(values).__name__, remedy) from None
    refused = tensor.is_complex() or (tensor.dtype == torch.bool and not bools)
    refuse_if(refused, f"{name} must be real numbers", tensor.dtype, remedy)
    return tensor


def as_columns(
    names: Sequence[str] | None, count: int, what: str = "columns"
) -> tuple[str, ...] | None:
    """``count`` different names, or None."""
    if names is None:
        return None
    names = tuple(one_or_more(names))
    refuse_if(
        not len(names) == len(set(names)) == count or not all(type(n) is str for n in names),
        f"{what} must be {count} different names",
        f"{len(names)} names: {', '.join(map(str, names[:8]))}{' …' if len(names) > 8 else ''}",
        "Pass one string for each, or None.",
    )
    return names


def as_codes(
    y: Any, classes: Sequence[Hashable] | None, n: int
) -> tuple[Tensor, tuple[Hashable, ...]]:
    """Class positions and names; −1 where a label is missing."""
    labels = [None] * n if y is None else _labels(y)
    refuse_if(
        len(labels) != n,
        "features and labels must have the same length",
        f"{n} features, {len(labels)} labels",
        "Pass one label for each sample.",
    )
    names = class_names(labels) if classes is None else as_class_names(classes)
    if (fractions := sum(type(name) is float for name in names)) > _MAX_FRACTIONS:
        warnings.warn(
            f"{fractions} classes are fractions. Pass continuous targets as targets=, or ?target=column "
            "for a file",
            stacklevel=4,
        )
    position = {None: -1} | {name: code for code, name in enumerate(names)}
    codes = [position.get(label) for label in labels]
    if None in codes:
        codes = _positions(labels, position, names)
    return torch.tensor(codes, dtype=torch.int64), names


def _positions(
    labels: list[Any], position: dict[Any, int], names: tuple[Hashable, ...]
) -> list[int]:
    """Labels that are not names as positions in the names, if all of them are."""
    present = [label for label in labels if label is not None]
    unknown = [label for label in present if label not in position]
    misplaced = [
        label for label in unknown if type(label) not in (int, bool) or not 0 <= label < len(names)
    ]
    refuse_if(
        misplaced or len(unknown) < len(present),  # all labels are names, or all are positions
        "labels must be among classes, or be positions in it",
        f"{(misplaced or unknown)[0]!r} with classes {names}",
        "Add the class, or leave classes out to take it from the labels.",
    )
    return [-1 if label is None else label for label in labels]


def as_class_names(classes: Sequence[Hashable]) -> tuple[Hashable, ...]:
    """Different names, none of them missing."""
    names = tuple(_labels(classes))
    refuse_if(
        None in names or len(set(names)) < len(names),
        "class names must differ, and none may be missing",
        names,
        "Give each class a different name; leave missing labels out of classes.",
    )
    return names


def _labels(y: Any) -> list[Any]:
    """Labels as Python's objects, None where they are missing; whole floats are ints."""
    labels = _entries(y)
    if set(map(type, labels)) <= _HASHABLE:
        return labels
    labels = [plain(label) for label in labels]
    for row, label in enumerate(labels):
        if type(label) is float and label.is_integer():
            labels[row] = int(label)
        try:
            hash(label)
            fine = not getattr(
                label, "ndim", 0
            )  # tensors are hashable, but each would be another class
        except TypeError:
            fine = False
        if not fine:
            raise InputError(
                "labels must be hashable",
                f"{type(label).__name__} in row {row}",
                "Use strings, numbers or tuples.",
            )
    return labels


def _entries(y: Any) -> list[Any]:
    y = from_dlpack(y)
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        y = (y.double() if y.is_floating_point() else y).numpy()  # numpy has no bfloat16
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    refuse_if(
        isinstance(y, str) or not hasattr(y, "__iter__"),
        "labels must be a sequence",
        type(y).__name__,
        "Pass a list with one label for each sample.",
    )
    if not isinstance(y, np.ndarray):
        return list(y)
    refuse_if(
        y.ndim != 1 and y.shape[1:] != (1,),
        "labels must be one for each sample",
        f"shape {y.shape}",
        "Pass a vector; turn one-hot rows to labels with argmax(1).",
    )
    return y.reshape(-1).tolist()


def as_weights(weights: Any, codes: Tensor, n_classes: int, soft: Tensor | None) -> Tensor:
    """Weights that sum to one, in float64, for samples with these labels."""
    n = len(codes)
    if weights is None:
        return torch.full((n,), 1 / n, dtype=torch.float64, device=codes.device)
    if isinstance(weights, str):
        check_known("weights", weights, ("balanced",))
        return balanced_weights(codes, n_classes, soft)
    values = _numbers("weights", weights, "Pass one non-negative number for each sample.")
    return check_weights("weights", values.to(device=codes.device, dtype=torch.float64), n)


def balanced_weights(codes: Tensor, n_classes: int, soft: Tensor | None) -> Tensor:
    """Weights with the same mass in each class that has samples. With soft labels the masses
    Σ w_i p_ic are as close to equal as the probabilities allow.
    """
    if soft is None:
        refuse_if(
            bool((codes < 0).any()),
            "balanced weights need a label for each sample",
            "missing labels",
            "Label them, or drop them first.",
        )
        counts = torch.bincount(codes, minlength=n_classes)
        return 1 / (counts[codes] * (counts > 0).sum()).double()
    soft = soft[:, soft.amax(dim=0) > 0]
    goal = 1 / soft.shape[1]
    weights = soft.new_full((len(soft),), 1 / len(soft))
    for _ in range(_BALANCE_STEPS):
        masses = weights @ soft
        if float((masses - goal).abs().max()) < 1e-12:
            break
        weights = weights * (soft @ (goal / masses))
    return weights / weights.sum()


def as_class_weights(values: Any, classes: tuple[Hashable, ...], like: Tensor) -> Tensor:
    """Class proportions that sum to one, from numbers by name or in order."""
    if hasattr(values, "keys"):
        unknown = [str(name) for name in values if name not in classes]
        refuse_if(
            unknown,
            "proportions must be of classes of the dataset",
            ", ".join(unknown[:5]),
            f"Classes: {', '.join(map(str, classes))}.",
        )
        values = [values.get(name, 0.0) for name in classes]
    remedy = "Pass one non-negative number for each class, or a dictionary by name."
    numbers = _numbers("proportions", values, remedy)
    refuse_if(
        numbers.shape != (len(classes),),
        f"proportions must be {len(classes)} numbers",
        f"shape {tuple(numbers.shape)}",
        remedy,
    )
    return check_weights("proportions", numbers.to(like), len(classes))


def as_targets(targets: Any, n: int, device: torch.device) -> Tensor | None:
    """Targets (n, q) in float64; a copy, unless gradients are to pass."""
    if targets is None:
        return None
    remedy = "Pass a number or a vector for each sample; labels that are names go to y."
    values = _numbers("targets", targets, remedy, bools=False)
    values = values.clone() if values is targets and not values.requires_grad else values
    values = values.to(device=device, dtype=torch.float64)
    values = values[:, None] if values.ndim == 1 else values
    refuse_if(
        values.ndim != 2 or len(values) != n or values.shape[1] == 0,
        f"targets must be one number or vector for each of the {n} samples",
        f"shape {tuple(values.shape)}",
        remedy,
    )
    check_finite("targets", values, "Remove samples whose target is missing.")
    return values


def as_probabilities(probabilities: Any, like: Tensor, k: int | None = None) -> Tensor:
    """(n, k) in float64, with rows that sum to one to the last digits."""
    n, remedy = len(like), "Pass for each sample one number from 0 to 1 for each class."
    raw = _numbers("probabilities", probabilities, remedy, bools=False)
    refuse_if(
        raw.ndim != 2 or len(raw) != n or 0 in raw.shape or raw.shape[1] != (k or raw.shape[1]),
        f"probabilities must have the shape ({n}, {'k' if k is None else k})",
        f"shape {tuple(raw.shape)}",
        remedy,
    )
    values = raw.detach().to(device=like.device, dtype=torch.float64)
    check_finite("probabilities", values, remedy)
    low, at = float(values.min()), int(values.argmin()) // values.shape[1]
    refuse_if(low < 0, "probabilities must not be negative", f"{low:.3g} in row {at}", remedy)
    sums = values.sum(dim=1, keepdim=True)
    worst = int((sums - 1).abs().argmax())
    refuse_if(
        abs(float(sums[worst]) - 1) > _SUM_TOLERANCE,
        "probabilities of a sample must sum to one",
        f"{float(sums[worst]):.6g} in row {worst}",
        "Divide rows by their sums, or take torch.softmax(scores, dim=1).",
    )
    exact = (sums - 1).abs() <= 4 * torch.finfo(torch.float64).eps
    return torch.where(exact, values, values / sums)


def as_soft_codes(
    soft: Tensor, y: Any, classes: Sequence[Hashable] | None
) -> tuple[Tensor, tuple[Hashable, ...]]:
    """Class positions and names of samples with probabilities: by default the most probable class."""
    n, k = soft.shape
    if y is None:
        return soft.argmax(dim=1), tuple(range(k)) if classes is None else as_class_names(classes)
    codes, names = as_codes(y, classes, n)
    refuse_if(
        len(names) != k,
        f"probabilities need a class for each of {k} columns",
        f"{len(names)} different labels",
        "Name all classes: classes=[…].",
    )
    missing, remedy = int((codes < 0).sum()), "Leave y out: it is then the most probable class."
    refuse_if(missing, "samples with probabilities need labels", f"{missing} missing", remedy)
    return codes, names


def check_soft_laws(law_index: Any) -> None:
    """Soft labels need laws of classes, not of single samples."""
    refuse_if(
        law_index is not None,
        "soft labels need one law for each class",
        "a law_index, with laws of single samples",
        "Pass law=data.class_laws(), law_index=None.",
    )


def as_law(law: Any, index: Any, codes: Tensor, n_classes: int, dim: int) -> dict[str, Any]:
    """The fields ``law`` and ``law_index`` of a dataset."""
    if law is None and index is None:
        return {"law": None, "law_index": None}
    if not isinstance(law, Gaussians):
        raise InputError(
            "law must be Gaussians",
            type(law).__name__,
            "Pass advect.Gaussians, or None for both to estimate the laws.",
        )
    refuse_if(
        law.dim != dim,
        "laws and features must have one dimension",
        f"{law.dim} and {dim}",
        "Estimate the laws in the same space.",
    )
    rows = codes
    if index is not None:
        remedy = "Pass one row of law for each sample."
        rows = _numbers("law_index", index, remedy)
        refuse_if(rows.is_floating_point(), "law_index must be whole numbers", rows.dtype, remedy)
        index = rows = rows.to(device=codes.device, dtype=torch.int64, copy=rows is index)
    if rows.shape != codes.shape or int(rows.min()) < 0 or int(rows.max()) >= len(law):
        values = f" with values {int(rows.min())} to {int(rows.max())}" if rows.numel() else ""
        raise InputError(
            f"law_index must give each of the {len(codes)} samples one of {len(law)} laws",
            f"shape {tuple(rows.shape)}{values}",
            f"Without law_index there must be a law for each of the {n_classes} classes.",
        )
    return {"law": law, "law_index": index}

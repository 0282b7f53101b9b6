"""Conversion of user input (lists, arrays, tensors, frames) to the tensors of a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect._util.checks import check_finite, check_kind, check_weights, one_or_more
from advect.data.laws import Gaussians
from advect.errors import InputError
from advect.io.formats.content import class_names, plain

_SMALL = (torch.bool, torch.uint8, torch.int8, torch.int16)
_MAX_FRACTIONS = 20  # more classes that are fractions are probably continuous targets
_ONE_EACH = "Pass a list with one label for each sample."
_SUM_TOLERANCE = 1e-3  # of a row of probabilities: half precision passes
_BALANCE_STEPS = 200
ALL = "all"  # the class of samples with targets and no labels


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


def as_columns(
    names: Sequence[str] | None, count: int, what: str = "columns"
) -> tuple[str, ...] | None:
    """``count`` different names, or None."""
    if names is None:
        return None
    names = tuple(one_or_more(names))
    if not len(names) == len(set(names)) == count or not all(type(n) is str for n in names):
        raise InputError(
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
    if len(labels) != n:
        raise InputError(
            "features and labels must have the same length",
            f"{n} features, {len(labels)} labels",
            "Pass one label for each sample.",
        )
    names = class_names(labels) if classes is None else _class_names(classes)
    if (fractions := sum(type(name) is float for name in names)) > _MAX_FRACTIONS:
        warnings.warn(
            f"{fractions} classes are fractions. Pass continuous targets as targets=, or ?target=column "
            "for a file",
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


def _entries(y: Any) -> list[Any]:
    if isinstance(y, Tensor):
        y = y.detach().cpu()
        y = (y.double() if y.is_floating_point() else y).numpy()  # numpy has no bfloat16
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, str) or not hasattr(y, "__iter__"):
        raise InputError("labels must be a sequence", type(y).__name__, _ONE_EACH)
    if not isinstance(y, np.ndarray):
        return list(y)
    if y.ndim != 1 and y.shape[1:] != (1,):
        raise InputError(
            "labels must be one for each sample",
            f"shape {y.shape}",
            "Pass a vector; turn one-hot rows to labels with argmax(1).",
        )
    return y.reshape(-1).tolist()


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
    values = _numbers("weights", weights, "Pass one non-negative number for each sample.")
    return check_weights("weights", values.to(device=like.device, dtype=torch.float64), len(codes))


def _numbers(name: str, values: Any, remedy: str) -> Tensor:
    """A real tensor from anything that holds numbers."""
    try:
        tensor = as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must be numbers", type(values).__name__, remedy) from None
    if tensor.is_complex():
        raise InputError(f"{name} must be real numbers", tensor.dtype, remedy)
    return tensor


def balanced_weights(codes: Tensor, n_classes: int) -> Tensor:
    counts = torch.bincount(codes, minlength=n_classes)
    return 1 / (counts[codes] * (counts > 0).sum()).double()


def as_class_weights(values: Any, classes: tuple[Hashable, ...], like: Tensor) -> Tensor:
    """Class proportions that sum to one, from numbers by name or in order."""
    if hasattr(values, "keys"):
        if unknown := [name for name in values if name not in classes]:
            raise InputError(
                "proportions must be of classes of the dataset",
                ", ".join(map(str, unknown[:5])),
                f"Classes: {', '.join(map(str, classes))}.",
            )
        values = [values.get(name, 0.0) for name in classes]
    remedy = "Pass one non-negative number for each class, or a dictionary by name."
    numbers = _numbers("proportions", values, remedy)
    if numbers.shape != (len(classes),):
        what = f"proportions must be {len(classes)} numbers"
        raise InputError(what, f"shape {tuple(numbers.shape)}", remedy)
    return check_weights("proportions", numbers.to(like), len(classes))


def as_targets(targets: Any, n: int, device: torch.device) -> Tensor | None:
    """Targets (n, q) in float64; a copy, unless gradients are to pass."""
    if targets is None:
        return None
    remedy = "Pass a number or a vector for each sample; labels that are names go to y."
    values = _numbers("targets", targets, remedy)
    if values.dtype == torch.bool:
        raise InputError("targets must be numbers", values.dtype, remedy)
    values = values.clone() if values is targets and not values.requires_grad else values
    values = values.to(device=device, dtype=torch.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != n or values.shape[1] == 0:
        raise InputError(
            f"targets must be one number or vector for each of the {n} samples",
            f"shape {tuple(values.shape)}",
            remedy,
        )
    check_finite("targets", values, "Remove samples whose target is missing.")
    return values


def as_target_columns(
    names: Sequence[str] | None, targets: Tensor | None
) -> tuple[str, ...] | None:
    """A name for each target, or None."""
    return as_columns(names, 0 if targets is None else targets.shape[1], "target_columns")


def as_probabilities(probabilities: Any, like: Tensor, k: int | None = None) -> Tensor:
    """(n, k) in float64, with rows that sum to one to the last digits."""
    n, remedy = len(like), "Pass for each sample one number from 0 to 1 for each class."
    raw = _numbers("probabilities", probabilities, remedy)
    if raw.dtype == torch.bool:
        raise InputError("probabilities must be numbers", raw.dtype, remedy)
    if raw.ndim != 2 or len(raw) != n or 0 in raw.shape or raw.shape[1] != (k or raw.shape[1]):
        what = f"probabilities must have the shape ({n}, {'k' if k is None else k})"
        raise InputError(what, f"shape {tuple(raw.shape)}", remedy)
    values = raw.detach().to(device=like.device, dtype=torch.float64)
    check_finite("probabilities", values, remedy)
    if float(values.min()) < 0:
        row, column = divmod(int(values.argmin()), values.shape[1])
        where = f"{float(values.min()):.3g} in row {row}, column {column}"
        raise InputError("probabilities must not be negative", where, remedy)
    sums = values.sum(dim=1, keepdim=True)
    worst = int((sums - 1).abs().argmax())
    if abs(float(sums[worst]) - 1) > _SUM_TOLERANCE:
        raise InputError(
            "probabilities of a sample must sum to one",
            f"{float(sums[worst]):.6g} in row {worst}",
            "Divide rows by their sums, or take torch.softmax(scores, dim=1).",
        )
    exact = (sums - 1).abs() <= 4 * torch.finfo(torch.float64).eps
    return torch.where(exact, values, values / sums)


def as_soft_labels(
    probabilities: Any, y: Any, classes: Sequence[Hashable] | None, like: Tensor
) -> tuple[Tensor, Any, Sequence[Hashable]]:
    """Checked probabilities, labels and class names of a new dataset."""
    soft = as_probabilities(probabilities, like, None if classes is None else len(classes))
    k = soft.shape[1]
    if y is None:
        names = tuple(range(k)) if classes is None else classes
        # by name: positions would be looked up among names that are numbers
        return soft, [names[code] for code in soft.argmax(dim=1).tolist()], names
    labels, names = as_codes(y, classes, len(like))
    if len(names) != k:
        raise InputError(
            f"probabilities need a class for each of {k} columns",
            f"{len(names)} different labels",
            "Name all classes: classes=[…].",
        )
    if bool((labels < 0).any()):
        raise InputError(
            "samples with probabilities need labels",
            f"{int((labels < 0).sum())} missing",
            "Leave y out: it is then the most probable class.",
        )
    return soft, [names[code] for code in labels.tolist()], names


def balanced_soft_weights(probabilities: Tensor) -> Tensor:
    """Weights with the same mass Σ w_i p_ic in each class, as far as the probabilities allow."""
    present = probabilities.amax(dim=0) > 0
    soft, goal = probabilities[:, present], 1 / int(present.sum())
    weights = soft.new_full((len(soft),), 1 / len(soft))
    for _ in range(_BALANCE_STEPS):
        masses = weights @ soft
        if float((masses - goal).abs().max()) < 1e-12:
            break
        weights = weights * (soft @ (goal / masses))
    return weights / weights.sum()


def check_soft_laws(law_index: Any) -> None:
    """Soft labels mix the laws of classes: laws of single samples do not fit them."""
    if law_index is not None:
        raise InputError(
            "soft labels need one law for each class",
            "a law_index, with laws of single samples",
            "Pass law=data.class_laws(), law_index=None.",
        )


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
    remedy = "Pass one row of law for each sample."
    rows = _numbers("law_index", index, remedy)
    if rows.is_floating_point():
        raise InputError("law_index must be whole numbers", rows.dtype, remedy)
    return rows.clone() if rows is index else rows

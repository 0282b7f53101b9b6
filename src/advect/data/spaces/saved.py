"""Reading of what ``to_dict`` wrote: each value is checked before anything is built from it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from advect.errors import InputError


def damaged(what: str, got: object) -> InputError:
    """The error for content that ``to_dict`` never writes."""
    return InputError(
        f"not a saved feature space, or damaged: {what}",
        got,
        "Pass what FeatureSpace.to_dict returned, or fit the space again.",
    )


def field(facts: Any, name: str) -> Any:
    """One entry of a dictionary."""
    if type(facts) is not dict:
        raise damaged("a part must be a dictionary", type(facts).__name__)
    if name not in facts:
        raise damaged(
            f"{name!r} must be there", ", ".join(map(str, facts)) or "an empty dictionary"
        )
    return facts[name]


def dict_in(facts: Any, name: str) -> dict[str, Any]:
    """A dictionary."""
    value = field(facts, name)
    if type(value) is not dict:
        raise damaged(f"{name} must be a dictionary", type(value).__name__)
    return value


def list_in(facts: Any, name: str) -> list[Any]:
    """A list."""
    value = field(facts, name)
    if type(value) is not list:
        raise damaged(f"{name} must be a list", type(value).__name__)
    return value


def dtype_in(facts: Any, name: str) -> torch.dtype:
    """One of the two dtypes of features."""
    return getattr(torch, word_in(facts, name, ("float32", "float64")))


def count_in(facts: Any, name: str) -> int:
    """A whole number of at least 1."""
    value = field(facts, name)
    if type(value) is not int or value < 1:
        raise damaged(f"{name} must be a whole number of at least 1", repr(value))
    return value


def shape_in(facts: Any, name: str) -> tuple[int, ...]:
    """A sample shape: whole numbers of at least 1, at least one of them."""
    value = field(facts, name)
    if type(value) is not list or not value or any(type(s) is not int or s < 1 for s in value):
        raise damaged(f"{name} must be a list of whole numbers of at least 1", value)
    return tuple(value)


def names_in(facts: Any, name: str) -> tuple[str, ...]:
    """Different strings, at least one."""
    value = field(facts, name)
    if type(value) is not list or not value or any(type(entry) is not str for entry in value):
        raise damaged(f"{name} must be a list of names", value)
    if len(set(value)) != len(value):
        raise damaged(f"{name} must be different names", value)
    return tuple(value)


def columns_in(facts: Any, shape: tuple[int, ...]) -> tuple[str, ...] | None:
    """The names of features of samples of this shape, if they have any."""
    if field(facts, "columns") is None:
        return None
    names = names_in(facts, "columns")
    if shape != (len(names),):
        raise damaged(
            f"there must be one name for each feature of samples of shape {shape}",
            f"{len(names)} names",
        )
    return names


def word_in(facts: Any, name: str, known: tuple[str, ...]) -> str:
    """One of a few words."""
    value = field(facts, name)
    if value not in known:
        raise damaged(f"{name} must be one of {', '.join(known)}", repr(value))
    return value


def numbers_in(facts: Any, name: str, ndim: int) -> Tensor:
    """Finite numbers, float64, with so many axes."""
    value = field(facts, name)
    try:
        numbers = torch.tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise damaged(f"{name} must hold numbers", type(value).__name__) from None
    if numbers.ndim != ndim or numbers.numel() == 0:
        raise damaged(
            f"{name} must have {ndim} axes and hold at least one number",
            f"shape {tuple(numbers.shape)}",
        )
    if not bool(torch.isfinite(numbers).all()):
        raise damaged(f"{name} must be finite", "NaN or infinite values")
    return numbers

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
    if not isinstance(facts, dict):
        raise damaged("a part must be a dictionary", type(facts).__name__)
    if name not in facts:
        raise damaged(
            f"{name!r} must be there", ", ".join(map(str, facts)) or "an empty dictionary"
        )
    return facts[name]


def count_in(facts: Any, name: str) -> int:
    """A whole number of at least 1."""
    value = field(facts, name)
    if type(value) is not int or value < 1:
        raise damaged(f"{name} must be a whole number of at least 1", repr(value))
    return value


def shape_in(facts: Any, name: str) -> tuple[int, ...]:
    """A sample shape: whole numbers of at least 1, at least one of them."""
    value = field(facts, name)
    if (
        not isinstance(value, list)
        or not value
        or not all(type(side) is int and side > 0 for side in value)
    ):
        raise damaged(f"{name} must be a list of whole numbers of at least 1", value)
    return tuple(value)


def names_in(facts: Any, name: str) -> tuple[str, ...]:
    """Different strings, at least one."""
    value = field(facts, name)
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(entry, str) for entry in value)
    ):
        raise damaged(f"{name} must be a list of names", value)
    if len(set(value)) != len(value):
        raise damaged(f"{name} must be different names", value)
    return tuple(value)


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

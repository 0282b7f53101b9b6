"""Checks of arguments. Each raises an ``InputError`` that states what is wrong, what was given and what to
do.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from advect.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

_MOST = (1 << 63) - 1  # of the integers of numpy and torch
_MAX_COMPARED, _MAX_LISTED = 10_000, 100  # names: to compare millions of columns takes minutes


def refuse_if(condition: object, what: str, got: object, remedy: str) -> None:
    """Raise an ``InputError`` if the condition holds."""
    if condition:
        raise InputError(what, got, remedy)


def check_count(name: str, value: Any, least: float = 1, whole: bool = True) -> Any:
    """A whole number of at least ``least`` as an int. If not ``whole``: a finite number as a float,
    of at least ``least`` or, for the smallest positive float, above 0."""
    number = value
    with suppress(AttributeError, ValueError, RuntimeError):
        number = value.item()  # scalars of numpy and torch
    if type(number) not in (int, float):
        raise InputError(f"{name} must be a number", repr(value), "Pass an int or a float.")
    # comparisons are exact, also for an int beyond floats
    finite = abs(number) <= (_MOST if whole else sys.float_info.max)
    if finite and number >= least and (not whole or number == int(number)):
        return int(value) if whole else float(number)
    if whole:
        raise InputError(
            f"{name} must be a whole number of at least {least}",
            value,
            f"Pass {least} or more, below 2⁶³.",
        )
    raise InputError(f"{name} must be {_RANGES[least]}", value, "Pass another value.")


_TINY = math.ulp(0.0)  # every float above 0 is at least this
_RANGES = {
    -math.inf: "finite",
    0: "a finite number of at least 0",
    _TINY: "a finite number above 0",
}
_Check = Callable[[str, object], float]
check_number: _Check = partial(check_count, least=-math.inf, whole=False)
check_positive: _Check = partial(check_count, least=_TINY, whole=False)
check_non_negative: _Check = partial(check_count, least=0, whole=False)


def check_known(kind: str, name: object, known: Iterable[str], remark: str = "") -> None:
    """``name`` is one of ``known``; the message suggests the nearest one."""
    known = sorted(known)
    if name not in known:
        near = difflib.get_close_matches(str(name), known[:_MAX_COMPARED], n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
        raise InputError(
            f"unknown {kind}",
            repr(name),
            f"{hint}Known: {', '.join(known[:_MAX_LISTED])}{more}{remark}.",
        )


def check_kind(what: str, value: object, kind: type | tuple[type, ...], remedy: str) -> None:
    """``value`` is of this type; ``what`` is the message."""
    if not isinstance(value, kind):
        short = type(value) in (bool, int, float)
        raise InputError(what, repr(value) if short else type(value).__name__, remedy)


def check_methods(what: str, value: object, methods: Iterable[str], remedy: str) -> None:
    """``value`` is an object with these methods, not a class or a name."""
    if isinstance(value, type) or not all(hasattr(value, name) for name in methods):
        raise InputError(what, repr(value), remedy)


def check_sides(size: Any) -> tuple[int, int]:
    """Height and width of images, from both or from one side for both."""
    try:
        sides = tuple(size)
    except TypeError:
        sides = (size, size)
    refuse_if(
        len(sides) != 2,
        "size must be one side or (height, width)",
        repr(size),
        "Pass for instance size=28 or size=(28, 32).",
    )
    return check_count("size", sides[0]), check_count("size", sides[1])


def one_or_more(names: Any) -> list[Any]:
    """One name, or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


def check_finite(
    name: str, values: Tensor, remedy: str = "Remove or impute these rows first."
) -> None:
    """No NaN and no infinity in a floating tensor; the message names the first bad row."""
    if not values.is_floating_point() or math.isfinite(values.detach().sum().item()):
        return
    bad = ~values.detach().isfinite()
    if bool(bad.any()):  # else the sum overflowed
        row = int(bad.reshape(len(bad), -1).any(dim=1).nonzero()[0]) if values.ndim else 0
        raise InputError(
            f"{name} must be finite",
            f"{int(bad.sum())} NaN or infinite values, first in row {row}",
            remedy,
        )


def missing_labels(who: str, missing: int, n: int) -> InputError:
    """The error for samples without labels where ``who`` needs them."""
    return InputError(
        f"{who} needs a label for each sample",
        f"{missing} of {n} without",
        "Keep the labeled ones with data.subset(data.labeled), label the rest (clustering gives "
        "pseudo-labels), or compare features alone with ad.GroundCost(label=ad.NoLabels()).",
    )


def check_weights(name: str, weights: Tensor, n: int) -> Tensor:
    """Non-negative weights of ``n`` samples that sum to one; unchanged if they do already."""
    if weights.ndim != 1 or len(weights) != n:
        what = f"{name} must be one number for each of the {n} samples"
        raise InputError(
            what,
            f"shape {tuple(weights.shape)}",
            "Pass a vector of that length, or None for uniform weights.",
        )
    parts = (weights.min(), weights.max(), weights.sum()) if n else weights.new_zeros(3)
    least, top, total = (part.item() for part in parts)
    if not math.isfinite(total):
        check_finite(name, weights, "Weights are plain non-negative numbers.")
    if least < 0:
        raise InputError(f"{name} must not be negative", f"{least:g}", "Clip or drop these.")
    if not top > 0:
        raise InputError(
            f"{name} must not all be zero",
            f"{n} zeros",
            "Give at least one sample a positive weight.",
        )
    is_double = weights.dtype.itemsize == 8 and weights.is_floating_point()
    if is_double and abs(total - 1) <= 8 * sys.float_info.epsilon:
        return weights.clone()  # the same bits after a dataset was saved and read
    # by the largest first, so that huge or tiny weights neither overflow nor vanish
    weights = weights / weights.max()
    return weights / weights.sum()

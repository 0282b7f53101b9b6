"""How objects show themselves: the call that makes them, with what differs from the defaults."""

from __future__ import annotations

import inspect
from typing import Any

_EMPTY = inspect.Parameter.empty
_LONG = 80


def call_of(made: object) -> str:
    """An object as the call that makes it, of arguments that it keeps under their own names and that
    are not the defaults.

    Example:
        >>> class Pet:
        ...     def __init__(self, name, legs=4, wild=False):
        ...         self.name, self.legs, self.wild = name, legs, wild
        >>> call_of(Pet("Rex", legs=3))
        "Pet(name='Rex', legs=3)"
    """
    parts = []
    for name, parameter in inspect.signature(type(made)).parameters.items():
        value = getattr(made, name, _EMPTY)
        if value is _EMPTY or _is(value, parameter.default):
            continue
        parts.append(f"{name}={_short(value)}")
    return f"{type(made).__name__}({', '.join(parts)})"


class Shown:
    """A class whose objects show themselves as the call that makes them.

    Example:
        >>> class Pace(Shown):
        ...     def __init__(self, speed=1.0):
        ...         self.speed = speed
        >>> Pace(2.0), Pace()
        (Pace(speed=2.0), Pace())
    """

    def __repr__(self) -> str:
        return call_of(self)


def _is(value: Any, default: Any) -> bool:
    if value is default:
        return True
    try:
        return type(value) is type(default) and bool(value == default)
    except (TypeError, ValueError, RuntimeError):  # arrays have no one answer
        return False


def _short(value: Any) -> str:
    if inspect.isroutine(value):
        return getattr(value, "__qualname__", repr(value)).rpartition(".")[2]
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONG else f"{type(value).__name__}(…)"

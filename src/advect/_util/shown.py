"""Objects whose ``repr`` is the call that creates them, with the arguments that differ from the defaults."""

from __future__ import annotations

import inspect

_MAX_LENGTH = 80


class Shown:
    """Base class of objects whose ``repr`` is the call that creates them.

    Example:
        >>> class Pace(Shown):
        ...     def __init__(self, speed=1.0):
        ...         self.speed = speed
        >>> Pace(2.0), Pace()
        (Pace(speed=2.0), Pace())
    """

    def __repr__(self) -> str:
        parts = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name, parameter.default)
            is_function = inspect.isroutine(value)
            text = value.__qualname__ if is_function else " ".join(repr(value).split())
            text = text.rpartition(".")[2] if is_function else text
            if value is not parameter.default and text != repr(parameter.default):
                short = text if len(text) <= _MAX_LENGTH else f"{type(value).__name__}(…)"
                parts.append(f"{name}={short}")
        return f"{type(self).__name__}({', '.join(parts)})"

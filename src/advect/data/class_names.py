"""Class names as JSON, which has no tuples: these become lists under a key."""

from __future__ import annotations

from typing import Any

from advect._util import refuse_if


def pack_name(name: Any, *, strict: bool = True) -> Any:
    """A class name as a JSON value. A name without a JSON value is an error, or is replaced by its text."""
    if isinstance(name, tuple):
        return {"tuple": [pack_name(part, strict=strict) for part in name]}
    if name is None or isinstance(name, (str, int, float)):
        return name
    refuse_if(
        strict,
        "class names must be text, numbers or tuples of these to be written",
        repr(name),
        "Rename the classes before saving.",
    )
    return str(name)


def pack_any(name: Any) -> Any:
    """A class name as a JSON value, or its text if JSON has none."""
    return pack_name(name, strict=False)


def unpack_name(name: Any) -> Any:
    """The inverse of ``pack_name``; ValueError for anything else."""
    if type(name) is dict and type(name.get("tuple")) is list:
        return tuple(unpack_name(part) for part in name["tuple"])
    if type(name) in (dict, list):
        raise ValueError(f"{name} is not a class name")
    return name

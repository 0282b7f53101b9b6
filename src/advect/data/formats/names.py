"""Class names as JSON, which has no tuples: these become lists under a key."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from advect.errors import InputError


def dump_name(name: Hashable) -> str:
    """A class name as JSON text."""
    return json.dumps(pack_name(name))


def load_name(text: str) -> Any:
    """The name that ``dump_name`` turned to text."""
    return unpack_name(json.loads(text))


def pack_name(name: Any) -> Any:
    """A class name as what JSON has."""
    if isinstance(name, tuple):
        return {"tuple": [pack_name(part) for part in name]}
    if name is None or isinstance(name, (str, int, float)):
        return name
    raise InputError(
        "class names must be text, numbers or tuples of these to be written",
        repr(name),
        "Rename the classes before saving.",
    )


def stored_name(name: Hashable) -> Any:
    """What a class name comes back as from a run: a text, for kinds that JSON does not have."""
    return unpack_name(pack_any(name))


def pack_any(name: Any) -> Any:
    """A class name as what JSON has, or else its text."""
    if isinstance(name, tuple):
        return {"tuple": [pack_any(part) for part in name]}
    try:
        return pack_name(name)
    except InputError:
        return str(name)


def unpack_name(name: Any) -> Any:
    """The name that ``pack_name`` packed; ValueError for anything else."""
    if type(name) is dict and type(name.get("tuple")) is list:
        return tuple(unpack_name(part) for part in name["tuple"])
    if type(name) in (dict, list):
        raise ValueError(f"{name} is not a class name")
    return name

"""Short names for what objects hold, so that a result can be found again and is never taken for that of other inputs.

Equal content gives equal names in every process. Nothing is pickled: datasets, tensors, dataclasses, plain values and the code
of functions are read for what they are.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import types
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.data import LabeledDataset
from advect.errors import InputError
from advect.storage import pack_dataset

Add = Callable[[bytes | memoryview], object]


def digest(*parts: Any) -> str:
    """32 hexadecimal digits that tell the content of ``parts`` from any other.

    A function is its name and its code, with the values it closes over, and the plain constants and functions of its own
    module that it uses. What it calls elsewhere is not looked into.

    Raises:
        InputError: an object whose content cannot be read.

    Example:
        >>> import advect as ad
        >>> digest(ad.Sinkhorn(epsilon=0.1)) == digest(ad.Sinkhorn(epsilon=0.1))
        True
        >>> digest(ad.Sinkhorn(epsilon=0.1)) == digest(ad.Sinkhorn(epsilon=0.2))
        False
    """
    hasher = hashlib.blake2b(digest_size=16)
    _feed(hasher.update, parts, ())
    return hasher.hexdigest()


def _feed(add: Add, value: Any, above: tuple[int, ...]) -> None:
    """Every part is preceded by its kind and length, so that no two different values give the same bytes."""
    if id(value) in above:
        return _text(add, "seen", str(len(above) - above.index(id(value))))
    inner = functools.partial(_feed, add, above=(*above, id(value)))
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, type(...))):
        return _text(add, type(value).__name__, repr(value))
    if isinstance(value, (os.PathLike, Enum, type, types.BuiltinFunctionType, types.ModuleType)):
        return _text(add, "named", f"{type(value).__qualname__} {_name(value)}")
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        return _numbers(add, value, inner)
    if isinstance(value, LabeledDataset):
        return _several(add, "dataset", pack_dataset(value), inner)
    if isinstance(value, (list, tuple)):
        return _several(add, type(value).__name__, value, inner)
    if isinstance(value, (set, frozenset)):
        return _several(add, "set", sorted(digest(item) for item in value), inner)
    if isinstance(value, Mapping):
        return _several(add, "mapping", sorted((digest(key), digest(item)) for key, item in value.items()), inner)
    if isinstance(value, types.FunctionType):
        return _several(add, "function", _of_function(value), inner)
    if isinstance(value, types.MethodType):
        return _several(add, "method", (value.__func__, value.__self__), inner)
    if isinstance(value, functools.partial):
        return _several(add, "partial", (value.func, value.args, value.keywords), inner)
    return _several(add, f"object {_name(type(value))}", _of_object(value), inner)


def _text(add: Add, kind: str, text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    add(f"{kind}:{len(content)}:".encode() + content)


def _several(add: Add, kind: str, parts: Any, inner: Callable[[Any], None]) -> None:
    _text(add, "several", f"{kind} {len(parts)}")
    for part in parts:
        inner(part)


def _numbers(add: Add, value: Any, inner: Callable[[Any], None]) -> None:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.hasobject:
        return _several(add, f"objects {array.shape}", array.ravel().tolist(), inner)
    _text(add, "numbers", f"{array.dtype.str} {array.shape}")
    add(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
    return None


def _name(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Enum):
        return f"{_name(type(value))}.{value.name}"
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"


def _of_function(function: types.FunctionType) -> tuple[Any, ...]:
    closed = []
    for cell in function.__closure__ or ():
        try:
            closed.append(cell.cell_contents)
        except ValueError:  # a name that has no value yet
            closed.append("empty")
    codes = list(_codes(function.__code__))
    used = sorted({name for code in codes for name in code.co_names} & function.__globals__.keys())
    around = {name: value for name in used if _is_constant(value := function.__globals__[name], function)}
    told = tuple((code.co_code, code.co_names, tuple(c for c in code.co_consts if not _is_code(c))) for code in codes)
    return _name(function), told, function.__defaults__, function.__kwdefaults__, closed, around


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if _is_code(constant):
            yield from _codes(constant)


def _is_code(value: Any) -> bool:
    return isinstance(value, types.CodeType)


def _is_constant(value: Any, function: types.FunctionType) -> bool:
    if isinstance(value, types.FunctionType):
        return value.__module__ == function.__module__
    return value is None or isinstance(value, (bool, int, float, str, bytes))


def _of_object(value: Any) -> tuple[Any, ...]:
    if dataclasses.is_dataclass(value):  # fields alone: what is cached beside them follows from them
        return tuple((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, torch.nn.Module):
        return repr(value), value.training, dict(value.state_dict())
    if not hasattr(value, "__dict__"):
        raise InputError(
            "a store needs inputs that it can recognise later",
            f"an object of {_name(type(value))}",
            "Use numbers, text, arrays, dataclasses or functions, or leave store out.",
        )
    return (vars(value),)

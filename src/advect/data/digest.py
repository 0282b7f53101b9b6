"""Short names for what objects hold, so that a result can be found again and is never taken for
that of other inputs.

Equal content gives equal names in every process. Nothing is pickled: datasets, tensors,
dataclasses, plain values and the code of functions are read for what they are."""

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

from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset
from advect.errors import InputError

Add = Callable[[bytes | memoryview], object]


def digest(*parts: Any) -> str:
    """32 hexadecimal digits that tell the content of ``parts`` from any other.

    A function is its name and its code, with the values it closes over, and the constants, data and
    functions of its own module that it uses: plain values and lists, tuples, dictionaries and sets
    of them, arrays, datasets, dataclasses, networks. What it calls elsewhere is not looked into. A
    network is its class, parameters, buffers and the other attributes of each of its layers; hooks
    do not count.

    Raises:
        InputError: an object whose content cannot be read.

    Example:
        >>> import advect as ad
        >>> digest(ad.Sinkhorn(epsilon=0.1)) == digest(ad.Sinkhorn(epsilon=0.1))
        True
        >>> digest(ad.Sinkhorn(epsilon=0.1)) == digest(ad.Sinkhorn(epsilon=0.2))
        False
    """
    return _hashed(parts, ())


def _hashed(parts: tuple[Any, ...], above: tuple[int, ...]) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    _feed(hasher.update, parts, above)
    return hasher.hexdigest()


def _feed(add: Add, value: Any, above: tuple[int, ...]) -> None:
    """Every part is preceded by its kind and length, so that no two different values give the same
    bytes.
    """
    if id(value) in above:
        return _text(add, "seen", str(len(above) - above.index(id(value))))
    within = (*above, id(value))
    inner = functools.partial(_feed, add, above=within)
    if value is None or isinstance(
        value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, type(...))
    ):
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
        return _several(add, "set", sorted(_hashed((item,), within) for item in value), inner)
    if isinstance(value, Mapping):
        items = sorted(
            (_hashed((key,), within), _hashed((item,), within)) for key, item in value.items()
        )
        return _several(add, "mapping", items, inner)
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
    """The function and those of its module that it leads to, each once, in the order in which they
    are met.
    """
    met, told = [function], []
    for one in met:  # grows on the way
        around = {name: one.__globals__[name] for name in _names_used(one)}
        calls = {
            name: value for name, value in around.items() if isinstance(value, types.FunctionType)
        }
        calls = {name: value for name, value in calls.items() if value.__module__ == one.__module__}
        met += [value for value in dict.fromkeys(calls.values()) if value not in met]
        constants = {name: value for name, value in around.items() if _is_constant(value)}
        told.append(
            (_of_code(one), {name: met.index(value) for name, value in calls.items()}, constants)
        )
    return tuple(told)


def _names_used(function: types.FunctionType) -> list[str]:
    return sorted(
        {name for code in _codes(function.__code__) for name in code.co_names}
        & function.__globals__.keys()
    )


def _of_code(function: types.FunctionType) -> tuple[Any, ...]:
    closed = []
    for cell in function.__closure__ or ():
        try:
            closed.append(cell.cell_contents)
        except ValueError:  # a name that has no value yet
            closed.append("empty")
    told = tuple(
        (
            code.co_code,
            code.co_names,
            code.co_varnames,
            tuple(c for c in code.co_consts if not _is_code(c)),
        )
        for code in _codes(function.__code__)
    )
    return _name(function), told, function.__defaults__, function.__kwdefaults__, closed


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if _is_code(constant):
            yield from _codes(constant)


def _is_code(value: Any) -> bool:
    return isinstance(value, types.CodeType)


def _is_constant(value: Any) -> bool:
    """What a function may have been written with, and is not code."""
    data = (Tensor, np.ndarray, np.generic, LabeledDataset, torch.nn.Module, os.PathLike, Enum)
    plain = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict)
    if isinstance(value, type):
        return False
    return value is None or isinstance(value, (*plain, *data)) or dataclasses.is_dataclass(value)


def _of_object(value: Any) -> tuple[Any, ...]:
    if dataclasses.is_dataclass(
        value
    ):  # fields alone: what is cached beside them follows from them
        return tuple(
            (field.name, getattr(value, field.name)) for field in dataclasses.fields(value)
        )
    if isinstance(value, torch.nn.Module):
        return _of_module(value)
    if not hasattr(value, "__dict__"):
        raise InputError(
            "a store needs inputs that it can recognise later",
            f"an object of {_name(type(value))}",
            "Use numbers, text, arrays, dataclasses or functions, or leave store out.",
        )
    return (vars(value),)


def _of_module(module: torch.nn.Module) -> tuple[Any, ...]:
    """All that a layer computes with; the layers in it follow in the order in which they are called
    one after the other.
    """
    from torch.fx import Graph, GraphModule

    if isinstance(module, torch.jit.ScriptModule):  # its attributes and its code are not python's
        return (bytes(module.save_to_buffer()),)
    if isinstance(
        compiled := module._modules.get("_orig_mod"), torch.nn.Module
    ):  # the same results, from faster code
        return (compiled,)
    known, code = vars(torch.nn.Module()), ""
    if isinstance(module, GraphModule):
        known, code = vars(GraphModule(torch.nn.Module(), Graph())), module.code
    own = {name: value for name, value in vars(module).items() if name not in known}
    return (
        module.training,
        module._parameters,
        module._buffers,
        own,
        code,
        tuple(module._modules.items()),
    )

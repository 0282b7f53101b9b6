"""Short names for the content of objects, so that a stored result is found again and is never
taken for that of other inputs.

Equal content gives equal names in every process. Nothing is pickled: datasets, tensors,
dataclasses, networks, plain values and the code of functions are read for what they are.
(``joblib.hash`` pickles, so it refuses lambdas, and its result depends on shared references.)"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset
from advect.errors import InputError

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device)
_DATA = (Tensor, np.ndarray, np.generic, LabeledDataset, torch.nn.Module, os.PathLike, Enum)
_CONSTANTS = (*_PLAIN, list, tuple, set, frozenset, dict, *_DATA)


def digest(*parts: Any) -> str:
    """32 hexadecimal digits of the content of ``parts``.

    A function is its name and code, the values it closes over, and the constants and functions of
    its module that it uses. A network is its class, parameters, buffers and other attributes.
    """
    return _hashed(parts, ())


def _hashed(value: Any, above: tuple[int, ...]) -> str:
    """``above`` are the ids of the objects that hold this one: a loop is named by its length."""
    hasher = hashlib.blake2b(digest_size=16)
    if id(value) in above:
        _text(hasher, "seen", str(len(above) - above.index(id(value))))
    else:
        _feed(hasher, value, (*above, id(value)))
    return hasher.hexdigest()


def _text(hasher: Any, kind: str, text: str) -> None:
    """Kind and length come first, so that different values never give the same bytes."""
    content = text.encode("utf-8", "surrogatepass")
    hasher.update(f"{kind}:{len(content)}:".encode() + content)


def _feed(hasher: Any, value: Any, within: tuple[int, ...]) -> None:
    match value:
        case Enum():
            return _text(hasher, "enum", f"{_name(type(value))}.{value.name}")
        case type() | types.BuiltinFunctionType() | types.ModuleType():
            return _text(hasher, f"{type(value).__qualname__}", _name(value))
        case os.PathLike():
            return _text(hasher, type(value).__qualname__, os.fspath(value))
        case Tensor():
            return _feed(hasher, value.detach().cpu().numpy(), within)
        case np.ndarray() | np.generic() if not value.dtype.hasobject:
            array = np.ascontiguousarray(value)
            _text(hasher, "numbers", f"{array.dtype.str} {np.shape(value)}")
            return hasher.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    if isinstance(value, _PLAIN):
        return _text(hasher, type(value).__name__, repr(value))
    kind, parts = _parts(value, within)
    _text(hasher, "several", f"{kind} {len(parts)}")
    for part in parts:
        _text(hasher, "part", _hashed(part, within))
    return None


def _parts(value: Any, within: tuple[int, ...]) -> tuple[str, Any]:
    """A kind, and the values that one of it consists of."""
    match value:
        case np.ndarray():
            return f"objects {value.shape}", value.ravel().tolist()
        case list() | tuple():
            return type(value).__name__, value
        case set() | frozenset():
            return "set", sorted(_hashed((item,), within) for item in value)
        case Mapping():
            items = [(_hashed((k,), within), _hashed((v,), within)) for k, v in value.items()]
            return "mapping", sorted(items)
        case LabeledDataset():
            return "dataset", pack_dataset(value)
        case types.FunctionType():
            return "function", _function_parts(value)
        case types.MethodType():
            return "method", (value.__func__, value.__self__)
        case functools.partial():
            return "partial", (value.func, value.args, value.keywords)
    return f"object {_name(type(value))}", _content(value)


def _name(value: Any) -> str:
    """Where a class, function or module is found; classes of advect may move between modules."""
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)
    ours = module is not None and module.startswith("advect.")
    return f"{'advect' if ours else module}.{name}"


def _function_parts(function: types.FunctionType) -> tuple[Any, ...]:
    """The function and those of its module that it leads to, in the order in which they are met."""
    met, parts = [function], []
    for one in met:  # grows on the way
        names = {name for code in _codes(one.__code__) for name in code.co_names}
        used = {name: one.__globals__[name] for name in sorted(names & one.__globals__.keys())}
        functions = {n: v for n, v in used.items() if type(v) is types.FunctionType}
        calls = {n: v for n, v in functions.items() if v.__module__ == one.__module__}
        met += [value for value in dict.fromkeys(calls.values()) if value not in met]
        constants = {name: value for name, value in used.items() if _is_constant(value)}
        places = {name: met.index(value) for name, value in calls.items()}
        parts.append((_code_parts(one), places, constants))
    return tuple(parts)


def _code_parts(function: types.FunctionType) -> tuple[Any, ...]:
    closed = []
    for cell in function.__closure__ or ():
        try:
            closed.append(cell.cell_contents)
        except ValueError:  # a name that has no value yet
            closed.append("empty")
    parts = []
    for code in _codes(function.__code__):
        constants = tuple(c for c in code.co_consts if type(c) is not types.CodeType)
        parts.append((code.co_code, code.co_names, code.co_varnames, constants))
    return _name(function), parts, function.__defaults__, function.__kwdefaults__, closed


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _codes(constant)


def _is_constant(value: Any) -> bool:
    """Data of a module that a function uses, as opposed to code."""
    data = isinstance(value, _CONSTANTS) or dataclasses.is_dataclass(type(value))
    return data and not isinstance(value, type)


def _content(value: Any) -> tuple[Any, ...]:
    """The fields of a dataclass, the state of a network, or the attributes of another object."""
    match value:
        case torch.jit.ScriptModule():
            return (bytes(value.save_to_buffer()),)
        case GraphModule():
            return _module_parts(value, vars(GraphModule(torch.nn.Module(), Graph())), value.code)
        case torch.nn.Module():
            return _module_parts(value, vars(torch.nn.Module()), "")
    if dataclasses.is_dataclass(value):
        return tuple((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    if not hasattr(value, "__dict__"):
        raise InputError(
            "a store needs inputs that it can recognise later",
            f"an object of {_name(type(value))}",
            "Use numbers, text, arrays, dataclasses or functions, or leave store out.",
        )
    return (vars(value),)


def _module_parts(module: torch.nn.Module, base: Mapping[str, Any], code: str) -> tuple[Any, ...]:
    """Everything that a layer computes with, then its layers in order; hooks do not count."""
    if (compiled := module._modules.get("_orig_mod")) is not None:
        return (compiled,)  # torch.compile: the same results
    own = {name: value for name, value in vars(module).items() if name not in base}
    layers = tuple(module._modules.items())
    return module.training, module._parameters, module._buffers, own, code, layers

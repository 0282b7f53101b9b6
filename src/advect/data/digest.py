"""Short names for the content of objects, so that a stored result is found again and is never
taken for that of other inputs.

Equal content gives equal names in every process. Nothing is pickled: datasets, tensors,
dataclasses, networks, plain values and the code of functions are read for what they are.
(``joblib.hash`` pickles, so it refuses lambdas, and its result depends on shared references.)"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import os
import types
from collections.abc import Iterable, Iterator, Mapping
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
        hasher.update(_line("seen", str(len(above) - above.index(id(value)))))
    else:
        for chunk in _chunks(value, (*above, id(value))):
            hasher.update(chunk)
    return hasher.hexdigest()


def _line(kind: str, text: str) -> bytes:
    """Kind and length come first, so that different values never give the same bytes."""
    content = text.encode("utf-8", "surrogatepass")
    return f"{kind}:{len(content)}:".encode() + content


def _several(kind: str, parts: Any, within: tuple[int, ...]) -> Iterator[bytes]:
    yield _line("several", f"{kind} {len(parts)}")
    for part in parts:
        yield _line("part", _hashed(part, within))


@functools.singledispatch
def _chunks(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    """The bytes that a value is recognised by: here the fields of a dataclass or the attributes of any
    other object."""
    try:
        content: Any = (vars(value),)
    except TypeError:
        content = None
    if dataclasses.is_dataclass(value):
        content = tuple((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    if content is None:
        raise InputError(
            "a store needs inputs that it can recognise later",
            f"an object of {_name(type(value))}",
            "Use numbers, text, arrays, dataclasses or functions, or leave store out.",
        )
    return _several(f"object {_name(type(value))}", content, within)


@_chunks.register(np.ndarray)
@_chunks.register(np.generic)
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    if value.dtype.hasobject:
        return _several(f"objects {value.shape}", value.ravel().tolist(), within)
    array = np.ascontiguousarray(value)
    head = _line("numbers", f"{array.dtype.str} {np.shape(value)}")
    return head, array.reshape(-1).view(np.uint8).data if array.size else b""


@_chunks.register(torch.nn.Module)
def _(module: Any, within: tuple[int, ...]) -> Iterable[Any]:
    parts = _module_parts(module, vars(torch.nn.Module()), "")
    return _several(f"object {_name(type(module))}", parts, within)


@_chunks.register(GraphModule)
def _(module: Any, within: tuple[int, ...]) -> Iterable[Any]:
    parts = _module_parts(module, vars(GraphModule(torch.nn.Module(), Graph())), module.code)
    return _several(f"object {_name(type(module))}", parts, within)


@_chunks.register(set)
@_chunks.register(frozenset)
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    return _several("set", sorted(_hashed((item,), within) for item in value), within)


@_chunks.register(Mapping)
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    items = [(_hashed((k,), within), _hashed((v,), within)) for k, v in value.items()]
    return _several("mapping", sorted(items), within)


# Values that are one line of text, by their kind and that text.
for _kinds, _text in (
    ((Enum,), lambda v: ("enum", f"{_name(type(v))}.{v.name}")),
    (
        (type, types.BuiltinFunctionType, types.ModuleType),
        lambda v: (type(v).__qualname__, _name(v)),
    ),
    ((os.PathLike,), lambda v: (type(v).__qualname__, os.fspath(v))),
    (_PLAIN, lambda v: (type(v).__name__, repr(v))),
):
    for _kind in _kinds:
        _chunks.register(_kind, lambda value, within, text=_text: (_line(*text(value)),))

# Values that consist of others.
for _kind, _parts in {
    list: lambda v: (type(v).__name__, v),
    tuple: lambda v: (type(v).__name__, v),
    LabeledDataset: lambda v: ("dataset", pack_dataset(v)),
    types.FunctionType: lambda v: ("function", _function_parts(v)),
    types.MethodType: lambda v: ("method", (v.__func__, v.__self__)),
    functools.partial: lambda v: ("partial", (v.func, v.args, v.keywords)),
    torch.jit.ScriptModule: lambda v: (
        f"object {_name(type(v))}",
        (bytes(v.save_to_buffer()),),
    ),
}.items():
    _chunks.register(
        _kind, lambda value, within, of=_parts: _several(of(value)[0], of(value)[1], within)
    )
_chunks.register(Tensor, lambda value, within: _chunks(value.detach().cpu().numpy(), within))


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
        functions = {n: v for n, v in used.items() if inspect.isfunction(v)}
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
        constants = tuple(c for c in code.co_consts if not inspect.iscode(c))
        parts.append((code.co_code, code.co_names, code.co_varnames, constants))
    return _name(function), parts, function.__defaults__, function.__kwdefaults__, closed


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _codes(constant)


def _is_constant(value: Any) -> bool:
    """Data of a module that a function uses, as opposed to code."""
    return isinstance(value, _CONSTANTS) or dataclasses.is_dataclass(type(value))


def _module_parts(module: torch.nn.Module, base: Mapping[str, Any], code: str) -> tuple[Any, ...]:
    """Everything that a layer computes with, then its layers in order; hooks do not count."""
    if (compiled := module._modules.get("_orig_mod")) is not None:
        return (compiled,)  # torch.compile: the same results
    own = {name: value for name, value in vars(module).items() if name not in base}
    layers = tuple(module._modules.items())
    return module.training, module._parameters, module._buffers, own, code, layers

"""Short names for what objects hold, so that a stored result can be found again and is never taken
for that of other inputs.

Equal content gives equal names in every process. Nothing is pickled: datasets, tensors,
dataclasses, plain values and the code of functions are read for what they are."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset
from advect.errors import InputError

Add = Callable[[bytes | memoryview], object]
Above = tuple[int, ...]  # the objects that hold this one, so that a loop is noticed

# Results on disk are found by these names: a class of ours keeps the module it was first known by,
# wherever it lives now.
_FIRST_HOMES = {
    "advect.control": ("Backtracking", "FixedSteps"),
    "advect.cost.features": ("Embedding", "Sketch", "SquaredEuclidean"),
    "advect.cost.ground": ("GroundCost",),
    "advect.cost.labels": ("Bures", "ExactLabelOT", "MeansOnly", "NoLabels"),
    "advect.dynamics": ("FeatureDriven", "JointFixedLabels", "JointVariableLabels"),
    "advect.functionals.otdd": ("OTDD",),
    "advect.gaussians": ("Diagonal", "Factored", "Full", "Gaussians"),
    "advect.integrators": ("Adagrad", "Adam", "Decay", "Euler", "EulerMaruyama", "Momentum"),
    "advect.labels": ("DBSCAN", "KMeans"),
    "advect.ot.exact": ("ExactOT",),
    "advect.ot.minibatch": ("MiniBatch",),
    "advect.ot.nystrom": ("NystromSinkhorn",),
    "advect.ot.sinkhorn": ("Relative", "Sinkhorn"),
    "advect.pseudo.clusterers": ("GaussianMixture", "HDBSCAN", "Spectral", "Ward"),
}
_HOME = {name: home for home, names in _FIRST_HOMES.items() for name in names}


def digest(*parts: Any) -> str:
    """32 hexadecimal digits that are those of no other content than ``parts``.

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


def _hashed(value: Any, above: Above) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    _walk(hasher.update, value, above)
    return hasher.hexdigest()


def _walk(add: Add, value: Any, above: Above) -> None:
    """Kind and length come before each part: different values never give the same bytes."""
    if id(value) in above:
        _text(add, "seen", str(len(above) - above.index(id(value))))
    else:
        _feed(value, add, (*above, id(value)))


def _text(add: Add, kind: str, text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    add(f"{kind}:{len(content)}:".encode() + content)


def _several(add: Add, kind: str, parts: Any, within: Above) -> None:
    _text(add, "several", f"{kind} {len(parts)}")
    for part in parts:
        _walk(add, part, within)


@functools.singledispatch
def _feed(value: Any, add: Add, within: Above) -> None:
    """What is said of a value of each kind; here of those that consist of others."""
    _several(add, *_parts(value), within)


def _feed_plain(value: Any, add: Add, within: Above) -> None:
    _text(add, type(value).__name__, repr(value))


_PLAIN = (bool, int, float, complex, str, bytes)
# two scalars of numpy are Python's numbers too, and count as these
for _kind in (*_PLAIN, np.float64, np.complex128, type(None), type(...), torch.dtype, torch.device):
    _feed.register(_kind, _feed_plain)


@_feed.register(type)
@_feed.register(types.BuiltinFunctionType)
@_feed.register(types.ModuleType)
def _(value: Any, add: Add, within: Above) -> None:
    _text(add, "named", f"{type(value).__qualname__} {_name(value)}")


@_feed.register
def _(value: os.PathLike, add: Add, within: Above) -> None:
    _text(add, "named", f"{type(value).__qualname__} {os.fspath(value)}")


@_feed.register
def _(value: Enum, add: Add, within: Above) -> None:
    _text(add, "named", f"{type(value).__qualname__} {_name(type(value))}.{value.name}")


@_feed.register(np.ndarray)
@_feed.register(np.generic)
def _feed_array(value: Any, add: Add, within: Above) -> None:
    array = np.asarray(value)
    if array.dtype.hasobject:
        return _several(add, f"objects {array.shape}", array.ravel().tolist(), within)
    _text(add, "numbers", f"{array.dtype.str} {array.shape}")
    add(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
    return None


@_feed.register
def _(value: Tensor, add: Add, within: Above) -> None:
    _feed_array(value.detach().cpu().numpy(), add, within)


@_feed.register(set)
@_feed.register(frozenset)
def _(value: Iterable[Any], add: Add, within: Above) -> None:
    _several(add, "set", sorted(_hashed((item,), within) for item in value), within)


@_feed.register
def _(value: Mapping, add: Add, within: Above) -> None:
    items = ((_hashed((key,), within), _hashed((item,), within)) for key, item in value.items())
    _several(add, "mapping", sorted(items), within)


@functools.singledispatch
def _parts(value: Any) -> tuple[str, Any]:
    """A kind, and what a value of it consists of."""
    return f"object {_name(type(value))}", _content(value)


_parts.register(LabeledDataset, lambda value: ("dataset", pack_dataset(value)))
_parts.register(list, lambda value: (type(value).__name__, value))
_parts.register(tuple, lambda value: (type(value).__name__, value))
_parts.register(types.FunctionType, lambda value: ("function", _of_function(value)))
_parts.register(types.MethodType, lambda value: ("method", (value.__func__, value.__self__)))
_parts.register(functools.partial, lambda v: ("partial", (v.func, v.args, v.keywords)))


def _name(value: Any) -> str:
    """Where a class, function or module is found."""
    home, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)
    ours = home is not None and home.startswith("advect.")
    return f"{_HOME.get(name, home) if ours else home}.{name}"


def _of_function(function: types.FunctionType) -> tuple[Any, ...]:
    """The function and those of its module that it leads to, each once, as they are met."""
    met, parts = [function], []
    for one in met:  # grows on the way
        around = {name: one.__globals__[name] for name in _names_used(one)}
        functions = {n: v for n, v in around.items() if type(v) is types.FunctionType}
        calls = {n: v for n, v in functions.items() if v.__module__ == one.__module__}
        met += [value for value in dict.fromkeys(calls.values()) if value not in met]
        constants = {name: value for name, value in around.items() if _is_constant(value)}
        places = {name: met.index(value) for name, value in calls.items()}
        parts.append((_of_code(one), places, constants))
    return tuple(parts)


def _names_used(function: types.FunctionType) -> list[str]:
    used = {name for code in _codes(function.__code__) for name in code.co_names}
    return sorted(used & function.__globals__.keys())


def _of_code(function: types.FunctionType) -> tuple[Any, ...]:
    closed = []
    for cell in function.__closure__ or ():
        try:
            closed.append(cell.cell_contents)
        except ValueError:  # a name that has no value yet
            closed.append("empty")
    parts = tuple(
        (code.co_code, code.co_names, code.co_varnames, _plain_constants(code))
        for code in _codes(function.__code__)
    )
    return _name(function), parts, function.__defaults__, function.__kwdefaults__, closed


def _plain_constants(code: types.CodeType) -> tuple[Any, ...]:
    return tuple(value for value in code.co_consts if type(value) is not types.CodeType)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function and of those inside it."""
    yield code
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _codes(constant)


_DATA = (Tensor, np.ndarray, np.generic, LabeledDataset, torch.nn.Module, os.PathLike, Enum)
_CONSTANTS = (*_PLAIN, type(None), list, tuple, set, frozenset, dict, *_DATA)


def _is_constant(value: Any) -> bool:
    """What a function may have been written with, and is not code."""
    is_data = isinstance(value, _CONSTANTS) or dataclasses.is_dataclass(type(value))
    return is_data and not issubclass(type(value), type)


# of a field that a class did not always have: as it comes it counts for nothing, so that what was
# stored before is found again
LATER = "later"


@functools.singledispatch
def _content(value: Any) -> tuple[Any, ...]:
    """What an object holds: of a dataclass its fields, since what it caches follows from them."""
    if dataclasses.is_dataclass(value):
        held = [(field, getattr(value, field.name)) for field in dataclasses.fields(value)]
        return tuple((f.name, v) for f, v in held if not (f.metadata.get(LATER) and v is f.default))
    if not hasattr(value, "__dict__"):
        raise InputError(
            "a store needs inputs that it can recognise later",
            f"an object of {_name(type(value))}",
            "Use numbers, text, arrays, dataclasses or functions, or leave store out.",
        )
    return (vars(value),)


@_content.register
def _(value: torch.nn.Module) -> tuple[Any, ...]:
    return _of_module(value, vars(torch.nn.Module()), "")


@_content.register
def _(value: GraphModule) -> tuple[Any, ...]:
    return _of_module(value, vars(GraphModule(torch.nn.Module(), Graph())), value.code)


@_content.register
def _(value: torch.jit.ScriptModule) -> tuple[Any, ...]:
    return (bytes(value.save_to_buffer()),)  # its attributes and its code are not Python's


def _of_module(module: torch.nn.Module, known: Mapping[str, Any], code: str) -> tuple[Any, ...]:
    """All that a layer computes with; then the layers in it, in the order of their calls."""
    if (compiled := module._modules.get("_orig_mod")) is not None:
        return (compiled,)  # the same results, from faster code
    own = {name: value for name, value in vars(module).items() if name not in known}
    layers = tuple(module._modules.items())
    return module.training, module._parameters, module._buffers, own, code, layers

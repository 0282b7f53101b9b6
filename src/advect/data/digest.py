"""Short names for the content of objects, so that a stored result is found again and is never
taken for that of other inputs.

Equal content gives equal names in every process. Nothing is pickled: datasets, tensors, dataclasses and
plain values are read as they are, and other objects by the state that pickle would store. Functions are
refused: their code may change. (The result of ``joblib.hash`` depends on shared references.)"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset
from advect.errors import InputError


def digest(*parts: Any) -> str:
    """32 hexadecimal digits of the content of ``parts``."""
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
    """The bytes of a value. By default those of the fields of a dataclass, or of the state of any other
    object.
    """
    if dataclasses.is_dataclass(value):
        content = tuple((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    else:
        content = _state(value)
    return _several(f"object {_name(type(value))}", content, within)


def _state(value: Any) -> tuple[Any, ...]:
    """What pickle would store: a global name, or a constructor with its arguments and attributes."""
    try:
        state = value.__reduce_ex__(2)
    except Exception:  # each library refuses with errors of its own
        raise InputError(
            "a store needs inputs that it can recognise later",
            f"an object of {_name(type(value))}",
            "Use numbers, text, arrays, dataclasses or torch modules, or leave store out.",
        ) from None
    if type(state) is str:
        return (state,)
    constructor, *rest = state
    return _name(constructor), *rest


@_chunks.register(bool)
@_chunks.register(int)
@_chunks.register(float)
@_chunks.register(str)
@_chunks.register(bytes)
@_chunks.register(type(None))
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    return (_line(type(value).__name__, repr(value)),)


@_chunks.register(type)
def _(value: type, within: tuple[int, ...]) -> Iterable[Any]:
    return (_line("type", _name(value)),)


@_chunks.register(list)
@_chunks.register(tuple)
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    return _several(type(value).__name__, value, within)


@_chunks.register(set)
@_chunks.register(frozenset)
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    return _several("set", sorted(_hashed((item,), within) for item in value), within)


@_chunks.register(Mapping)
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    items = [(_hashed((k,), within), _hashed((v,), within)) for k, v in value.items()]
    return _several("mapping", sorted(items), within)


@_chunks.register(np.ndarray)
@_chunks.register(np.generic)
def _(value: Any, within: tuple[int, ...]) -> Iterable[Any]:
    if value.dtype.hasobject:
        return _several(f"objects {value.shape}", value.ravel().tolist(), within)
    array = np.ascontiguousarray(value)
    head = _line("numbers", f"{array.dtype.str} {np.shape(value)}")
    return head, array.reshape(-1).view(np.uint8).data if array.size else b""


@_chunks.register(Tensor)
def _(value: Tensor, within: tuple[int, ...]) -> Iterable[Any]:
    return _chunks(value.detach().cpu().numpy(), within)


@_chunks.register(LabeledDataset)
def _(value: LabeledDataset, within: tuple[int, ...]) -> Iterable[Any]:
    return _several("dataset", pack_dataset(value), within)


def _name(value: Any) -> str:
    """Where a class or function is found; classes of advect may move between modules."""
    module = getattr(value, "__module__", "")
    name = getattr(value, "__qualname__", type(value).__qualname__)
    ours = module is not None and module.startswith("advect.")
    return f"{'advect' if ours else module}.{name}"

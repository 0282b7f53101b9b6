"""Digests of content, the keys of stored results. Equal content has equal digests in every process."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset
from advect.errors import InputError


def digest(*parts: Any) -> str:
    """32 hexadecimal digits of the content of ``parts``. Functions are refused: their code may change."""
    import joblib

    try:
        return str(joblib.hash([_plain(part) for part in parts]))
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as error:
        raise InputError(
            "a store needs inputs that have a digest",
            str(error).splitlines()[0] if str(error) else type(error).__name__,
            "Use numbers, text, arrays, dataclasses or torch modules, or leave store out.",
        ) from None


def _plain(value: Any) -> Any:
    """A value as lists of numbers, text and arrays; other objects as they are."""
    if isinstance(value, LabeledDataset):
        return _plain(pack_dataset(value))
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, torch.nn.Module):
        attributes = {k: v for k, v in vars(value).items() if not k.startswith("_")}
        return [_name(type(value)), repr(value), _plain(value.state_dict()), _plain(attributes)]
    if isinstance(value, Mapping):
        return sorted([str(key), _plain(item)] for key, item in value.items())
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(_plain, value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return [_name(type(value)), _plain(fields)]
    if callable(value):
        raise TypeError(f"the function {_name(value)}")
    return value


def _name(value: Any) -> str:
    """Where a class or function is found; classes of advect may move between modules."""
    module = getattr(value, "__module__", "") or ""
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{'advect' if module.startswith('advect.') else module}.{name}"

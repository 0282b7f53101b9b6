"""Samples as users have them, a dataset or an array, as flat features, and back in the same form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from advect.data.coerce import as_features
from advect.data.dataset import LabeledDataset
from advect.data.formats import Table
from advect.data.spaces.columns import listed, pick
from advect.errors import InputError

Samples = TypeVar("Samples", LabeledDataset, Tensor, np.ndarray)


def read(
    data: Any, shape: tuple[int, ...], columns: tuple[str, ...] | None, what: str, hint: str
) -> Tensor:
    """The features of a dataset or an array, (n, d), with columns in the order asked for."""
    if isinstance(data, LabeledDataset):
        refuse_laws(data)
        x, given = data.x, data.sample_shape
    else:
        values = as_features(data)
        x, given = values.reshape(len(values), -1), tuple(values.shape[1:])
    names = getattr(data, "columns", None)
    if names is not None and columns is not None:
        names = tuple(map(str, names))
        if sorted(names) != sorted(columns):
            raise InputError(
                f"{what} must have the columns {listed(columns)}",
                listed(names),
                f"Rename or drop some; {hint}",
            )
        return x if names == columns else pick(x, names, columns, {})
    if given not in (shape, (math.prod(shape),)):
        raise InputError(f"{what} must have shape {shape}, one sample to a row", given, hint)
    return x


def give(
    data: Any,
    x: Tensor,
    shape: tuple[int, ...],
    columns: tuple[str, ...] | None,
    table: Callable[[Table | None], Table | None],
    dtype: torch.dtype | None = None,
) -> Any:
    """Features in the form in which they came; a dataset also says what its columns are now."""
    if isinstance(data, LabeledDataset):
        kinds = table(data.table)
        same = x is data.x and (shape, columns) == (data.sample_shape, data.columns)
        if same and kinds is data.table and dtype is None:
            return data
        moved = data.replace(x=x, sample_shape=shape, columns=columns, table=kinds)
        return moved if dtype is None else moved.to(dtype=dtype)
    samples = x.reshape(len(x), *shape)
    return samples if isinstance(data, Tensor) else samples.numpy()


def refuse_laws(data: LabeledDataset) -> None:
    if data.law is not None:
        raise InputError(
            "label laws live in the space they were made in and cannot be harmonized",
            f"a dataset with {len(data.law)} laws",
            "Harmonize before laws are attached, or drop them with .replace(law=None, "
            "law_index=None).",
        )

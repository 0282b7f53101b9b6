"""Samples and labels that come one by one or in batches, made into one array and one list.

Whose they are, and which of them are wanted, is for the other files here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from advect.data.formats.content import are_images, number_dtype, plain
from advect.data.formats.folder import convert
from advect.errors import InputError

Batch = tuple[np.ndarray, list[Any]]
_BLOCK = 1024


def as_sample(x: Any, where: str, *, picture: bool = False) -> np.ndarray:
    """One sample, or a batch, as floats; images of Pillow, and bytes of pictures, from 0 to 1."""
    if hasattr(x, "getbands") and hasattr(x, "convert"):
        try:
            x, picture = np.asarray(convert(x, None, where)), True
        except InputError as error:
            raise InputError(
                error.what, error.got, "Convert it first, as image.convert('RGB') does."
            ) from None
    elif isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).numpy()
    try:
        array = np.asarray(x)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise InputError(
            f"samples must be numbers or images in {where}",
            _described(x),
            "Convert them to arrays first.",
        )
    floats = array.astype(number_dtype(array.dtype, where))
    bright = are_images(array.dtype, array.shape, raw=not picture)
    return floats / np.float32(255) if bright else floats


def as_labels(y: Any, n: int, where: str) -> list[Any]:
    """The labels of a batch of n samples as a list."""
    shape = tuple(y.shape) if is_array(y) else (len(y),) if is_list(y) else None
    if shape is not None and are_rows(y, shape, n):
        return [Shares(row) for row in y.reshape(n, -1).tolist()]
    if shape is None or math.prod(shape) != n:
        raise InputError(
            f"labels must be one for each of the {n} samples in {where}",
            type(y).__name__ if shape is None else f"shape {shape}",
            "Turn one-hot rows to labels with argmax(1).",
        )
    return y.reshape(n).tolist() if is_array(y) else list(y)


class Shares(tuple):
    """The probabilities of classes for a sample, in place of its label."""


def are_rows(y: Any, shape: tuple[int, ...], n: int) -> bool:
    """Whether labels are rows of floating numbers, two or more for each sample."""
    rows = shape[:1] == (n,) if len(shape) == 2 else n == 1 and len(shape) == 1
    return rows and shape[-1] > 1 and is_array(y) and "float" in str(y.dtype)


def is_array(x: Any) -> bool:
    """Whether x is an array or tensor, or a scalar of one."""
    return hasattr(x, "reshape") and hasattr(x, "tolist")


def is_list(x: Any) -> bool:
    """Whether x is a list or tuple of things, and not one thing."""
    return isinstance(x, (list, tuple))


def collect(batches: Iterable[Batch], remedy: str) -> Batch:
    """All of them."""
    parts: list[np.ndarray] = []
    labels: list[Any] = []
    for x, y in _of_one_shape(batches, remedy):
        parts.append(x)
        labels += y
    return np.concatenate(parts), labels


def reservoir(
    batches: Iterable[Batch], k: int, generator: torch.Generator | None, remedy: str
) -> Batch:
    """``k`` of them, each set equally likely, in one pass and the memory of k; or all if fewer."""
    kept: list[np.ndarray] = []
    labels: list[Any] = []
    slots = _slots(k, generator)
    for x, y in _of_one_shape(batches, remedy):
        for sample, label in zip(x, y, strict=True):
            if len(kept) < k:
                kept.append(sample.copy())
                labels.append(label)
            else:
                slot = next(slots)
                if slot < k:
                    kept[slot], labels[slot] = sample.copy(), label
    return np.stack(kept), labels


def class_names(labels: Sequence[Any], classes: Sequence[Any] | None) -> list[Any]:
    """Labels by name: whole numbers are positions in ``classes``, if known, and −1 is missing."""
    if classes is None:
        return list(labels)
    names = []
    for label in map(plain, labels):
        kind = type(label)
        whole = kind in (int, bool) or (kind is float and label.is_integer())
        if whole and not -1 <= label < len(classes):
            raise InputError(
                f"labels that are whole numbers must be positions in the {len(classes)} classes",
                label,
                "Pass the classes that they count, classes=[…]; or give labels by name.",
            )
        names.append(label if not whole else None if label < 0 else classes[int(label)])
    return names


def _of_one_shape(batches: Iterable[Batch], remedy: str) -> Iterator[Batch]:
    shape, seen = None, 0
    for x, y in batches:
        shape = x.shape[1:] if shape is None else shape
        if x.shape[1:] != shape:
            raise InputError(
                "all samples must have one shape",
                f"{x.shape[1:]} in sample {seen} where the first has {shape}",
                remedy,
            )
        seen += len(x)
        yield x, y
    if not seen:
        raise InputError(
            "there must be at least one sample",
            "none",
            "Check that the dataset is not empty or used up.",
        )


def _slots(k: int, generator: torch.Generator | None) -> Iterator[int]:
    """For the samples after the first k, the place each would take among all seen so far."""
    seen = k
    while True:
        for u in torch.rand(_BLOCK, dtype=torch.float64, generator=generator).tolist():
            seen += 1
            yield int(u * seen)


def _described(x: Any) -> str:
    if hasattr(x, "dtype"):
        return f"dtype {x.dtype}"
    return repr(x)[:80] if type(x) is str else type(x).__name__

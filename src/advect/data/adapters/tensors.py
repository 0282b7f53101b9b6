"""torch's datasets and loaders, read into arrays; and back.

Rows of a dataset with positions are chosen before any is read; of one that can only be gone
through, a reservoir is kept."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from advect._util.checks import check_count
from advect._util.progress import Progress, track
from advect.data.adapters.items import (
    Batch,
    Shares,
    as_labels,
    as_sample,
    class_names,
    collect,
    is_array,
    is_list,
    reservoir,
)
from advect.data.sampling import some_rows
from advect.errors import InputError

_REMEDY = "Add a transform that brings them all to one shape."


class NamedTensors(TensorDataset):
    """Samples and positions in ``classes``, as torchvision's datasets have them."""

    def __init__(self, samples: Tensor, y: Tensor, classes: list[Hashable]) -> None:
        super().__init__(samples, y)
        self.classes = classes


@dataclass(frozen=True)
class _Wanted:
    """How many samples to take at most, drawn how, and who hears how far it is."""

    most: int | None
    generator: torch.Generator | None
    progress: Progress
    targets: bool = False

    def rows(self, n: int) -> Sequence[int]:
        """Positions among n, chosen before any sample is read."""
        return some_rows(n, self.most, self.generator)

    def of(self, batches: Iterable[Batch], total: int) -> Batch:
        """All of these samples, or a draw of them in one pass."""
        with track(total, "reading samples", self.progress) as advance:

            def counted() -> Iterator[Batch]:
                for batch in batches:
                    yield batch
                    advance(1)

            if self.most is None:
                return collect(counted(), _REMEDY)
            return reservoir(counted(), self.most, self.generator, _REMEDY)


def torch_fields(
    dataset: Any,
    max_samples: int | None,
    classes: Sequence[Hashable] | None,
    generator: torch.Generator | None,
    progress: Progress,
    probabilities: bool = False,
    *,
    targets: bool = False,
) -> dict[str, Any]:
    """Features, labels and class names of a torch dataset or loader; or features and targets."""
    if max_samples is not None:
        check_count("max_samples", max_samples)
    names = _known_classes(dataset) if classes is None else list(classes)
    x, labels = _read(dataset, _Wanted(max_samples, generator, progress, targets))
    if targets:
        return {"x": x, "targets": _numbers(labels)}
    if names is None and all(label is None for label in labels):
        return {"x": x}
    if any(type(label) is Shares for label in labels):
        if not (probabilities or _is_own(dataset)):
            raise InputError(
                "labels must be one for each sample",
                f"shape ({len(labels)}, {len(labels[0])})",
                "Turn one-hot rows to labels with argmax(1), or pass probabilities=True if rows are that.",
            )
        return {"x": x, "probabilities": np.array(labels), "classes": names}
    return {"x": x, "y": class_names(labels, names), "classes": names}


@singledispatch
def _read(dataset: Any, wanted: _Wanted) -> tuple[Any, list[Any]]:
    """Samples and labels of what has positions, or can be gone through."""
    if hasattr(dataset, "iloc"):
        raise InputError(
            "from_torch takes datasets of torch",
            type(dataset).__name__,
            "Use LabeledDataset.from_pandas.",
        )
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        rows = wanted.rows(len(dataset))
        return replace(wanted, most=None).of(_each(dataset[row] for row in rows), len(rows))
    if hasattr(dataset, "__iter__"):
        return _read_stream(dataset, wanted)
    return _refuse(dataset, wanted)


@_read.register(IterableDataset)
def _read_stream(dataset: Any, wanted: _Wanted) -> tuple[Any, list[Any]]:
    return wanted.of(_each(dataset), _length(dataset))


@_read.register
def _(dataset: DataLoader, wanted: _Wanted) -> tuple[Any, list[Any]]:
    single = dataset.batch_sampler is None  # without batches, samples come one by one
    return wanted.of(_each(dataset) if single else _of_loader(dataset), _length(dataset))


@_read.register
def _(dataset: TensorDataset, wanted: _Wanted) -> tuple[Any, list[Any]]:
    if type(dataset) not in (TensorDataset, NamedTensors):  # one that may change what it gives
        return _read.dispatch(object)(dataset, wanted)
    x, y = _pair(dataset.tensors, "the TensorDataset")
    rows = wanted.rows(len(dataset))
    if len(rows) < len(dataset):
        x, y = x[torch.as_tensor(rows)], None if y is None else y[torch.as_tensor(rows)]
    if wanted.targets and y is not None and y.ndim == 2:
        return x.detach(), y.detach().tolist()
    return x.detach(), [None] * len(x) if y is None else as_labels(y, len(x), "the TensorDataset")


@_read.register(str)
@_read.register(bytes)
@_read.register(dict)
def _refuse(dataset: Any, wanted: _Wanted) -> tuple[Any, list[Any]]:
    raise InputError(
        "from_torch takes a dataset or a loader of torch",
        type(dataset).__name__,
        "Pass an object with len() and positions, or one to iterate over; arrays go to "
        "LabeledDataset(x, y).",
    )


def _numbers(values: list[Any]) -> np.ndarray:
    """Targets of all samples."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "targets must be one number for each sample",
            f"{type(values[0]).__name__} in the first",
            "Give (x, y) with a float y; leave targets=True out for labels.",
        ) from None


def to_tensors(samples: Tensor, y: Tensor, classes: Sequence[Hashable]) -> TensorDataset:
    """Samples and positions of classes, with the names as ``classes``, as in torchvision."""
    return NamedTensors(samples.detach().clone(), y.clone(), list(classes))


def label_array(labels: Sequence[Hashable]) -> np.ndarray:
    """Labels in a plain dtype if they are of one plain kind, else as objects."""
    for kind in (bool, int, float, str):
        if all(type(label) is kind for label in labels):
            array = np.array(labels)
            # not so: huge ints, trailing zeros of text
            if array.dtype.kind in "biufU" and array.tolist() == list(labels):
                return array
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


def _of_loader(loader: DataLoader) -> Iterator[Batch]:
    for at, batch in enumerate(loader):
        where = f"batch {at}"
        x, y = _pair(batch, where)
        samples = [_one((sample,), where) for sample in x] if is_list(x) else []
        x = collect(samples, _REMEDY)[0] if is_list(x) else as_sample(x, where)
        if x.ndim == 0:
            raise InputError(
                "batches must have an axis of samples",
                f"one number in {where}",
                "Check collate_fn.",
            )
        yield x, [None] * len(x) if y is None else as_labels(y, len(x), where)


def _each(items: Iterable[Any]) -> Iterator[Batch]:
    return (_one(item, f"sample {at}") for at, item in enumerate(items))


def _one(item: Any, where: str) -> Batch:
    x, y = _pair(item, where)
    return as_sample(x, where)[None], as_labels(y, 1, where) if is_array(y) else [y]


def _pair(item: Any, where: str) -> tuple[Any, Any]:
    """x and y of an item; y is None where it has none."""
    if isinstance(item, dict):
        raise InputError(
            "items must be x or (x, y)",
            f"a dictionary with {', '.join(map(str, item))} in {where}",
            "Wrap the dataset to give pairs; LabeledDataset.from_huggingface takes those of "
            "Hugging Face.",
        )
    if not is_list(item):
        return item, None
    if len(item) not in (1, 2):
        raise InputError(
            "items must be x or (x, y)",
            f"{len(item)} parts in {where}",
            "Wrap the dataset to give pairs.",
        )
    return item[0], item[1] if len(item) == 2 else None


def _known_classes(dataset: Any) -> list[Hashable] | None:
    """The class names that a dataset has, or the one that it is a part of."""
    while dataset is not None:
        names = getattr(dataset, "classes", None)
        if names is not None and is_list(names):
            return list(names)
        dataset = getattr(dataset, "dataset", None)
    return None


def _is_own(dataset: Any) -> bool:
    """Whether a dataset is, or is a part of, one that ``to_torch`` made."""
    while dataset is not None:
        if type(dataset) is NamedTensors:
            return True
        dataset = getattr(dataset, "dataset", None)
    return False


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return 0

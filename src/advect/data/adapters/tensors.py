"""torch's datasets and loaders, read into arrays; and back.

Rows of a dataset with positions are chosen before any is read; of one that can only be gone
through, a reservoir is kept."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from advect._util.checks import check_count
from advect._util.progress import Progress, track
from advect.data.adapters.items import Batch, as_labels, as_sample, class_names, collect, reservoir
from advect.data.sampling import draw_rows
from advect.errors import InputError

_REMEDY = "Add a transform that brings them all to one shape."


def torch_fields(
    dataset: Any,
    max_samples: int | None,
    classes: Sequence[Hashable] | None,
    generator: torch.Generator | None,
    progress: Progress,
) -> dict[str, Any]:
    """Features, labels and class names of a torch dataset or loader."""
    if max_samples is not None:
        check_count("max_samples", max_samples)
    names = _known_classes(dataset) if classes is None else list(classes)
    if type(dataset) is TensorDataset:
        x, labels = _of_tensors(dataset, max_samples, generator)
    elif isinstance(dataset, DataLoader):
        x, labels = _gone_through(
            _of_loader(dataset), _length(dataset), max_samples, generator, progress
        )
    elif _has_positions(dataset):
        rows = _rows(len(dataset), max_samples, generator)
        picked = (_one(dataset[row], f"sample {row}") for row in rows)
        x, labels = _gone_through(picked, len(rows), None, generator, progress)
    elif hasattr(dataset, "__iter__") and not isinstance(dataset, (str, bytes, dict)):
        items = (_one(item, f"sample {at}") for at, item in enumerate(dataset))
        x, labels = _gone_through(items, _length(dataset), max_samples, generator, progress)
    else:
        raise InputError(
            "from_torch takes a dataset or a loader of torch",
            type(dataset).__name__,
            "Pass an object with len() and positions, or one to iterate over; arrays go to "
            "LabeledDataset(x, y).",
        )
    if names is None and all(label is None for label in labels):
        return {"x": x}
    return {"x": x, "y": class_names(labels, names), "classes": names}


def to_tensors(samples: Tensor, y: Tensor, classes: Sequence[Hashable]) -> TensorDataset:
    """Samples and positions of classes; the names go along as ``classes``, as torchvision's
    datasets have them.
    """
    dataset = TensorDataset(samples.detach().clone(), y.clone())
    dataset.classes = list(classes)  # pyright: ignore[reportAttributeAccessIssue]
    return dataset


def label_array(labels: Sequence[Hashable]) -> np.ndarray:
    """Labels in a plain dtype if they are of one plain kind, else as objects."""
    for kind in (bool, int, float, str):
        if all(type(label) is kind for label in labels):
            array = np.array(labels)
            if array.dtype.kind in "biufU" and array.tolist() == list(
                labels
            ):  # not so: huge ints, trailing zeros of text
                return array
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array


def _gone_through(
    batches: Iterator[Batch],
    total: int,
    k: int | None,
    generator: torch.Generator | None,
    progress: Progress,
) -> Batch:
    with track(total, "reading samples", progress) as advance:

        def counted() -> Iterator[Batch]:
            for batch in batches:
                yield batch
                advance(1)

        return (
            collect(counted(), _REMEDY)
            if k is None
            else reservoir(counted(), k, generator, _REMEDY)
        )


def _of_loader(loader: DataLoader) -> Iterator[Batch]:
    if loader.batch_sampler is None:  # without batches, samples come one by one
        yield from (_one(item, f"sample {at}") for at, item in enumerate(loader))
        return
    for at, batch in enumerate(loader):
        where = f"batch {at}"
        x, y = _pair(batch, where)
        x = (
            collect((_one((sample,), where) for sample in x), _REMEDY)[0]
            if isinstance(x, (list, tuple))
            else as_sample(x, where)
        )
        if x.ndim == 0:
            raise InputError(
                "batches must have an axis of samples",
                f"one number in {where}",
                "Check collate_fn.",
            )
        yield x, [None] * len(x) if y is None else as_labels(y, len(x), where)


def _one(item: Any, where: str) -> Batch:
    x, y = _pair(item, where)
    return as_sample(x, where)[None], as_labels(y, 1, where) if isinstance(
        y, (Tensor, np.ndarray)
    ) else [y]


def _pair(item: Any, where: str) -> tuple[Any, Any]:
    """x and y of an item; y is None where it has none."""
    if isinstance(item, dict):
        raise InputError(
            "items must be x or (x, y)",
            f"a dictionary with {', '.join(map(str, item))} in {where}",
            "Wrap the dataset to give pairs; LabeledDataset.from_huggingface takes those of "
            "Hugging Face.",
        )
    if not isinstance(item, (tuple, list)):
        return item, None
    if len(item) not in (1, 2):
        raise InputError(
            "items must be x or (x, y)",
            f"{len(item)} parts in {where}",
            "Wrap the dataset to give pairs.",
        )
    return item[0], item[1] if len(item) == 2 else None


def _of_tensors(
    dataset: TensorDataset, max_samples: int | None, generator: torch.Generator | None
) -> tuple[Any, list[Any]]:
    x, y = _pair(dataset.tensors, "the TensorDataset")
    rows = _rows(len(dataset), max_samples, generator)
    if len(rows) < len(dataset):
        x, y = x[torch.as_tensor(rows)], None if y is None else y[torch.as_tensor(rows)]
    return x.detach(), [None] * len(x) if y is None else as_labels(y, len(x), "the TensorDataset")


def _rows(n: int, max_samples: int | None, generator: torch.Generator | None) -> Sequence[int]:
    if max_samples is None or max_samples >= n:
        return range(n)
    return draw_rows(torch.empty(n), (), max_samples, False, generator).tolist()


def _has_positions(dataset: Any) -> bool:
    if hasattr(dataset, "iloc"):
        raise InputError(
            "from_torch takes datasets of torch",
            type(dataset).__name__,
            "Use LabeledDataset.from_pandas.",
        )
    inside = hasattr(dataset, "__getitem__") and not isinstance(
        dataset, (str, bytes, dict, IterableDataset)
    )
    return inside and hasattr(dataset, "__len__")


def _known_classes(dataset: Any) -> list[Hashable] | None:
    """The class names that a dataset has, or the one that it is a part of."""
    while dataset is not None:
        names = getattr(dataset, "classes", None)
        if isinstance(names, (list, tuple)):
            return list(names)
        dataset = getattr(dataset, "dataset", None)
    return None


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return 0

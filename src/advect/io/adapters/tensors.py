"""torch datasets and loaders as arrays; and back.

Rows of a dataset with positions are chosen before any is read. A stream is read once, and a
reservoir of its samples is kept."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from advect._util.checks import check_count
from advect._util.progress import Progress, track
from advect.data.sampling import some_rows
from advect.errors import InputError
from advect.io.formats.content import are_images, number_dtype, plain
from advect.io.formats.folder import convert

Batch = tuple[np.ndarray, list[Any]]


class NamedTensors(TensorDataset):
    """Samples and positions in ``classes``, as the datasets of torchvision have them."""

    def __init__(self, samples: Tensor, y: Tensor, classes: list[Hashable]) -> None:
        super().__init__(samples, y)
        self.classes = classes


class _Probabilities(tuple):
    """The probabilities of classes for a sample, in place of its label."""


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
    """The arguments of ``LabeledDataset`` for a torch dataset or loader."""
    if max_samples is not None:
        check_count("max_samples", max_samples)
    owners = [dataset]  # a dataset may be a part of another
    while (owner := getattr(owners[-1], "dataset", None)) is not None:
        owners.append(owner)
    known: list[Any] = [getattr(owner, "classes", None) for owner in owners]
    names = next((list(own) for own in known if type(own) in (list, tuple)), None)
    names = names if classes is None else list(classes)
    x, labels = _read(dataset, max_samples, generator, progress, targets)
    if targets:
        try:
            return {"x": x, "targets": np.array(labels, dtype=np.float64)}
        except (TypeError, ValueError):
            got, remedy = type(labels[0]).__name__, "Return (x, y) with a float y."
            raise InputError("targets must be a number for each sample", got, remedy) from None
    if names is None and all(label is None for label in labels):
        return {"x": x}
    if any(type(label) is _Probabilities for label in labels):
        if not probabilities and not any(type(owner) is NamedTensors for owner in owners):
            got = f"shape ({len(labels)}, {len(labels[0])})"
            remedy = "Use argmax(1), or probabilities=True for soft labels."
            raise InputError("labels must be one for each sample", got, remedy)
        return {"x": x, "probabilities": np.array(labels), "classes": names}
    return {"x": x, "y": by_name(labels, names), "classes": names}


def _read(
    dataset: Any,
    most: int | None,
    generator: torch.Generator | None,
    progress: Progress,
    targets: bool,
) -> tuple[Any, list[Any]]:
    """Samples and labels of a dataset with positions, a loader or a stream."""
    if type(dataset) in (str, bytes, dict) or hasattr(dataset, "iloc"):
        got, remedy = type(dataset).__name__, "Arrays go to LabeledDataset(x, y)."
        raise InputError("a torch dataset or loader is needed", got, remedy)
    if type(dataset) in (TensorDataset, NamedTensors):  # other subclasses may change their items
        x, y = _pair(dataset.tensors, "the TensorDataset")
        rows = torch.as_tensor(some_rows(len(dataset), most, generator))
        x, y = x.detach()[rows], None if y is None else y.detach()[rows]
        if y is None or (targets and y.ndim == 2):
            return x, [None] * len(x) if y is None else y.tolist()
        return x, _labels(y, len(x), "the TensorDataset")
    batches, total = None, _length(dataset)
    if isinstance(dataset, DataLoader) and dataset.batch_sampler is not None:
        batches = _of_loader(dataset)
    elif hasattr(dataset, "__getitem__") and total and not isinstance(dataset, IterableDataset):
        rows = some_rows(total, most, generator)
        items: Any = dataset
        batches, total, most = _each(items[row] for row in rows), len(rows), None
    elif hasattr(dataset, "__iter__"):
        batches = _each(dataset)
    if batches is None:
        remedy = "Pass an object with len() and positions, or an iterable."
        raise InputError("a torch dataset or loader is needed", type(dataset).__name__, remedy)
    with track(total, "reading samples", progress) as advance:
        samples, labels = _collect(batches, most, generator, advance)
    return np.stack(samples), labels


def _collect(
    batches: Iterable[Batch], most: int | None, generator: Any, advance: Any
) -> tuple[list[np.ndarray], list[Any]]:
    """All samples, or ``most`` of them, each set equally likely, in one pass."""
    samples: list[np.ndarray] = []
    labels: list[Any] = []
    seen = 0
    for x, y in batches:
        if samples and x.shape[1:] != samples[0].shape:
            got = f"{x.shape[1:]} in sample {seen} where {samples[0].shape} came first"
            raise InputError(
                "all samples must have one shape", got, "Add a transform that resizes them."
            )
        for sample, label in zip(x, y, strict=True):
            seen += 1
            if most is None or seen <= most:
                samples.append(sample.copy())
                labels.append(label)
                continue
            u = float(torch.rand((), dtype=torch.float64, generator=generator))
            if (slot := int(u * seen)) < most:
                samples[slot], labels[slot] = sample.copy(), label
        advance(1)
    if not seen:
        raise InputError("there must be at least one sample", "none", "Check the dataset.")
    return samples, labels


def as_sample(x: Any, where: str, *, picture: bool = False) -> np.ndarray:
    """A sample or batch as floats; Pillow images, and bytes of pictures, from 0 to 1."""
    if hasattr(x, "getbands") and hasattr(x, "convert"):
        x, picture = np.asarray(convert(x, None, where)), True
    elif isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).numpy()
    try:
        array = np.asarray(x)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        got = repr(x)[:80] if type(x) is str else getattr(x, "dtype", type(x).__name__)
        raise InputError(f"samples must be numbers or images in {where}", got, "Convert them.")
    floats = array.astype(number_dtype(array.dtype, where))
    bright = picture and are_images(array.dtype, array.shape)
    return floats / np.float32(255) if bright else floats


def by_name(labels: Sequence[Any], classes: Sequence[Any] | None) -> list[Any]:
    """Labels by name: whole numbers are positions in ``classes``, if known; −1 is missing."""
    if classes is None:
        return list(labels)
    names = []
    for label in map(plain, labels):
        whole = type(label) in (int, bool) or (type(label) is float and label.is_integer())
        if whole and not -1 <= label < len(classes):
            what = f"labels that are whole numbers must be positions in the {len(classes)} classes"
            raise InputError(what, label, "Pass all classes, classes=[…], or labels by name.")
        names.append(label if not whole else None if label < 0 else classes[int(label)])
    return names


def _of_loader(loader: DataLoader) -> Iterator[Batch]:
    for at, batch in enumerate(loader):
        where = f"batch {at}"
        x, y = _pair(batch, where)
        x = np.stack([as_sample(one, where) for one in x]) if type(x) in (list, tuple) else x
        x = as_sample(x, where)
        if x.ndim == 0:
            raise InputError("batches must have an axis of samples", where, "Check collate_fn.")
        yield x, [None] * len(x) if y is None else _labels(y, len(x), where)


def _each(items: Iterable[Any]) -> Iterator[Batch]:
    for at, item in enumerate(items):
        x, y = _pair(item, f"sample {at}")
        array = hasattr(y, "reshape") and hasattr(y, "tolist")
        labels = _labels(y, 1, f"sample {at}") if array else [y]
        yield as_sample(x, f"sample {at}")[None], labels


def _labels(y: Any, n: int, where: str) -> list[Any]:
    """The labels of n samples as a list."""
    array = hasattr(y, "reshape") and hasattr(y, "tolist")
    shape: tuple[int, ...] = (
        tuple(y.shape) if array else (len(y),) if type(y) in (list, tuple) else ()
    )
    soft = shape[:1] == (n,) if len(shape) == 2 else n == 1 and len(shape) == 1
    if soft and shape[len(shape) - 1] > 1 and array and "float" in str(y.dtype):
        return [_Probabilities(row) for row in y.reshape(n, -1).tolist()]
    if math.prod(shape) != n or not (shape or array):
        remedy = "Turn one-hot rows to labels with argmax(1)."
        raise InputError(f"labels must be one for each sample in {where}", f"shape {shape}", remedy)
    return y.reshape(n).tolist() if array else list(y)


def _pair(item: Any, where: str) -> tuple[Any, Any]:
    """x and y of an item; y is None where it has none."""
    if type(item) not in (list, tuple) and not isinstance(item, (dict, tuple)):
        return item, None
    if isinstance(item, dict) or len(item) not in (1, 2):
        got = f"{len(item)} parts in {where}"
        remedy = "Wrap the dataset; Hugging Face datasets go to LabeledDataset.from_huggingface."
        raise InputError("items must be x or (x, y)", got, remedy)
    return item[0], item[1] if len(item) == 2 else None


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return 0


def label_array(labels: Sequence[Hashable]) -> np.ndarray:
    """Labels in a plain dtype if they are of one plain type, else as objects."""
    for kind in (bool, int, float, str):
        if all(type(label) is kind for label in labels):
            array = np.array(labels)
            # not for huge ints, nor for text that ends in zeros
            if array.dtype.kind in "biufU" and array.tolist() == list(labels):
                return array
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array

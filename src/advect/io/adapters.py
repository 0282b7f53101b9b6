"""From torch datasets, data frames and files to the arguments of ``LabeledDataset``, and back."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from advect._util import InputError, Progress, check_count, check_known, refuse_if, track
from advect.data.sampling import Draw, some_rows
from advect.io.exchange import as_frame, split_index
from advect.io.formats.content import (
    Content,
    are_images,
    by_name,
    number_dtype,
    without_missing,
)
from advect.io.formats.folder import convert
from advect.io.formats.table import Column, check_names, data_frame, grid_names, layout

Batch = tuple[np.ndarray, list[Any]]
_FIELDS = ("classes", "columns", "table", "weights", "probabilities", "targets", "target_columns")


def source_fields(source: Content, draw: Draw, progress: Progress) -> dict[str, Any]:
    """The rows of a draw are chosen from the labels; then only these are read."""
    drawn = draw.rows(torch.from_numpy(source.codes), source.classes or ())
    rows = np.arange(len(source)) if drawn is None else drawn.numpy()
    fields = {name: getattr(source, name) for name in _FIELDS}
    if source.targets is None:
        fields["target_columns"] = None
    if source.labels is not None:
        fields["y"] = [source.labels[row] for row in rows.tolist()]
    for name in ("probabilities", "targets", "weights"):
        if fields[name] is not None:
            fields[name] = fields[name][rows]
    with track(len(rows), "reading samples", progress) as advance:
        return fields | {"x": source.read(rows, advance)}


def frame_fields(
    frame: Any,
    label: Hashable | None,
    weights: Any,
    categorical: str | None,
    probabilities: Any = None,
    target: Any = None,
    missing: str | None = None,
) -> dict[str, Any]:
    """The arguments of ``LabeledDataset`` for the rows of a data frame."""
    import narwhals as nw
    import pyarrow as pa

    from advect.io.formats.arrow import table_content

    where, labels, index = "the frame", {}, None
    frame = as_frame(frame, label, weights, target)
    if nw.dependencies.is_pandas_dataframe(frame):
        index, plain = frame.index, frame.reset_index(drop=True)
        index = None if index.equals(plain.index) else index
        frame = plain.set_axis([str(name) for name in frame.columns], axis=1)
        check_names(where, list(frame.columns))
    try:
        columns = nw.from_native(frame, eager_only=True)
        if label is not None:
            check_known("label column", str(label), columns.columns)
            labels = _frame_labels(columns[str(label)])
            columns = columns.drop(str(label))
        table, levels = split_index(columns.to_arrow().combine_chunks().unify_dictionaries())
    except TypeError:
        raise InputError(
            "a data frame of pandas, polars, Arrow, Hugging Face or AnnData is needed",
            type(frame).__name__,
            "Arrays go to LabeledDataset(x, y).",
        ) from None
    except pa.ArrowException as error:
        raise InputError(
            "features must be numbers, truth values or text", error, "Convert or drop them."
        ) from None
    is_column = type(weights) is str and (weights in table.column_names or weights != "balanced")
    roles = layout(
        where,
        table.column_names,
        label=False,
        weights=weights if is_column else False,
        target=target,
        probabilities=probabilities,
    )
    categories = _categories(table, categorical)
    options = {"categorical": categorical, "gaps": missing is not None}
    content = table_content(where, table, roles, categories=categories, **options)
    content, rows = without_missing(content, missing)
    if labels:
        labels["y"] = [labels["y"][row] for row in np.arange(len(table))[rows].tolist()]
    if content.table is not None and type(label) is str:
        content.table = replace(content.table, label=label)
    if content.probabilities is not None:
        labels.pop("classes", None)
    fields = source_fields(content, Draw(), False) | labels
    index = levels if index is None else index
    fields["index"] = None if index is None else index[rows]
    return fields if is_column else fields | {"weights": weights}


def _frame_labels(series: Any) -> dict[str, Any]:
    """Labels, None where missing, and the categories in their order."""
    pairs = zip(series.to_list(), series.is_null().to_list(), strict=True)
    fields: dict[str, Any] = {"y": [None if missing else name for name, missing in pairs]}
    if "Categorical" in str(series.dtype) or "Enum" in str(series.dtype):
        try:
            fields["classes"] = series.to_native().cat.categories.tolist()  # pandas
        except AttributeError:
            fields["classes"] = series.to_arrow().dictionary.to_pylist()
    return fields


def _categories(table: Any, categorical: str | None) -> dict[str, Column]:
    """Categorical columns and their values in order; they need ``categorical``."""
    from pyarrow import types

    categories = {}
    for field in table.schema:
        if types.is_dictionary(field.type) and not types.is_temporal(field.type.value_type):
            what, remedy = "features must be numbers", "Pass categorical='onehot'."
            refuse_if(categorical is None, what, f"column {field.name!r} of categories", remedy)
            values = table.column(field.name).chunk(0).dictionary.to_pylist()
            whole = all(type(value) is int for value in values)
            values = tuple(values if whole else map(str, values))
            categories[field.name] = Column(field.name, "category", values)
    return categories


def to_frame(content: Content, label: str | bool | None, weights: str | None) -> Any:
    """A pandas frame with columns in their original types, and labels as categories."""
    label = ((content.table and content.table.label) or "label") if label is True else label or None
    flat = len(content.shape) == 1
    names = [f"x{k}" for k in range(content.shape[0])] if flat else grid_names(content.shape)
    return data_frame(content, content.columns or names, label, weights)


class NamedTensors(TensorDataset):
    """Samples and positions in ``classes``, as the datasets of torchvision have them."""

    def __init__(self, samples: Tensor, y: Tensor, classes: list[Hashable]) -> None:
        super().__init__(samples, y)
        self.classes = classes


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
    if classes is None:
        declared: list[Any] = [getattr(owner, "classes", None) for owner in owners]
        classes = next((names for names in declared if type(names) in (list, tuple)), None)
    names = None if classes is None else list(classes)
    probabilities = probabilities or NamedTensors in map(type, owners)
    x, labels = _read(dataset, max_samples, generator, progress, targets or probabilities)
    if targets:
        try:
            return {"x": x, "targets": np.array(labels, dtype=np.float64)}
        except (TypeError, ValueError):
            raise InputError(
                "targets must be a number for each sample",
                type(labels[0]).__name__,
                "Return (x, y) with a float y.",
            ) from None
    if names is None and all(label is None for label in labels):
        return {"x": x}
    if probabilities and type(labels[0]) is list:
        return {"x": x, "probabilities": np.array(labels), "classes": names}
    return {"x": x, "y": by_name(labels, names), "classes": names}


def _read(
    dataset: Any,
    max_samples: int | None,
    generator: torch.Generator | None,
    progress: Progress,
    vectors: bool,
) -> tuple[np.ndarray, list[Any]]:
    """Samples and labels of a dataset with positions, a loader or a stream.

    Rows of a dataset with positions are chosen before any is read. A stream is read once."""
    members, total = {*dir(dataset)}, 0
    # text and frames can be iterated over, but hold no samples
    foreign = type(dataset) in (str, bytes, dict) or "iloc" in members
    refuse_if(
        foreign or not members & {"__getitem__", "__iter__"},
        "a torch dataset or loader is needed",
        type(dataset).__name__,
        "Arrays go to LabeledDataset(x, y).",
    )
    with suppress(TypeError, NotImplementedError):
        total = len(dataset)
    if isinstance(dataset, DataLoader) and dataset.batch_sampler is not None:
        batches = _batches(dataset, vectors)
    elif "__getitem__" in members and total and not isinstance(dataset, IterableDataset):
        rows = some_rows(total, max_samples, generator)
        total, max_samples = len(rows), None
        items: Any = dataset
        if type(dataset) in (TensorDataset, NamedTensors):  # subclasses may change their items
            batches = _batches([[tensor[list(rows)] for tensor in items.tensors]], vectors)
        else:
            batches = _single((items[row] for row in rows), vectors)
    else:
        batches = _single(dataset, vectors)
    with track(total, "reading samples", progress) as advance:
        samples, labels = _collect(batches, max_samples, generator, advance)
    return np.stack(samples), labels


def _collect(
    batches: Iterable[Batch], max_samples: int | None, generator: Any, advance: Any
) -> tuple[list[np.ndarray], list[Any]]:
    """All samples, or ``max_samples`` of them by reservoir sampling: each set equally likely."""
    samples: list[np.ndarray] = []
    labels: list[Any] = []
    seen = 0
    for x, y in batches:
        if samples and x.shape[1:] != samples[0].shape:
            raise InputError(
                "all samples must have one shape",
                f"{x.shape[1:]} in sample {seen} where {samples[0].shape} came first",
                "Add a transform that resizes them.",
            )
        for sample, label in zip(x, y, strict=True):
            seen += 1
            if max_samples is None or seen <= max_samples:
                samples.append(sample.copy())
                labels.append(label)
                continue
            u = float(torch.rand((), dtype=torch.float64, generator=generator))
            if (slot := int(u * seen)) < max_samples:
                samples[slot], labels[slot] = sample.copy(), label
        advance(1)
    refuse_if(not seen, "there must be at least one sample", "none", "Check the dataset.")
    return samples, labels


def _as_sample(x: Any, where: str) -> np.ndarray:
    """A sample or batch as floats; Pillow images from 0 to 1."""
    picture = hasattr(x, "getbands")
    if picture:
        x = np.asarray(convert(x, None, where))
    elif isinstance(x, Tensor):
        x = x.detach().cpu()
        x = (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).numpy()
    try:
        array = np.asarray(x)
    except ValueError:
        array = np.asarray(None)
    refuse_if(
        array.dtype.kind not in "fiub",
        f"samples must be numbers or images in {where}",
        getattr(x, "dtype", type(x).__name__),
        "Convert them.",
    )
    floats = array.astype(number_dtype(array, where))
    bright = picture and are_images(array.dtype, array.shape)
    return floats / np.float32(255) if bright else floats


def _batches(loader: Iterable[Any], vectors: bool) -> Iterator[Batch]:
    for at, batch in enumerate(loader):
        where = f"batch {at}"
        x, y = _pair(batch, where)
        if type(x) in (list, tuple):
            x = np.stack([_as_sample(sample, where) for sample in x])
        x = _as_sample(x, where)
        refuse_if(x.ndim == 0, "batches must have an axis of samples", where, "Check collate_fn.")
        yield x, [None] * len(x) if y is None else _labels(y, len(x), where, vectors)


def _single(items: Iterable[Any], vectors: bool) -> Iterator[Batch]:
    """Items as batches of one sample."""
    for at, item in enumerate(items):
        x, y = _pair(item, f"sample {at}")
        labels = _labels(y, 1, f"sample {at}", vectors) if hasattr(y, "reshape") else [y]
        yield _as_sample(x, f"sample {at}")[None], labels


def _labels(y: Any, n: int, where: str, vectors: bool) -> list[Any]:
    """The labels of n samples; with ``vectors``, each may be a list of numbers."""
    if type(y) in (list, tuple) and len(y) == n:
        return list(y)
    shape = np.shape(y)
    size = math.prod(shape)
    if vectors and size > n and size % n == 0:
        return y.reshape(n, -1).tolist()
    refuse_if(
        size != n or not hasattr(y, "reshape"),
        f"labels must be one for each sample in {where}",
        f"shape {shape}",
        "Turn one-hot rows to labels with argmax(1), or pass probabilities=True.",
    )
    return y.reshape(n).tolist()


def _pair(item: Any, where: str) -> tuple[Any, Any]:
    """x and y of an item; y is None where it has none."""
    if not isinstance(item, (list, tuple, dict)):
        return item, None
    refuse_if(
        isinstance(item, dict) or len(item) not in (1, 2),
        "items must be x or (x, y)",
        f"{len(item)} parts in {where}",
        "Pass pairs: from_torch((row['image'], row['label']) for row in dataset).",
    )
    return item[0], item[1] if len(item) == 2 else None


def label_array(labels: Sequence[Hashable]) -> np.ndarray:
    """Labels in a plain dtype if they are of one plain type, else as objects."""
    if {type(label) for label in labels} in ({bool}, {int}, {float}, {str}):
        array = np.array(labels)
        # not for huge ints, nor for text that ends in zeros
        if array.dtype.kind in "biufU" and array.tolist() == list(labels):
            return array
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array

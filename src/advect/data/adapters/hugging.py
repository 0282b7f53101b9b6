"""Datasets of Hugging Face, known by how they behave: features, names of columns, a length, rows by
slice or by list.

The library itself is never imported. Only columns that are used are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from advect._util.checks import check_known, one_or_more
from advect._util.progress import Progress, track
from advect.data.adapters.items import Batch, as_sample, class_names, collect
from advect.data.formats.content import plain
from advect.data.sampling import some_rows
from advect.errors import InputError

_STEP = 256
_REMEDY = "Resize them first with ds.map, or leave the column out."
_REFUSED: dict[type, tuple[str, str]] = {
    type(None): ("features must not be missing", "Filter these rows out with ds.filter."),
    dict: ("images must be decoded", "Cast the column to Image(decode=True)."),
    str: (
        "features must be numbers or images",
        "Pass columns=[…] or image=… without it; label=… if it holds the labels.",
    ),
}


def hugging_fields(
    ds: Any,
    image: str | None,
    label: str | bool | None,
    columns: Sequence[str] | None,
    max_samples: int | None,
    generator: torch.Generator | None,
    progress: Progress,
) -> dict[str, Any]:
    """Features, labels, class names and names of columns."""
    _check(ds)
    y = _label(ds, label)
    names, picture = _columns(ds, y, image, columns)
    used = names + ([] if y is None else [y])
    kinds = ds.features
    ds = ds.select_columns(used) if hasattr(ds, "select_columns") else ds
    rows = some_rows(len(ds), max_samples, generator)
    with track(len(rows), "reading samples", progress) as advance:

        def batches() -> Iterator[Batch]:
            for at in range(0, len(rows), _STEP):
                some = rows[at : at + _STEP]
                batch = ds[some.start : some.stop] if type(some) is range else ds[list(some)]
                cells = [_cells(batch[name], name, some, picture) for name in names]
                x = cells[0] if len(names) == 1 else _side_by_side(cells, names)
                yield x, [None] * len(x) if y is None else [plain(value) for value in batch[y]]
                advance(len(x))

        x, labels = collect(batches(), _REMEDY)
    fields: dict[str, Any] = {"x": x, "columns": names if len(names) > 1 or x.ndim == 1 else None}
    if y is None:
        return fields
    classes = getattr(kinds[y], "names", None)
    return {**fields, "y": class_names(labels, classes), "classes": classes}


def _check(ds: Any) -> None:
    if isinstance(ds, Mapping):
        raise InputError(
            "from_huggingface takes one split",
            f"splits {', '.join(map(str, ds))}",
            "Pass one: ds['train'].",
        )
    if not hasattr(ds, "features") or not hasattr(ds, "column_names") or ds.features is None:
        raise InputError(
            "from_huggingface takes a dataset of Hugging Face",
            type(ds).__name__,
            "Pass what load_dataset gives.",
        )
    if not hasattr(ds, "__len__") or not hasattr(ds, "__getitem__"):
        raise InputError(
            "from_huggingface takes datasets with positions",
            type(ds).__name__,
            "Load it without streaming=True.",
        )
    if len(ds) == 0:
        raise InputError("there must be at least one sample", "none", "Check the split.")


def _label(ds: Any, label: str | bool | None) -> str | None:
    if label is False:
        return None
    if label is not None:
        check_known("label column", label, ds.column_names)
        return str(label)
    named = [name for name in ds.column_names if hasattr(ds.features[name], "names")]
    if len(named) > 1:
        raise InputError(
            "several columns hold classes",
            ", ".join(named),
            "Name one with label=…, or pass label=False.",
        )
    return named[0] if named else "label" if "label" in ds.column_names else None


def _columns(
    ds: Any, y: str | None, image: str | None, columns: Sequence[str] | None
) -> tuple[list[str], bool]:
    """Which columns are features, and whether they are pictures."""
    if image is not None and columns is not None:
        raise InputError(
            "image and columns exclude each other",
            f"{image} and {columns}",
            "Pass the one that you mean.",
        )
    if image is not None:
        check_known("image column", image, ds.column_names)
        return [image], True
    if columns is not None:
        names = one_or_more(columns)
        for name in names:
            check_known("feature column", name, ds.column_names)
    else:
        names = [name for name in ds.column_names if name != y]
        pictures = [name for name in names if type(ds.features[name]).__name__ == "Image"]
        if len(pictures) > 1:
            raise InputError(
                "several columns hold images", ", ".join(pictures), "Name one with image=…."
            )
        names = pictures or names
    if not names or y in names or len(set(names)) < len(names):
        raise InputError(
            "there must be different columns of features",
            ", ".join(names) or "none",
            "Pass columns=[…].",
        )
    return names, all(type(ds.features[name]).__name__ == "Image" for name in names)


def _side_by_side(cells: list[np.ndarray], names: list[str]) -> np.ndarray:
    for cell, name in zip(cells, names, strict=True):
        if cell.ndim > 1:
            raise InputError(
                "several columns of features must each hold one number",
                f"shape {cell.shape[1:]} in column {name!r}",
                f"Pass columns=[{name!r}] for these alone, or leave the column out.",
            )
    return np.stack(cells, axis=1)


def _cells(values: Any, name: str, rows: Sequence[int], picture: bool) -> np.ndarray:
    """A column of some rows as (k, …) floats."""
    if all(type(value) in (bool, int, float) for value in values):
        return as_sample(np.array(values), f"column {name!r}")
    cells = []
    for row, value in zip(rows, values, strict=True):
        where = f"row {row}, column {name!r}"
        if type(value) in _REFUSED:
            what, remedy = _REFUSED[type(value)]
            got = "a dictionary" if type(value) is dict else f"{value!r:.42}"
            raise InputError(what, f"{got} in {where}", remedy)
        cell = as_sample(value, where, picture=picture)
        if cells and cell.shape != cells[0].shape:
            raise InputError(
                "all samples must have one shape",
                f"{cell.shape} in {where} where {cells[0].shape} came before",
                _REMEDY,
            )
        cells.append(cell)
    return np.stack(cells)

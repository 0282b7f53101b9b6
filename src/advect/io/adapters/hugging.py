"""Hugging Face datasets through their own API: images one by one, tables as Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from advect._util.checks import check_known, one_or_more
from advect._util.progress import Progress
from advect.data.sampling import some_rows
from advect.errors import InputError
from advect.io.adapters.dataframes import frame_fields
from advect.io.adapters.tensors import by_name, torch_fields


def hugging_fields(
    ds: Any,
    image: str | None,
    label: str | bool | None,
    columns: Sequence[str] | None,
    max_samples: int | None,
    generator: torch.Generator | None,
    progress: Progress,
) -> dict[str, Any]:
    """The arguments of ``LabeledDataset`` for one split of a Hugging Face dataset."""
    if isinstance(ds, Mapping) or not all(hasattr(ds, name) for name in ("features", "select")):
        what, remedy = "from_huggingface takes one split, not streamed", "Pass ds['train']."
        raise InputError(what, type(ds).__name__, remedy)
    y = None if label is False else label
    if label is None:
        labels = [name for name in ds.column_names if hasattr(ds.features[name], "names")]
        labels = labels or [name for name in ("label",) if name in ds.column_names]
        if len(labels) > 1:
            raise InputError("several columns hold classes", ", ".join(labels), "Pass label=….")
        y = labels[0] if labels else None
    features = [name for name in ds.column_names if name != y]
    pictures = [name for name in features if type(ds.features[name]).__name__ == "Image"]
    names = one_or_more(image) if image is not None else list(columns or pictures or features)
    for name in (*names, *([] if y is None else [y])):
        check_known("column", name, ds.column_names)
    if not names or len(ds) == 0:
        what = "a split needs samples with a column of features"
        raise InputError(what, f"{len(ds)} samples, columns {names}", "Pass columns=[…].")
    rows = some_rows(len(ds), max_samples, generator)
    ds = ds.select(rows) if len(rows) < len(ds) else ds
    classes = None if y is None else getattr(ds.features[str(y)], "names", None)
    if image is not None or names == pictures[:1]:
        pairs = _Pairs(ds, names[0], y)
        return torch_fields(pairs, None, classes, None, progress)
    if set(names) & set(pictures):
        raise InputError("several columns hold images", ", ".join(names), "Pass image=….")
    table = ds.select_columns(names + ([] if y is None else [y])).with_format("arrow")[:]
    fields = frame_fields(table, y, None, None)
    return fields | ({} if y is None else {"y": by_name(fields["y"], classes), "classes": classes})


class _Pairs:
    """Images and labels by position."""

    def __init__(self, ds: Any, image: str, label: Any) -> None:
        self._ds, self._image, self._label = ds, image, label

    def __len__(self) -> int:
        return len(self._ds)

    def __getitem__(self, row: int) -> Any:
        item = self._ds[row]
        return item[self._image], None if self._label is None else item[self._label]

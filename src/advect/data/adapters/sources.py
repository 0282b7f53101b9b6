"""Files that are open for reading: the rows of a draw are chosen from the labels, then only these
are read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from advect._util.checks import check_weights
from advect._util.progress import Progress, track
from advect.data.formats import Source
from advect.data.sampling import Draw


def source_fields(source: Source, draw: Draw, progress: Progress) -> dict[str, Any]:
    """The same as reading everything and drawing then, but for the memory."""
    rows = draw.rows(_codes(source), source.classes or ())
    read, back = (None, None) if rows is None else torch.unique(rows, return_inverse=True)
    with track(len(source) if read is None else len(read), "reading samples", progress) as advance:
        x = source.read(None if read is None else read.numpy(), advance)
    labels, weights = source.labels, source.weights
    probabilities = getattr(
        source, "probabilities", None
    )  # a reader of one's own may not know them
    targets = getattr(source, "targets", None)  # formats of one's own may not know of any
    if rows is not None and back is not None:
        x = x[back.numpy()]
        labels = None if labels is None else [labels[row] for row in rows.tolist()]
        probabilities = None if probabilities is None else probabilities[rows.numpy()]
        targets = None if targets is None else targets[rows.numpy()]
        if weights is not None:  # scaled first, as the weights of the whole dataset would be
            weights = check_weights("weights", torch.as_tensor(weights).double(), len(source))[rows]
    return {
        "x": x,
        "y": labels,
        "targets": targets,
        "target_columns": None if targets is None else source.target_columns,
        "weights": weights,
        "classes": source.classes,
        "columns": source.columns,
        "table": source.table,
        "probabilities": probabilities,
    }


def _codes(source: Source) -> Tensor:
    if source.labels is None:
        return torch.full((len(source),), -1)
    position: dict[Any, int] = {None: -1}
    position |= {name: code for code, name in enumerate(source.classes or ())}
    return torch.tensor([position[label] for label in source.labels])

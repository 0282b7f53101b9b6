"""From torch datasets, data frames, Hugging Face datasets and files to the arguments of
``LabeledDataset``, and back."""

from typing import Any

import torch

from advect._util.checks import check_weights
from advect._util.progress import Progress, track
from advect.data.sampling import Draw
from advect.io.adapters.dataframes import frame_fields as frame_fields, to_frame as to_frame
from advect.io.adapters.hugging import hugging_fields as hugging_fields
from advect.io.adapters.tensors import (
    NamedTensors as NamedTensors,
    label_array as label_array,
    torch_fields as torch_fields,
)
from advect.io.formats import Source


def source_fields(source: Source, draw: Draw, progress: Progress) -> dict[str, Any]:
    """The rows of a draw are chosen from the labels; then only these are read."""
    rows = draw.rows(torch.from_numpy(source.codes), source.classes or ())
    read, back = (None, None) if rows is None else torch.unique(rows, return_inverse=True)
    with track(len(source) if read is None else len(read), "reading samples", progress) as advance:
        x = source.read(None if read is None else read.numpy(), advance)
    fields = {
        name: getattr(source, name)
        for name in ("classes", "columns", "table", "weights", "probabilities", "targets")
    }
    labels = source.labels
    if rows is not None and back is not None:
        x = x[back.numpy()]
        labels = None if labels is None else [labels[row] for row in rows.tolist()]
        for name in ("probabilities", "targets"):
            if fields[name] is not None:
                fields[name] = fields[name][rows.numpy()]
        if fields["weights"] is not None:  # scaled first, as those of the whole dataset
            weights = torch.as_tensor(fields["weights"]).double()
            fields["weights"] = check_weights("weights", weights, len(source))[rows]
    names = None if source.targets is None else source.target_columns
    return {"x": x, "y": labels, "target_columns": names, **fields}

"""Between what other libraries hold (torch datasets, data frames, Hugging Face datasets, files) and
plain arrays.

Ways in give the arguments of ``LabeledDataset`` as a dictionary; ways out take its tensors. What
the arrays mean is for ``advect.data.dataset``."""

from advect.data.adapters.dataframes import frame_fields, to_frame
from advect.data.adapters.hugging import hugging_fields
from advect.data.adapters.sources import source_fields
from advect.data.adapters.tensors import label_array, to_tensors, torch_fields

__all__ = [
    "frame_fields",
    "hugging_fields",
    "label_array",
    "source_fields",
    "to_frame",
    "to_tensors",
    "torch_fields",
]

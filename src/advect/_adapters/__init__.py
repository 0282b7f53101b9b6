"""Between what other libraries hold (torch datasets, data frames, Hugging Face datasets, files) and plain arrays.

Ways in give the arguments of ``LabeledDataset`` as a dictionary; ways out take its tensors. What the arrays mean is for
``advect.data``.
"""

from advect._adapters.frames import frame_fields, to_frame
from advect._adapters.hugging import hugging_fields
from advect._adapters.sources import source_fields
from advect._adapters.tensors import label_array, to_tensors, torch_fields

__all__ = ["frame_fields", "hugging_fields", "label_array", "source_fields", "to_frame", "to_tensors", "torch_fields"]

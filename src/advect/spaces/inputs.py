"""Conversions for functions that take a dataset or an array."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset


def as_dataset(data: Any) -> LabeledDataset:
    """A dataset as it is, an array (n, …) as a dataset without labels."""
    return data if isinstance(data, LabeledDataset) else LabeledDataset(data)


def in_form_of(data: Any, samples: Tensor) -> Any:
    """Samples as a tensor if ``data`` is one, otherwise as a numpy array."""
    return samples if torch.is_tensor(data) else samples.numpy()

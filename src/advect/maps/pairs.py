"""The pairs that a map is fitted on, (x_0, x_T) with labels and weights: read from what users have,
packed for files.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from advect.data.dataset import LabeledDataset
from advect.data.store import pack_dataset, unpack_dataset
from advect.errors import InputError
from advect.flows.loop import FlowResult

Pairs = tuple[LabeledDataset, LabeledDataset]


def as_pairs(start: Any, end: Any) -> Pairs:
    """The first and last states as datasets in one dtype, rows without mass left out: a flow does
    not move them.
    """
    if isinstance(start, FlowResult):
        if end is not None:
            raise InputError(
                "the result of a flow has both states in it",
                "an end as well",
                "Call fit(result), or fit(start, end).",
            )
        first, last = start.source, start.dataset
    elif end is None:
        raise InputError(
            "a map is fitted on a FlowResult or on two states",
            f"one {type(start).__name__}",
            "Call fit(result) with what ad.flow returned, or fit(start, end).",
        )
    else:
        first, last = (
            data if isinstance(data, LabeledDataset) else LabeledDataset(data)
            for data in (start, end)
        )
    if len(first) != len(last) or first.sample_shape != last.sample_shape:
        raise InputError(
            "start and end must be the same particles, row by row",
            f"{len(first)} of shape {first.sample_shape} and {len(last)} of shape "
            f"{last.sample_shape}",
            "Pass the first and the last state of one flow.",
        )
    if first.x.device != last.x.device:
        raise InputError(
            "start and end must be on one device",
            f"{first.x.device} and {last.x.device}",
            "Move one with .to(device).",
        )
    dtype = torch.promote_types(first.x.dtype, last.x.dtype)
    massive = first.weights > 0
    return _plain(first, massive, dtype), _plain(
        last.replace(weights=first.weights), massive, dtype
    )


def _plain(data: LabeledDataset, rows: Tensor, dtype: torch.dtype) -> LabeledDataset:
    """These rows, with the classes that they have and without carried laws."""
    data = data.replace(x=data.x.detach(), law=None, law_index=None, fixed_laws=False).subset(rows)
    present = [code for code, count in enumerate(data.counts.values()) if count]
    # the last entry is for missing labels
    position = torch.full((len(data.classes) + 1,), -1, device=data.y.device)
    position[present] = torch.arange(len(present), device=data.y.device)
    return data.replace(
        x=data.x.to(dtype),
        y=position[data.y],
        classes=tuple(data.classes[code] for code in present),
    )


def pack_pairs(
    start: LabeledDataset, end: LabeledDataset
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Both states as tensors and facts."""
    (first, first_facts), (last, last_facts) = pack_dataset(start), pack_dataset(end)
    tensors = {f"start.{name}": value for name, value in first.items()}
    tensors |= {f"end.{name}": value for name, value in last.items() if name != "weights"}
    return tensors, {"start": first_facts, "end": last_facts}


def unpack_pairs(
    tensors: dict[str, Tensor], facts: dict[str, Any], shape: tuple[int, ...] | None
) -> Pairs:
    """What ``pack_pairs`` packed, checked: n rows of this shape, finite, with weights, and with
    labels among the classes.
    """
    weights = tensors["start.weights"]
    states = []
    for side in ("start", "end"):
        data = unpack_dataset(
            {"x": tensors[f"{side}.x"], "y": tensors[f"{side}.y"], "weights": weights}, facts[side]
        )
        fits = (
            data.x.is_floating_point()
            and data.y.dtype == torch.int64
            and weights.dtype == torch.float64
        )
        if (
            not fits
            or not data.y.shape == weights.shape == (len(data),)
            or not bool((weights > 0).all())
        ):
            raise ValueError(f"the {side} of the pairs does not fit together")
        if data.sample_shape != shape:
            raise ValueError(f"the {side} of the pairs has samples of shape {data.sample_shape}")
        if int(data.y.min()) < -1 or int(data.y.max()) >= len(data.classes):
            raise ValueError(f"labels of the {side} are not among its classes")
        states.append(data)
    start, end = states
    if start.x.shape != end.x.shape or start.x.dtype != end.x.dtype:
        raise ValueError("start and end are not the same particles")
    return start, end

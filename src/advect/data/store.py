"""Datasets and states on disk: safetensors files, written whole or not at all, and never unpickled.

A file is written beside its place, flushed to the disk and renamed: a process killed at any moment
loses at most what it was writing. A checksum covers all that a file says, so that damage is found;
it is no seal against those who mean harm."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from advect._util.atomic import write_atomically
from advect.data.class_names import pack_any, unpack_name
from advect.data.dataset import LabeledDataset
from advect.data.laws import Covariance, Gaussians
from advect.data.sampling import BY_ROW
from advect.errors import InputError
from advect.io.formats import Table

_ENTRY = "advect"  # of the header, where checksum and facts stand


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """A safetensors file: tensors, and facts as JSON; the same content gives the same bytes."""
    ready = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    text = json.dumps(facts)
    # One entry: several would come in another order each time.
    write_atomically(path, save(ready, metadata={_ENTRY: f"{_checksum(ready, text)} {text}"}))


def read_tensors(
    path: Path, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``write_tensors`` wrote; a clear error for anything else."""
    if not path.is_file():
        raise InputError("no such file", path, "Check the path.")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
        if _ENTRY in metadata:
            checksum, _, text = metadata[_ENTRY].partition(" ")
            found = _checksum(tensors, text)
        else:  # an older file, whose checksum is of the numbers alone
            checksum, text = metadata["checksum"], metadata["facts"]
            found = _checksum_of_numbers(tensors)
        facts = json.loads(text)
    except _UNREADABLE as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None
    if found != checksum:
        raise damaged(path, "checksum")
    if type(facts) is not dict:
        raise damaged(path, "its facts are no table")
    return tensors, facts


def is_ours(path: Path) -> bool:
    """Whether a file is one of ``write_tensors``, by its header; its numbers may be damaged."""
    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except _UNREADABLE:
        return False
    return _ENTRY in metadata or metadata.keys() >= {"checksum", "facts"}


@contextmanager
def unpacking(path: Path) -> Iterator[None]:
    """Around building from a file: parts that do not fit are an error that names it."""
    try:
        yield
    except _UNREADABLE as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None


def damaged(path: Path, why: str) -> InputError:
    """The error for a file that is not what was written."""
    return InputError(
        "not a file of advect, or damaged", f"{path} ({why})", "Use another frame or checkpoint."
    )


_UNREADABLE = (
    *(SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError),
    *(RuntimeError, OverflowError),
)


def _checksum(tensors: dict[str, Tensor], facts: str) -> str:
    """Of all that a file says: facts, names, kinds and shapes of tensors, and numbers."""
    total = zlib.crc32(facts.encode())
    for name in sorted(tensors):
        total = zlib.crc32(
            f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode(), total
        )
        total = zlib.crc32(_bytes(tensors[name]), total)
    return f"{total:08x}"


def _checksum_of_numbers(tensors: dict[str, Tensor]) -> str:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(_bytes(tensors[name]), total)
    return f"{total:08x}"


def _bytes(values: Tensor) -> Any:
    return values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def pack_dataset(data: LabeledDataset) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A dataset as tensors and facts."""
    tensors = {"x": data.x, "y": data.y, "weights": data.weights}
    facts: dict[str, Any] = {
        "classes": [pack_any(name) for name in data.classes],
        "sample_shape": list(data.sample_shape),
    }
    if data.columns is not None:
        facts["columns"] = list(data.columns)
    if data.table is not None:
        facts["table"] = data.table.to_dict()
    if data.law is not None:
        covariance = data.law.covariance
        (_, first), *others = covariance.tensors().items()
        tensors |= {"law.means": data.law.means, "law.covariance": first}
        tensors |= {f"law.covariance.{name}": value for name, value in others}
        # as files have them, which digests count too: lists, and sizes of those that have none
        own = json.loads(json.dumps(covariance.facts()))
        facts["law"] = {"kind": covariance.kind, "sizes": None, **own}
    if data.law_index is not None:
        tensors["law_index"] = data.law_index
    if data.probabilities is not None:
        tensors["probabilities"] = data.probabilities
    if data.targets is not None:
        tensors["targets"] = data.targets
    if data.target_unit is not None:
        tensors["target_unit"] = data.target_unit
    if data.target_columns is not None:
        facts["target_columns"] = list(data.target_columns)
    return tensors, facts


def unpack_dataset(tensors: dict[str, Tensor], facts: dict[str, Any]) -> LabeledDataset:
    """What ``pack_dataset`` packed, bit for bit; ValueError for parts that do not fit."""
    _check_parts(tensors, facts)
    law = None
    if "law" in facts:
        law = Gaussians(tensors["law.means"], _unpack_covariance(tensors, facts["law"]))
    return LabeledDataset(tensors["x"])._replace(
        y=tensors["y"],
        weights=tensors["weights"],
        classes=tuple(unpack_name(name) for name in facts["classes"]),
        sample_shape=tuple(facts["sample_shape"]),
        columns=tuple(facts["columns"]) if "columns" in facts else None,
        table=Table.from_dict(facts["table"]) if "table" in facts else None,
        law=law,
        law_index=tensors.get("law_index"),
        probabilities=tensors.get("probabilities"),
        targets=tensors.get("targets"),
        target_columns=tuple(facts["target_columns"]) if "target_columns" in facts else None,
        target_unit=tensors.get("target_unit"),
    )


def _unpack_covariance(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Covariance:
    """Of the kind that the facts name; its first tensor has no name of its own in files."""
    stem, kind = "law.covariance.", facts["kind"]
    given = {name.removeprefix(stem): value for name, value in tensors.items() if stem in name}
    given |= {name: value for name, value in facts.items() if name != "kind" and value is not None}
    return Covariance.kinds[kind](tensors["law.covariance"], **given)


def _check_parts(tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    x, y, weights = tensors["x"], tensors["y"], tensors["weights"]
    index = tensors.get("law_index")
    laws = len(tensors["law.means"]) if index is not None else 0
    shares = tensors.get("probabilities")
    sides = facts["sample_shape"]
    fits = {
        "features": x.ndim == 2 and x.is_floating_point() and len(x) > 0,
        "sides of a sample": all(type(side) is int for side in sides)
        and math.prod(sides) == x.shape[-1],
        "labels": _are_positions(y, len(x), -1, len(facts["classes"])),
        "weights": weights.shape == (len(x),)
        and weights.is_floating_point()
        and bool((weights >= 0).all()),
        "targets": _are_targets(tensors, len(x), facts.get("target_columns")),
        "laws": index is None or _are_positions(index, len(x), -1, laws),
        "numbers of laws": all(
            value.is_floating_point() for name, value in tensors.items() if name.startswith("law.")
        ),
        "probabilities": shares is None
        or (
            shares.shape == (len(x), len(facts["classes"]))
            and shares.dtype == torch.float64
            and bool((shares >= 0).all())
        ),
        "names of classes": len({unpack_name(name) for name in facts["classes"]})
        == len(facts["classes"]),
    }
    for name, right in fits.items():
        if not right:
            raise ValueError(f"{name} do not fit the other parts")


def _are_positions(values: Tensor, n: int, least: int, end: int) -> bool:
    whole = values.shape == (n,) and values.dtype == torch.int64
    return whole and bool(((values >= least) & (values < end)).all())


def _are_targets(tensors: dict[str, Tensor], n: int, names: list[Any] | None) -> bool:
    targets, unit = tensors.get("targets"), tensors.get("target_unit")
    if targets is None:
        return names is None and unit is None
    wide = targets.ndim == 2 and len(targets) == n and targets.dtype == torch.float64
    q = targets.shape[-1]
    fits = (names is None or len(names) == q) and (unit is None or unit.shape == (q,))
    return wide and fits


def pack_rows(
    data: LabeledDataset, rows: slice, shard: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Some rows as tensors and facts; what has no rows goes with the first file."""
    tensors, facts = pack_dataset(data)
    own = {name: value[rows] for name, value in tensors.items() if name in BY_ROW}
    return (own if shard else tensors | own), facts


def join_rows(
    shards: list[tuple[dict[str, Tensor], dict[str, Any]]],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The whole dataset from what ``pack_rows`` has cut."""
    tensors, facts = shards[0]
    if len(shards) > 1:
        by_row = [name for name in tensors if name in BY_ROW]
        tensors = tensors | {n: torch.cat([part[n] for part, _ in shards]) for n in by_row}
    return tensors, facts

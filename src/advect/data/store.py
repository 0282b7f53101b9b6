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
            found = _checksum(tensors, None)
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


def _checksum(tensors: dict[str, Tensor], facts: str | None) -> str:
    """Of all that a file says: facts, names, kinds and shapes of tensors, and numbers; without facts,
    of the numbers alone."""
    total = zlib.crc32((facts or "").encode())
    for name, values in sorted(tensors.items()):
        if facts is not None:
            head = f"{name} {values.dtype} {tuple(values.shape)}"
            total = zlib.crc32(head.encode(), total)
        numbers = values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        total = zlib.crc32(numbers, total)
    return f"{total:08x}"


def pack_dataset(data: LabeledDataset) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A dataset as tensors and facts."""
    names = ("x", "y", "weights", "law_index", "probabilities", "targets", "target_unit")
    fields = {name: getattr(data, name) for name in names}
    tensors = {name: value for name, value in fields.items() if value is not None}
    facts = {
        "classes": [pack_any(name) for name in data.classes],
        "sample_shape": list(data.sample_shape),
        "columns": None if data.columns is None else list(data.columns),
        "table": None if data.table is None else data.table.to_dict(),
        "target_columns": None if data.target_columns is None else list(data.target_columns),
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    if data.law is not None:
        covariance = data.law.covariance
        (_, first), *others = covariance.tensors().items()
        tensors |= {"law.means": data.law.means, "law.covariance": first}
        tensors |= {f"law.covariance.{name}": value for name, value in others}
        # as files have them, which digests count too: lists, and sizes of those that have none
        own = json.loads(json.dumps(covariance.facts()))
        facts["law"] = {"kind": covariance.kind, "sizes": None, **own}
    return tensors, facts


def unpack_dataset(tensors: dict[str, Tensor], facts: dict[str, Any]) -> LabeledDataset:
    """What ``pack_dataset`` packed, bit for bit; ValueError for parts that do not fit."""
    _check_parts(tensors, facts)
    law = None
    if "law" in facts:
        law = Gaussians(tensors["law.means"], _unpack_covariance(tensors, facts["law"]))
    optional = ("law_index", "probabilities", "targets", "target_unit")
    names = {n: tuple(facts[n]) if n in facts else None for n in ("columns", "target_columns")}
    return LabeledDataset(tensors["x"])._replace(
        y=tensors["y"],
        weights=tensors["weights"],
        classes=tuple(unpack_name(name) for name in facts["classes"]),
        sample_shape=tuple(facts["sample_shape"]),
        table=Table.from_dict(facts["table"]) if "table" in facts else None,
        law=law,
        **names,
        **{name: tensors.get(name) for name in optional},
    )


def _unpack_covariance(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Covariance:
    """Of the kind that the facts name; its first tensor has no name of its own in files."""
    stem, kind = "law.covariance.", facts["kind"]
    given = {name.removeprefix(stem): value for name, value in tensors.items() if stem in name}
    given |= {name: value for name, value in facts.items() if name != "kind" and value is not None}
    return Covariance.kinds[kind](tensors["law.covariance"], **given)


def _check_parts(tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    x, y, weights = tensors["x"], tensors["y"], tensors["weights"]
    n, k, sides = len(x), len(facts["classes"]), facts["sample_shape"]
    index, soft = tensors.get("law_index", y), tensors.get("probabilities")
    n_laws = len(tensors["law.means"]) if "law_index" in tensors else k
    targets, unit = tensors.get("targets"), tensors.get("target_unit")
    aims = [len(part) for part in (facts.get("target_columns"), unit) if part is not None]
    wide = x.new_empty(n, 0, dtype=torch.float64) if targets is None else targets
    laws = [value for name, value in tensors.items() if name.startswith("law.")]
    fits = {
        "features": x.ndim == 2 and x.is_floating_point() and n > 0,
        "sides of a sample": all(type(side) is int for side in sides)
        and math.prod(sides) == x.shape[-1],
        "labels": _are_positions(y, n, k),
        "weights": weights.shape == (n,)
        and weights.is_floating_point()
        and bool((weights >= 0).all()),
        "targets": wide.ndim == 2
        and (len(wide), wide.dtype) == (n, torch.float64)
        and (unit is None or unit.ndim == 1)
        and all(targets is not None and count == wide.shape[1] for count in aims),
        "laws": _are_positions(index, n, n_laws),
        "numbers of laws": all(value.is_floating_point() for value in laws),
        "probabilities": soft is None
        or ((soft.shape, soft.dtype) == ((n, k), torch.float64) and bool((soft >= 0).all())),
        "names of classes": len({unpack_name(name) for name in facts["classes"]}) == k,
    }
    for name, right in fits.items():
        if not right:
            raise ValueError(f"{name} do not fit the other parts")


def _are_positions(values: Tensor, n: int, end: int) -> bool:
    """n class positions below ``end``, or −1."""
    whole = values.shape == (n,) and values.dtype == torch.int64
    return whole and bool(((values >= -1) & (values < end)).all())


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

"""Datasets and states as safetensors files, written completely or not at all, and never unpickled.

A file is written under a temporary name, flushed to the disk and renamed, so a killed process loses at most
the file that it was writing. A checksum of the whole content detects damage. It does not protect against
deliberate changes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from advect._util import InputError, check_count, refuse_if, write_atomically
from advect.data.class_names import pack_any, unpack_name
from advect.data.dataset import LabeledDataset
from advect.data.laws import Covariance, Gaussians
from advect.io.formats import Table

_ENTRY = "advect"  # of the header, for checksum and facts


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """A safetensors file: tensors, and facts as JSON; the same content gives the same bytes."""
    ready = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    text = json.dumps(facts)
    # One entry, since the order of several entries is not fixed.
    write_atomically(path, save(ready, metadata={_ENTRY: f"{_checksum(ready, text)} {text}"}))


def read_tensors(
    path: Path, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the result of ``write_tensors``; an error for any other file."""
    refuse_if(
        not path.is_file(),
        "no such file",
        path,
        "Check the path.",
    )
    with unpacking(path):
        with safe_open(path, framework="pt", device=str(device)) as file:
            checksum, _, text = file.metadata()[_ENTRY].partition(" ")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
        facts = json.loads(text)
        if checksum != _checksum(tensors, text) or type(facts) is not dict:
            raise ValueError("checksum")
    return tensors, facts


def is_ours(path: Path) -> bool:
    """Whether ``write_tensors`` wrote a file, by its header only."""
    try:
        with safe_open(path, framework="pt") as file:
            return _ENTRY in file.metadata()
    except _UNREADABLE:
        return False


@contextmanager
def unpacking(path: Path) -> Iterator[None]:
    """A context in which errors of unpacking become an error that names the file."""
    try:
        yield
    except _UNREADABLE as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from None


def damaged(path: Path, why: str) -> InputError:
    """The error for a damaged file."""
    return InputError(
        "not a file of advect, or damaged", f"{path} ({why})", "Use another frame or checkpoint."
    )


_UNREADABLE = (
    *(SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError),
    *(RuntimeError, OverflowError),
)


def _checksum(tensors: dict[str, Tensor], facts: str) -> str:
    """A checksum of the facts, and of names, kinds, shapes and numbers of the tensors."""
    total = zlib.crc32(facts.encode())
    for name, values in sorted(tensors.items()):
        total = zlib.crc32(f"{name} {values.dtype} {tuple(values.shape)}".encode(), total)
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
        # in the form of files, on which digests depend: lists, and sizes for all kinds
        own = json.loads(json.dumps(covariance.facts()))
        facts["law"] = {"kind": covariance.kind, "sizes": None, **own}
    return tensors, facts


def unpack_dataset(tensors: dict[str, Tensor], facts: dict[str, Any]) -> LabeledDataset:
    """What ``pack_dataset`` packed, bit for bit; ValueError for parts that do not fit."""
    for name in ("weights", "probabilities", "targets"):
        if tensors.get(name, tensors["weights"]).dtype != torch.float64:
            raise ValueError(f"{name} do not have float64")
    data, law = LabeledDataset(tensors["x"]), None
    if "law" in facts:
        law = Gaussians(tensors["law.means"], _unpack_covariance(tensors, facts["law"]))
    fields = {
        "x": tensors["x"],
        "y": tensors["y"],
        "weights": tensors["weights"],
        "classes": tuple(unpack_name(name) for name in facts["classes"]),
        "sample_shape": tuple(check_count("side", side) for side in facts["sample_shape"]),
        "table": Table.from_dict(facts["table"]) if "table" in facts else None,
        "law": law,
        "law_index": tensors.get("law_index"),
        "columns": tuple(facts["columns"]) if "columns" in facts else None,
        "probabilities": tensors.get("probabilities"),
        "targets": tensors.get("targets"),
        "target_columns": tuple(facts["target_columns"]) if "target_columns" in facts else None,
        "target_unit": tensors.get("target_unit"),
    }
    if data.x.dtype != tensors["x"].dtype or data.replace(**fields).y is not tensors["y"]:
        raise ValueError("features are not floating, or labels are not class positions")
    if "target_unit" in tensors and len(tensors["target_unit"]) != tensors["targets"].shape[1]:
        raise ValueError("units do not fit the targets")
    return data._replace(**fields)  # the tensors as they were written


def _unpack_covariance(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Covariance:
    """The covariance of the kind in the facts; its first tensor has no separate name in files."""
    stem, kind = "law.covariance.", facts["kind"]
    given = {name.removeprefix(stem): value for name, value in tensors.items() if stem in name}
    given |= {name: value for name, value in facts.items() if name != "kind" and value is not None}
    return Covariance.kinds[kind](tensors["law.covariance"], **given)

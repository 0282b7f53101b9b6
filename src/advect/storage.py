"""Datasets and states on disk: safetensors files, written whole or not at all, and never unpickled.

A file is written beside its place, flushed to the disk and renamed; a list of frames is an append-only text file whose complete
lines are the commit log. A process killed at any moment loses at most what it was writing.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from advect._atomic import write_atomically
from advect.data import LabeledDataset
from advect.errors import InputError
from advect.gaussians import Diagonal, Factored, Full, Gaussians

_KINDS: dict[str, tuple[Any, str]] = {
    "full": (Full, "matrices"),
    "factored": (Factored, "rows"),
    "diagonal": (Diagonal, "deviations"),
}


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """One safetensors file: named tensors, and facts as JSON in its header."""
    ready = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    write_atomically(path, save(ready, metadata={"facts": json.dumps(facts), "checksum": _checksum(ready)}))


def read_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``write_tensors`` wrote; a clear error for anything else."""
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            facts, checksum = json.loads(metadata["facts"]), metadata["checksum"]
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError:
        raise InputError("no such file", path, "Check the path.") from None
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise InputError("not a file of advect, or damaged", f"{path} ({error})", "Use another frame or checkpoint.") from None
    if _checksum(tensors) != checksum:
        raise InputError("not a file of advect, or damaged", f"{path} (checksum)", "Use another frame or checkpoint.")
    return tensors, facts


def _checksum(tensors: dict[str, Tensor]) -> str:
    """Of the numbers in a file: a disk may lose a block, which then reads as zeros."""
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(tensors[name].cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def pack_dataset(data: LabeledDataset) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A dataset as tensors and facts."""
    tensors = {"x": data.x, "y": data.y, "weights": data.weights}
    facts: dict[str, Any] = {"classes": [_pack_name(name) for name in data.classes], "sample_shape": list(data.sample_shape)}
    if data.columns is not None:
        facts["columns"] = list(data.columns)
    if data.law is not None:
        covariance = data.law.covariance
        kind = next(kind for kind, (cls, _) in _KINDS.items() if isinstance(covariance, cls))
        tensors |= {"law.means": data.law.means, "law.covariance": getattr(covariance, _KINDS[kind][1])}
        facts["law"] = {"kind": kind, "sizes": list(covariance.sizes) if isinstance(covariance, Factored) else None}
    if data.law_index is not None:
        tensors["law_index"] = data.law_index
    return tensors, facts


def unpack_dataset(tensors: dict[str, Tensor], facts: dict[str, Any]) -> LabeledDataset:
    """The dataset that ``pack_dataset`` packed, bit for bit."""
    law = None
    if "law" in facts:
        kind, values = facts["law"]["kind"], tensors["law.covariance"]
        covariance = Factored(values, tuple(facts["law"]["sizes"])) if kind == "factored" else _KINDS[kind][0](values)
        law = Gaussians(tensors["law.means"], covariance)
    return LabeledDataset(tensors["x"]).replace(
        y=tensors["y"],
        weights=tensors["weights"],
        classes=tuple(_unpack_name(name) for name in facts["classes"]),
        sample_shape=tuple(facts["sample_shape"]),
        columns=tuple(facts["columns"]) if "columns" in facts else None,
        law=law,
        law_index=tensors.get("law_index"),
    )


_BY_ROW = ("x", "y", "weights", "law_index")


def pack_rows(data: LabeledDataset, rows: slice, shard: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Some rows of a dataset as tensors and facts, for one of several files; what has no rows goes with the first."""
    tensors, facts = pack_dataset(data)
    own = {name: value[rows] for name, value in tensors.items() if name in _BY_ROW}
    return (own if shard else tensors | own), facts


def join_rows(shards: list[tuple[dict[str, Tensor], dict[str, Any]]]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The whole dataset from what ``pack_rows`` has cut."""
    tensors, facts = shards[0]
    if len(shards) > 1:
        tensors = tensors | {name: torch.cat([part[name] for part, _ in shards]) for name in tensors if name in _BY_ROW}
    return tensors, facts


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Add a record to a JSON-lines log and flush it to the disk; a torn last line of an earlier crash is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(max(0, size - 1))
            if file.read(1) != b"\n":
                file.truncate(_end_of_last_line(path))
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete records of a JSON-lines log; a torn last line is not one."""
    if not path.exists():
        return []
    whole = path.read_bytes()[: _end_of_last_line(path)]
    return [json.loads(line) for line in whole.decode().splitlines() if line.strip()]


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Drop the other records of a JSON-lines log; the log is there whole before and after."""
    before = read_lines(path)
    after = [record for record in before if wanted(record)]
    if len(after) < len(before):
        write_atomically(path, b"".join(json.dumps(record).encode() + b"\n" for record in after))


def _end_of_last_line(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def _pack_name(name: Hashable) -> Any:
    """Names as JSON; tuples become lists under a key, since JSON has none."""
    if isinstance(name, tuple):
        return {"tuple": [_pack_name(part) for part in name]}
    if name is None or isinstance(name, (str, int, float, bool)):
        return name
    return str(name)


def stored_name(name: Hashable) -> Hashable:
    """What a class name comes back as: itself, or a string for kinds that JSON does not have."""
    return _unpack_name(_pack_name(name))


def _unpack_name(name: Any) -> Hashable:
    return tuple(_unpack_name(part) for part in name["tuple"]) if isinstance(name, dict) else name

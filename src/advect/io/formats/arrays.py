"""Files of numpy, ``.npz`` archives and ``.npy`` arrays, which are never unpickled.

Large arrays of numpy that are stored uncompressed are memory-mapped, so that a few rows take little memory."""

from __future__ import annotations

import json
import math
import os
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from advect._util import InputError, atomic_file, check_known, one_or_more, refuse_if
from advect.data.class_names import pack_name, unpack_name
from advect.io.formats.content import Content, as_names, by_name, without_missing
from advect.io.formats.guard import check_size, damaged
from advect.io.formats.table import Probabilities, Table

_KIND, _TABLE = "a .npz file", "advect_table"
_LARGE = 1 << 26  # bytes of an array from which it is mapped


def read_npy(path: Path, *, missing: str | None = None) -> Content:
    """One array of features (n, …) without labels."""
    content = Content(np.load(path, mmap_mode="r", allow_pickle=False), path=path)
    return without_missing(content, missing)[0]


def read_npz(
    path: Path,
    *,
    split: str | None = None,
    probabilities: Probabilities = None,
    target: str | Sequence[str] | None = None,
    missing: str | None = None,
) -> Content:
    """Arrays ``x``, ``y``, ``weights``, ``classes``, ``columns``, ``probabilities``, ``targets``;
    or ``x_train``, ``y_train``, ``x_test``, …. Whole numbers in ``y`` that are not in ``classes``
    are positions there, −1 for a missing label. uint8 samples of two or more axes are images."""
    archive = _Archive(path)
    ends = archive.splits(split)
    x = _joined(path, [archive.array(f"x{end}", mapped=True) for end in ends])
    classes = archive.names("names" if "names" in archive else "classes")
    fields: dict[str, Any] = {"classes": classes}
    targets = ["targets"] if target is None else one_or_more(target)
    if targets != ["y"] and f"y{ends[0]}" in archive:
        labels = [name for end in ends for name in as_names(archive.array(f"y{end}"), path)]
        are_names = "names" not in archive and set(labels) - {None} <= set(classes or labels)
        fields["labels"] = labels if are_names else by_name(labels, classes)
    if targets == ["y"] or (len(targets) == 1 and targets[0] in archive):
        keys = [f"y{end}" for end in ends] if targets == ["y"] else targets
        values = np.concatenate([archive.numbers(key, 1, 2) for key in keys])
        fields["targets"] = values.reshape(len(values), -1)
        fields["target_columns"] = archive.names("target_columns")
    elif target is not None:
        fields["target_columns"] = tuple(map(str, targets))  # columns that become targets
    if ends == [""]:
        fields["weights"] = archive.array("weights") if "weights" in archive else None
        fields["columns"] = archive.names("columns")
        if _TABLE in archive:
            fields["table"] = Table.from_dict(json.loads(str(archive.array(_TABLE))))
        if probabilities is None and "probabilities" in archive:
            probabilities = "probabilities"
    if probabilities not in (None, False, [False], []):
        fields["probabilities"] = archive.numbers(str(one_or_more(probabilities)[0]), 2)
    return without_missing(Content(x, path=path, **fields), missing)[0]


def _joined(path: Path, parts: list[np.ndarray]) -> np.ndarray:
    """The samples of one split or both."""
    refuse_if(
        len({(part.shape[1:], part.dtype) for part in parts}) > 1,
        "both splits must have samples of one shape and dtype",
        " and ".join(f"{part.shape[1:]} {part.dtype}" for part in parts) + f" in {path}",
        "Read them with split='train' and split='test'.",
    )
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class _Archive:
    """The arrays of a file by name."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
        self.path = path
        self._infos = {info.filename.removesuffix(".npy"): info for info in infos}

    def __contains__(self, key: str) -> bool:
        return key in self._infos

    def splits(self, split: str | None) -> list[str]:
        """How the names of the arrays to read end."""
        content = f"{self.path} holds {', '.join(self._infos) or 'nothing'}"
        if split is not None:
            check_known("split", split, ("train", "test", "all"))
        elif "x" in self:
            return [""]
        ends = ["_train", "_test"] if split == "all" else [f"_{split or 'train'}"]
        if missing := [end for end in ends if f"x{end}" not in self]:
            raise InputError(
                f"no array 'x' or 'x{missing[0]}'",
                content,
                "Rename the arrays, or ask for another split.",
            )
        refuse_if(
            len({f"y{end}" in self for end in ends}) > 1,
            "both splits need labels, or none",
            content,
            "Read them one by one.",
        )
        return ends

    def names(self, key: str) -> tuple[Any, ...] | None:
        """Names in an array, or in JSON text as our writer stores them."""
        if key not in self:
            return None
        stored = self.array(key)
        if stored.shape:
            return tuple(as_names(stored, f"{key} of {self.path}"))
        names = json.loads(str(stored))
        if type(names) is not list:
            raise damaged(self.path, _KIND, f"{key} is not a JSON list")
        return tuple(unpack_name(name) for name in names)

    def numbers(self, key: str, *axes: int) -> np.ndarray:
        values = self.array(key)
        refuse_if(
            values.ndim not in axes or values.dtype.kind not in "fiu",
            f"{key} must be numbers with {' or '.join(map(str, axes))} axes in {self.path}",
            f"{values.shape} {values.dtype}",
            "Store plain numbers.",
        )
        return values.astype(np.float64)

    def array(self, key: str, mapped: bool = False) -> np.ndarray:
        """An array; with ``mapped``, a large one is mapped if it is stored uncompressed."""
        refuse_if(
            key not in self,
            f"no array {key!r}",
            f"{self.path} holds {', '.join(self._infos)}",
            "Store it, or name another one.",
        )
        info = self._infos[key]
        if mapped and info.compress_type == zipfile.ZIP_STORED and info.file_size >= _LARGE:
            return self._map(info)
        check_size(self.path, info.file_size)
        with np.load(self.path, allow_pickle=False) as arrays:
            return np.asarray(arrays[key])  # bytes, if it is not an array

    def _map(self, info: zipfile.ZipInfo) -> np.ndarray:
        with open(self.path, "rb") as file:
            # a local header of 30 bytes, the last four the lengths of its name and extra field
            file.seek(info.header_offset + 26)
            file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
            start = file.tell()
            is_first = npy_format.read_magic(file) == (1, 0)
            read = (
                npy_format.read_array_header_1_0 if is_first else npy_format.read_array_header_2_0
            )
            shape, is_fortran, dtype = read(file)
            offset = file.tell()
        size = math.prod(shape) * dtype.itemsize
        if offset - start + size != info.file_size or dtype.hasobject:
            raise damaged(self.path, _KIND, f"{info.filename} says {shape} {dtype}")
        return np.memmap(self.path, dtype, "r", offset, shape, "F" if is_fortran else "C")


def write_npz(path: Path, content: Content) -> None:
    """Arrays x and, if there are any, y (positions, −1 missing), classes, columns, weights, …."""
    arrays: dict[str, Any] = {"x": content.x}
    if content.labels is not None:
        names = content.classes
        arrays["y"] = content.codes
        # numpy drops trailing zeros of text
        if names and all(type(name) is str and not name.endswith("\0") for name in names):
            arrays["classes"] = np.array(names)
        else:
            arrays["names"] = np.array(json.dumps([pack_name(name) for name in names]))
    arrays |= {name: getattr(content, name) for name in ("weights", "probabilities", "targets")}
    texts = {name: getattr(content, name) for name in ("columns", "target_columns")}
    texts[_TABLE] = None if content.table is None else content.table.to_dict()
    arrays |= {k: None if v is None else np.array(json.dumps(v)) for k, v in texts.items()}
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})

"""Files of arrays: ``.npz`` archives and ``.npy`` arrays of numpy, never unpickled, and the IDX files of MNIST.

Arrays that are stored uncompressed are memory-mapped, so that a few rows take little memory. An IDX
file starts with two zero bytes, a code of its dtype, its number of axes and their sizes, most
significant byte first."""

from __future__ import annotations

import glob
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from advect._util.atomic import atomic_file
from advect._util.checks import check_known, one_or_more, refuse_if
from advect.data.class_names import pack_name, unpack_name
from advect.errors import InputError
from advect.io.formats.content import Content, as_names
from advect.io.formats.guard import (
    check_growth,
    check_regular,
    check_size,
    damaged,
    read_bytes,
    reading,
)
from advect.io.formats.table import Probabilities, Table

_KIND, _TABLE = "a .npz file", "advect_table"
_IDX = "an IDX file"
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"(?P<prefix>.*?)[-.]?images[-.]idx\d[-.]ubyte(\.gz)?", re.I)
_LONGEST_HEAD = 4 + 4 * 32  # 32 axes
_SPLITS = {"train": "train", "test": "t10k"}


def read_npy(path: Path) -> Content:
    """One array of features (n, …) without labels."""
    return Content(np.load(path, mmap_mode="r", allow_pickle=False), path=path)


def _joined(path: Path, parts: list[np.ndarray]) -> np.ndarray:
    """The samples of one split or both."""
    if len({(part.shape[1:], part.dtype) for part in parts}) > 1:
        got = " and ".join(f"{part.shape[1:]} {part.dtype}" for part in parts)
        what = "both splits must have samples of one shape and dtype"
        raise InputError(what, f"{got} in {path}", "Read them with split='train' and split='test'.")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def read_npz(
    path: Path,
    *,
    split: str | None = None,
    probabilities: Probabilities = None,
    target: str | Sequence[str] | None = None,
) -> Content:
    """Arrays ``x``, ``y``, ``weights``, ``classes``, ``columns``, ``probabilities``, ``targets``;
    or ``x_train``, ``y_train``, ``x_test``, …. Whole numbers in ``y`` that are not in ``classes``
    are positions there, −1 for a missing label. uint8 samples of two or more axes are images."""
    archive = _Archive(path)
    ends = archive.splits(split)
    x = _joined(path, [archive.member(f"x{end}") for end in ends])
    fields: dict[str, Any] = {
        "classes": archive.names("names" if "names" in archive else "classes")
    }
    targets = ["targets"] if target is None else one_or_more(target)
    if targets != ["y"] and f"y{ends[0]}" in archive:
        y = [name for end in ends for name in as_names(archive.member(f"y{end}"), path)]
        fields["labels"] = _by_name(path, y, fields["classes"], "names" in archive)
    if targets == ["y"] or (len(targets) == 1 and targets[0] in archive):
        keys = [f"y{end}" for end in ends] if targets == ["y"] else targets
        values = np.concatenate([archive.numbers(key, 1, 2) for key in keys])
        fields["targets"] = values.reshape(len(values), -1)
        fields["target_columns"] = archive.names("target_columns")
    elif target is not None:
        fields["target_columns"] = tuple(map(str, targets))  # columns that become targets
    if ends == [""]:
        fields["weights"] = archive.member("weights") if "weights" in archive else None
        fields["columns"] = archive.names("columns")
        if _TABLE in archive:
            fields["table"] = Table.from_dict(json.loads(str(archive.member(_TABLE))))
        if probabilities is None and "probabilities" in archive:
            probabilities = "probabilities"
    if probabilities not in (None, False, [False], []):
        fields["probabilities"] = archive.numbers(str(one_or_more(probabilities)[0]), 2)
    return _Stored(x, path=path, **fields)


class _Stored(Content):
    """The arrays of an archive."""

    def read(self, rows: np.ndarray | None = None, advance: Any = lambda k: None) -> np.ndarray:
        if rows is None:  # all of it: compare checksums, which a mapped array skips
            with reading(self.path, _KIND), zipfile.ZipFile(self.path) as archive:
                if bad := archive.testzip():
                    raise damaged(self.path, _KIND, f"the checksum (CRC) of {bad}")
        return super().read(rows, advance)


def _by_name(path: Path, y: list[Any], classes: Any, positions: bool) -> list[Any]:
    """Labels by name: as they are, or by their positions in ``classes``."""
    distinct = set(y) - {None}
    if classes is None or (distinct <= set(classes) and not positions):
        return y
    bad = [
        code for code in distinct if type(code) not in (int, bool) or not -1 <= code < len(classes)
    ]
    if bad:
        raise InputError(
            f"labels must be among classes, or positions in it, in {path}",
            f"{bad[0]!r} with {len(classes)} classes",
            "Store y from 0 to the number of classes, or −1.",
        )
    return [None if code is None or code < 0 else classes[code] for code in y]


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
        held = f"{self.path} holds {', '.join(self._infos) or 'nothing'}"
        if split is not None:
            check_known("split", split, ("train", "test", "all"))
        elif "x" in self:
            return [""]
        ends = ["_train", "_test"] if split == "all" else [f"_{split or 'train'}"]
        if missing := [end for end in ends if f"x{end}" not in self]:
            what = f"no array 'x' or 'x{missing[0]}'"
            raise InputError(what, held, "Rename the arrays, or ask for another split.")
        if len({f"y{end}" in self for end in ends}) > 1:
            raise InputError("both splits need labels, or none", held, "Read them one by one.")
        return ends

    def names(self, key: str) -> tuple[Any, ...] | None:
        """Names in an array, or in JSON text as our writer stores them."""
        if key not in self:
            return None
        stored = self.member(key)
        if stored.shape:
            return tuple(as_names(stored, f"{key} of {self.path}"))
        names = json.loads(str(stored))
        if type(names) is not list:
            raise damaged(self.path, _KIND, f"{key} is not a JSON list")
        return tuple(unpack_name(name) for name in names)

    def numbers(self, key: str, *axes: int) -> np.ndarray:
        values = self.member(key)
        refuse_if(
            values.ndim not in axes or values.dtype.kind not in "fiu",
            f"{key} must be numbers with {' or '.join(map(str, axes))} axes in {self.path}",
            f"{values.shape} {values.dtype}",
            "Store plain numbers.",
        )
        return values.astype(np.float64)

    def member(self, key: str) -> np.ndarray:
        """An array: mapped if it is stored, else decompressed."""
        path, info = self.path, self._infos.get(key)
        if info is None:
            held = f"{path} holds {', '.join(self._infos)}"
            raise InputError(f"no array {key!r}", held, "Store it, or name another one.")
        packed = info.compress_type == zipfile.ZIP_DEFLATED
        if not packed and info.compress_type != zipfile.ZIP_STORED:
            raise damaged(path, _KIND, f"{key} is compressed by another method than deflate")
        with zipfile.ZipFile(path) as archive, archive.open(info) as file:
            version = npy_format.read_magic(file)
            parsers = (npy_format.read_array_header_1_0, npy_format.read_array_header_2_0)
            shape, fortran, dtype = parsers[version[0] - 1](file)
            size, start = math.prod(shape) * dtype.itemsize, file.tell()
            # 1032 is the most that deflate can shrink
            wrong = start + size != info.file_size or (packed and size > 1032 * info.compress_size)
            if wrong or dtype.hasobject or min(shape, default=0) < 0:
                says = f"{key} says {shape} {dtype} in {info.file_size} bytes"
                raise damaged(path, _KIND, f"{says}, or is pickled")
            if packed or not shape or size == 0:
                check_growth(path, key, size, info.compress_size if packed else size)
                check_size(path, size)
                array = np.frombuffer(file.read(size), dtype)
                return array.reshape(shape, order="F" if fortran else "C")
        with open(path, "rb") as plain:
            plain.seek(info.header_offset)
            name, extra = struct.unpack("<26xHH", plain.read(30))
        offset = info.header_offset + 30 + name + extra + start
        return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")


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


def read_idx(path: Path, *, split: str | None = None) -> Content:
    """Images and their labels, ints; bytes are scaled to 0 … 1. Files may be compressed."""
    if split is not None:
        check_known("split", split, (*_SPLITS, "all"))
    files = [path]
    if path.is_dir():
        splits = tuple(_SPLITS) if split == "all" else (split or "train",)
        files = [_images_in(path, key) for key in splits]
    elif split is not None:
        got = f"split={split!r} of the file {path}"
        raise InputError("a split needs a directory", got, "Leave split out.")
    images = _joined(path, [_read_array(file) for file in files])
    got = f"{path} with samples of shape {images.shape[1:]}"
    refuse_if(images.ndim < 2, "not a file of images", got, "Pass the file of images.")
    labels: list[Any] = []
    for file in files:
        match = _NAME.fullmatch(file.name)
        pattern = f"{glob.escape(match['prefix'])}*labels" if match else ""
        for label_file in _find(file.parent, pattern)[:1]:
            labels += as_names(_read_array(label_file), label_file)
    return Content(images, labels or None, path=path)


def is_idx(path: Path) -> bool:
    """Whether a file is named like one of MNIST's images, or a directory holds such a file."""
    with reading(path, _IDX):
        names = os.listdir(path) if path.is_dir() else [path.name]
    return any(_NAME.fullmatch(name) for name in names)


def _find(path: Path, pattern: str) -> list[Path]:
    """The files with names like this; of two, the uncompressed one."""
    files = sorted(path.glob(f"{pattern}[-.]idx?[-.]ubyte*"), reverse=True)
    return list({file.name.removesuffix(".gz"): file for file in files}.values())


def _images_in(path: Path, split: str) -> Path:
    files = _find(path, f"*{_SPLITS[split]}*images")
    if len(files) != 1:
        got = ", ".join(file.name for file in files) or "none"
        what = (
            f"a directory must have one file of {split} images, {_SPLITS[split]}-images-idx3-ubyte"
        )
        raise InputError(what, f"{got} in {path}", "Rename the files, or name one file.")
    return files[0]


def _read_array(path: Path) -> np.ndarray:
    """The array of a file, mapped unless it is compressed."""
    check_regular(path)
    with reading(path, _IDX, ValueError):
        with open(path, "rb") as file:
            head = file.read(_LONGEST_HEAD)
        packed, size = head[:2] == b"\x1f\x8b", path.stat().st_size
        content = read_bytes(path, packed=True) if packed else b""
        if packed:
            head, size = content[:_LONGEST_HEAD], len(content)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _DTYPES or not 1 <= head[3] <= 32:
            raise damaged(path, _IDX, f"starts with {head[:4].hex(' ') or 'nothing'}")
        start = 4 + 4 * head[3]
        shape = struct.unpack(f">{head[3]}I", head[4:start])
        dtype = np.dtype(_DTYPES[head[2]])
        wanted = math.prod(shape) * dtype.itemsize
        if size - start != wanted:
            raise damaged(path, _IDX, f"says {shape}, {wanted} bytes, where {size - start} are")
        if wanted == 0:
            return np.zeros(shape, dtype)
        if packed:
            return np.frombuffer(content, dtype, offset=start).reshape(shape)
        return np.memmap(path, dtype, "r", start, shape)

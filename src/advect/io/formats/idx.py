"""MNIST's IDX files: a directory with images and labels of both splits, or a file of images.

A file starts with two zero bytes, a code of its dtype, its number of axes and their sizes, most
significant byte first."""

from __future__ import annotations

import glob
import gzip
import math
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_known
from advect.errors import InputError
from advect.io.formats.content import as_names, class_names
from advect.io.formats.guard import check_growth, check_regular, check_size, damaged, reading
from advect.io.formats.npz import ArraySource

_KIND = "an IDX file"
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"(?P<of>.*?)[-.]?images[-.]idx\d[-.]ubyte(\.gz)?", re.I)
_SPLITS = {"train": "train", "test": "t10k"}


class IdxSource(ArraySource):
    """Images and their labels, ints; bytes are scaled to 0 … 1. Files may be compressed."""

    def __init__(self, path: Path, *, split: str | None = None) -> None:
        if split is not None:
            check_known("split", split, (*_SPLITS, "all"))
        images = [path]
        if path.is_dir():
            wanted = tuple(_SPLITS) if split == "all" else (split or "train",)
            images = [_images_in(path, key) for key in wanted]
        elif split is not None:
            got = f"split={split!r} of the file {path}"
            raise InputError("a split needs a directory", got, "Leave split out.")
        super().__init__(path, [_read_idx(file) for file in images])
        if any(len(part.shape) < 2 for part in self._parts):
            got = f"{path} with samples of shape {self.shape}"
            raise InputError("not a file of images", got, "Pass the file of images.")
        labels: list[Any] = []
        for part, image in zip(self._parts, images, strict=True):
            match = _NAME.fullmatch(image.name)
            pattern = f"{glob.escape(match['of'])}*labels" if match else ""
            for file in _find(image.parent, pattern)[:1]:
                stored = _read_idx(file)
                if stored.shape != part.shape[:1]:
                    got = f"shape {stored.shape} in {file} for {len(part)} images"
                    raise InputError("images and labels must have one length", got, "Pair them.")
                labels += as_names(stored, file)
        if labels:
            self.labels, self.classes = labels, class_names(labels)
        self.check_parts()


def is_idx(path: Path) -> bool:
    """Whether a file is named like one of MNIST's images, or a directory holds such a file."""
    if not path.is_dir():
        return _NAME.fullmatch(path.name) is not None
    with reading(path, _KIND):
        return any(_NAME.fullmatch(name) for name in os.listdir(path))


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


def _read_idx(path: Path) -> np.ndarray:
    """The array of a file, mapped unless it is compressed."""
    check_regular(path)
    size = path.stat().st_size
    with reading(path, _KIND), open(path, "rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
    opened: Any = gzip.open if packed else open
    with reading(path, _KIND, ValueError), opened(path, "rb") as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _DTYPES or not 1 <= head[3] <= 32:
            raise damaged(path, _KIND, f"starts with {head.hex(' ') or 'nothing'}")
        shape = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
        dtype, start = np.dtype(_DTYPES[head[2]]), 4 + 4 * head[3]
        wanted, data = math.prod(shape) * dtype.itemsize, b""
        if packed:
            check_growth(path, "the array", wanted, size)
            check_size(path, wanted)
            data = file.read(wanted + 1)  # to the end, where the checksum is compared
        held = len(data) if packed else size - start
        if held != wanted:
            raise damaged(path, _KIND, f"says {shape}, {wanted} bytes, where {held} are")
        if packed or wanted == 0:
            return np.frombuffer(data, dtype).reshape(shape)
        return np.memmap(path, dtype, "r", start, shape)

"""MNIST's IDX files: a directory with images and labels of both splits, or a file of images.

A file starts with two zero bytes, a code of its dtype, its number of axes and their sizes, most
significant byte first."""

from __future__ import annotations

import glob
import math
import os
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np

from advect._util.checks import check_known
from advect.errors import InputError
from advect.io.formats.content import Content, as_names
from advect.io.formats.guard import check_regular, damaged, read_bytes, reading
from advect.io.formats.npz import joined

_KIND = "an IDX file"
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"(?P<prefix>.*?)[-.]?images[-.]idx\d[-.]ubyte(\.gz)?", re.I)
_LONGEST_HEAD = 4 + 4 * 32  # 32 axes
_SPLITS = {"train": "train", "test": "t10k"}


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
    images = joined(path, [_read_array(file) for file in files])
    if images.ndim < 2:
        got = f"{path} with samples of shape {images.shape[1:]}"
        raise InputError("not a file of images", got, "Pass the file of images.")
    labels: list[Any] = []
    for file in files:
        match = _NAME.fullmatch(file.name)
        pattern = f"{glob.escape(match['prefix'])}*labels" if match else ""
        for label_file in _find(file.parent, pattern)[:1]:
            labels += as_names(_read_array(label_file), label_file)
    return Content(images, labels or None, path=path)


def is_idx(path: Path) -> bool:
    """Whether a file is named like one of MNIST's images, or a directory holds such a file."""
    with reading(path, _KIND):
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
    with reading(path, _KIND, ValueError):
        with open(path, "rb") as file:
            head = file.read(_LONGEST_HEAD)
        packed, size = head[:2] == b"\x1f\x8b", path.stat().st_size
        content = read_bytes(path, packed=True) if packed else b""
        if packed:
            head, size = content[:_LONGEST_HEAD], len(content)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _DTYPES or not 1 <= head[3] <= 32:
            raise damaged(path, _KIND, f"starts with {head[:4].hex(' ') or 'nothing'}")
        start = 4 + 4 * head[3]
        shape = struct.unpack(f">{head[3]}I", head[4:start])
        dtype = np.dtype(_DTYPES[head[2]])
        wanted = math.prod(shape) * dtype.itemsize
        if size - start != wanted:
            raise damaged(path, _KIND, f"says {shape}, {wanted} bytes, where {size - start} are")
        if wanted == 0:
            return np.zeros(shape, dtype)
        if packed:
            return np.frombuffer(content, dtype, offset=start).reshape(shape)
        return np.memmap(path, dtype, "r", start, shape)

"""MNIST's IDX files: a directory with images and labels of both splits, or a file of images with
its labels beside it.

A file starts with two zero bytes, a code of its dtype, its number of axes and their sizes, most
significant byte first."""

from __future__ import annotations

import gzip
import os
import re
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from advect._util.checks import check_known
from advect.data.formats.content import as_names, class_names
from advect.data.formats.guard import check_regular, damaged, reading
from advect.data.formats.stored import Stored, StoredSource, check_parts
from advect.errors import InputError

_KIND = "an IDX file"
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NAME = re.compile(r"(?P<of>.*)(?P<what>images|labels)[-.]idx\d[-.]ubyte(\.gz)?", re.IGNORECASE)
_SPLITS = {"train": ("train",), "test": ("t10k", "test")}


class IdxSource(StoredSource):
    """Images and their labels, ints; bytes are scaled to 0 … 1. Files may be compressed, whatever
    they are called.

    Args:
        path: a directory with files such as ``train-images-idx3-ubyte.gz`` and
            ``train-labels-idx1-ubyte.gz``, or a file of images; without a file of labels beside it
            there are none.
        split: for a directory: ``"train"`` (the default), ``"test"`` or ``"all"``.
        raw: keep the values of images of bytes.

    Raises:
        InputError: files that cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     header = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2])
        ...     _ = Path(folder, "train-images-idx3-ubyte").write_bytes(header + bytes([0, 255]))
        ...     _ = Path(folder, "train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]))
        ...     source = IdxSource(Path(folder))
        ...     print(source.labels, source.read().tolist())
        [7] [[[0.0, 1.0]]]
    """

    def __init__(self, path: Path, *, split: str | None = None, raw: bool = False) -> None:
        self._raw = raw
        if split is not None:
            check_known("split", split, (*_SPLITS, "all"))
        if path.is_dir():
            pairs = _in_directory(path, split)
        elif split is not None:
            raise InputError(
                "a split is asked of a directory",
                f"split={split!r} of the file {path}",
                "Leave split out.",
            )
        else:
            pairs = [(path, _labels_beside(path))]
        self._parts = [_open_idx(images) for images, _ in pairs]
        for part in self._parts:
            if len(part.shape) < 2:
                raise InputError(
                    "not a file of images",
                    f"{part.path} with shape {part.shape}",
                    "Give the file of images.",
                )
        check_parts(self._parts)
        labels: list[Any] = []
        for part, (_, beside) in zip(self._parts, pairs, strict=True):
            if beside is not None:
                labels += _read_labels(beside, part)
        if labels and len(labels) != len(self):
            raise InputError(
                "both splits need labels, or none",
                f"{len(labels)} in {path}",
                "Read the splits one by one.",
            )
        if labels:
            self.labels, self.classes = labels, class_names(labels)


def is_idx(path: Path) -> bool:
    """Whether a file is called like one of MNIST's, or a directory holds such a file."""
    if not path.is_dir():
        return _NAME.fullmatch(path.name) is not None
    with reading(path, _KIND):
        return any(_NAME.fullmatch(name) for name in os.listdir(path))


def _in_directory(path: Path, split: str | None) -> list[tuple[Path, Path | None]]:
    """Files of images and of labels, for one split or for two."""
    with reading(path, "a directory of IDX files"):
        # plain ones first: they are faster
        names = sorted(os.listdir(path), key=lambda name: (name.endswith(".gz"), name))
    found: dict[str, list[tuple[str, str]]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match and match["what"].lower() == "images":
            for key, words in _SPLITS.items():
                if match["of"].rstrip("-.").lower().endswith(words) and match["of"] not in dict(
                    found.get(key, [])
                ):
                    found.setdefault(key, []).append((match["of"], name))
    if split is None and found:
        split = "train" if "train" in found else "test"
    pairs = []
    for key in _SPLITS if split == "all" else (split,):
        files = found.get(key or "", [])
        if not files:
            raise InputError(
                f"no images of the split {key!r} in {path}" if key else f"no IDX images in {path}",
                ", ".join(names[:8]) or "an empty directory",
                f"Files are called {_SPLITS.get(key or 'train', ('train',))[0]}-images-idx3-ubyte, "
                "perhaps with .gz.",
            )
        if len(files) > 1:
            raise InputError(
                f"several sets of IDX files in {path}",
                ", ".join(f for _, f in files),
                "Give the path of one file.",
            )
        pairs.append((path / files[0][1], _labels_beside(path / files[0][1])))
    return pairs


def _labels_beside(path: Path) -> Path | None:
    match = _NAME.fullmatch(path.name)
    if match is None or match["what"].lower() == "labels" or not path.parent.is_dir():
        return None
    others = sorted(os.listdir(path.parent), key=lambda name: name.endswith(".gz"))
    for name in others:
        other = _NAME.fullmatch(name)
        same = other is not None and other["of"].rstrip("-.") == match["of"].rstrip("-.")
        if other is not None and same and other["what"].lower() == "labels":
            return path.parent / name
    return None


def _read_labels(path: Path, images: Stored) -> list[Any]:
    stored = _open_idx(path)
    if stored.shape != (images.shape[0],):
        raise InputError(
            "images and labels must have the same length",
            f"shape {stored.shape} in {path}, {images.shape[0]} images in {images.path}",
            "Use the labels that belong to these images.",
        )
    return as_names(stored.whole(), path)


def _open_idx(path: Path) -> Stored:
    check_regular(path)
    with reading(path, _KIND), open(path, "rb") as plain:
        size = os.fstat(plain.fileno()).st_size
        packed = plain.read(2) == b"\x1f\x8b"
    opened = partial(_unpacked, path) if packed else partial(open, path, "rb")
    with reading(path, _KIND), opened() as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _DTYPES or not 1 <= head[3] <= 32:
            wanted = "00 00, a dtype and a number of axes"
            why = f"starts with {head.hex(' ') or 'nothing'} instead of {wanted}"
            raise damaged(path, _KIND, why)
        shape = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
    stored = Stored(path, _KIND, "the array", np.dtype(_DTYPES[head[2]]), shape, 4 + 4 * head[3])
    if packed:
        stored.check_ratio(size)
        return replace(stored, stream=cast(Any, opened))
    stored.check_length(size)
    return replace(stored, place=stored.start)


def _unpacked(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb"))

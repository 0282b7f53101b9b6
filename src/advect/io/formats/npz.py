"""numpy's files, never unpickled: ``.npz`` archives of named arrays, and single ``.npy`` arrays.

Arrays that are stored uncompressed are memory-mapped, so that a few rows take little memory."""

from __future__ import annotations

import json
import math
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from advect._util.atomic import atomic_file
from advect._util.checks import check_known, one_or_more
from advect.errors import InputError
from advect.io.formats.content import (
    Content,
    Source,
    are_images,
    as_names,
    class_names,
    number_dtype,
)
from advect.io.formats.guard import check_growth, check_size, damaged, reading
from advect.io.formats.kinds import EXACT, Table
from advect.io.formats.names import pack_name, unpack_name
from advect.io.formats.table import Probabilities

CHUNK = 1 << 22  # bytes of a block
_KIND, _TABLE = "a .npz file", "advect_table"


class ArraySource(Source):
    """Features in arrays that follow one another; bytes of images are scaled to 0 … 1."""

    def __init__(self, path: Path, parts: list[np.ndarray]) -> None:
        self.path, self._parts, first = path, parts, parts[0]
        self.dtype, self.shape = number_dtype(first.dtype, path), first.shape[1:] or (1,)
        for part in parts:
            if part.size == 0 or part.ndim == 0:
                got = f"shape {part.shape} in {path}"
                raise InputError("an array must hold at least one sample", got, "Add some.")
            if (part.shape[1:], part.dtype) != (first.shape[1:], first.dtype):
                got = f"{first.shape[1:]} {first.dtype} and {part.shape[1:]} {part.dtype} in {path}"
                what = "both splits must have samples of one shape and dtype"
                raise InputError(what, got, "Read them with split='train' and split='test'.")
            if part.dtype.kind in "iu" and part.dtype.itemsize >= 4:
                if max(int(part.max()), -int(part.min())) >= EXACT[4]:
                    self.dtype = np.dtype(np.float64)

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def blocks(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        stored, first = self._parts[0].dtype, 0
        step = max(1, CHUNK // (math.prod(self.shape) * stored.itemsize))
        for part in self._parts:
            here = rows[(rows >= first) & (rows < first + len(part))] - first
            for at in range(0, len(here), step):
                numbers = part[here[at : at + step]].astype(self.dtype)
                if are_images(stored, part.shape[1:]):
                    numbers /= 255
                yield numbers.reshape(len(numbers), *self.shape)
            first += len(part)


class NpySource(ArraySource):
    """One array of features (n, …) without labels."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, [np.load(path, mmap_mode="r", allow_pickle=False)])


class NpzSource(ArraySource):
    """Arrays ``x``, ``y``, ``weights``, ``classes``, ``columns``, ``probabilities``, ``targets``;
    or ``x_train``, ``y_train``, ``x_test``, …. Whole numbers in ``y`` that are not in ``classes``
    are positions there, −1 for a missing label. uint8 samples of two or more axes are images."""

    def __init__(
        self,
        path: Path,
        *,
        split: str | None = None,
        probabilities: Probabilities = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self.path, self._infos = path, infos
        ends = self._splits(split)
        super().__init__(path, [self._member(f"x{end}") for end in ends])
        self.classes = self._names("names" if "names" in infos else "classes")
        targets = ["targets"] if target is None else one_or_more(target)
        if targets != ["y"] and f"y{ends[0]}" in infos:
            self._set_labels([self._member(f"y{end}") for end in ends])
        if targets == ["y"] or (len(targets) == 1 and targets[0] in infos):
            keys = [f"y{end}" for end in ends] if targets == ["y"] else targets
            values = np.concatenate([self._numbers(key, 1, 2) for key in keys])
            self.targets = values.reshape(len(values), -1)
            self.target_columns = self._names("target_columns")
        elif target is not None:
            self.target_columns = tuple(map(str, targets))  # columns that become targets
        if ends == [""]:
            self.weights = self._member("weights") if "weights" in infos else None
            self.columns = self._names("columns")
            if _TABLE in infos:
                self.table = Table.from_dict(json.loads(str(self._member(_TABLE))))
            if probabilities is None and "probabilities" in infos:
                probabilities = "probabilities"
        if probabilities not in (None, False, [False], []):
            soft = self._numbers(str(one_or_more(probabilities)[0]), 2)
            self.set_probabilities(soft, self.classes or tuple(range(soft.shape[1])))
        if self.labels is None:
            self.classes = None
        self.check_parts()

    def read(self, rows: np.ndarray | None = None, advance: Any = lambda k: None) -> np.ndarray:
        if rows is None:  # all of it: compare checksums, which a mapped array skips
            with reading(self.path, _KIND), zipfile.ZipFile(self.path) as archive:
                if bad := archive.testzip():
                    raise damaged(self.path, _KIND, f"the checksum (CRC) of {bad}")
        return super().read(rows, advance)

    def _splits(self, split: str | None) -> list[str]:
        """How the names of the arrays to read end."""
        held = f"{self.path} holds {', '.join(self._infos) or 'nothing'}"
        if split is not None:
            check_known("split", split, ("train", "test", "all"))
        elif "x" in self._infos:
            return [""]
        ends = ["_train", "_test"] if split == "all" else [f"_{split or 'train'}"]
        if missing := [end for end in ends if f"x{end}" not in self._infos]:
            what = f"no array 'x' or 'x{missing[0]}'"
            raise InputError(what, held, "Rename the arrays, or ask for another split.")
        if len({f"y{end}" in self._infos for end in ends}) > 1:
            raise InputError("both splits need labels, or none", held, "Read them one by one.")
        return ends

    def _set_labels(self, parts: list[np.ndarray]) -> None:
        labels = [name for part in parts for name in as_names(part, self.path)]
        distinct = set(labels) - {None}
        names = class_names(labels) if self.classes is None else self.classes
        if "names" in self._infos or not distinct <= set(names):  # positions
            bad = [y for y in distinct if type(y) not in (int, bool) or not -1 <= y < len(names)]
            if bad:
                what = f"labels must be among classes, or positions in it, in {self.path}"
                got = f"{bad[0]!r} with {len(names)} classes"
                raise InputError(what, got, "Store y from 0 to the number of classes, or −1.")
            labels = [None if y is None or y < 0 else names[y] for y in labels]
        self.labels, self.classes = labels, names

    def _names(self, key: str) -> tuple[Any, ...] | None:
        """Names in an array, or in JSON text as our writer stores them."""
        if key not in self._infos:
            return None
        stored = self._member(key)
        if stored.shape:
            return tuple(as_names(stored, f"{key} of {self.path}"))
        names = json.loads(str(stored))
        if type(names) is not list:
            raise damaged(self.path, _KIND, f"{key} is not a JSON list")
        return tuple(unpack_name(name) for name in names)

    def _numbers(self, key: str, *axes: int) -> np.ndarray:
        values = self._member(key)
        if values.ndim not in axes or values.dtype.kind not in "fiu":
            what = f"{key} must be numbers with {' or '.join(map(str, axes))} axes in {self.path}"
            raise InputError(what, f"{values.shape} {values.dtype}", "Store plain numbers.")
        return values.astype(np.float64)

    def _member(self, key: str) -> np.ndarray:
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

"""numpy's files: ``.npz`` archives of named arrays, and single ``.npy`` arrays; never unpickled.

Arrays are read straight from the archive, so that a few rows of a large file take little memory.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from advect._util.atomic import atomic_file
from advect._util.checks import check_known, one_or_more
from advect.data.formats.content import Content, as_names, check_columns, class_names
from advect.data.formats.doubt import ARRAY, Asked, check_array, keys_of, stored_names
from advect.data.formats.guard import damaged, reading
from advect.data.formats.kinds import Table
from advect.data.formats.names import pack_name, unpack_name
from advect.data.formats.stored import Stored, StoredSource, check_parts
from advect.errors import InputError

_KIND = "a .npz file"
_TABLE = "advect_table"


class NpzSource(StoredSource):
    """Arrays ``x``, ``y`` and optionally ``weights``, ``classes``, ``columns``, ``probabilities``; or ``x_train``,
    ``y_train``, ``x_test``, ….

    Whole numbers in ``y`` that are not themselves in ``classes`` are positions there, −1 for a
    missing label. uint8 samples with two or more axes are images: they are scaled to 0 … 1.

    Args:
        path: the file.
        split: ``"train"`` (the default of files that have splits), ``"test"`` or ``"all"``.
        x_key: name of the features, if it is another one.
        y_key: name of the labels; with ``x_key`` alone there are none.
        raw: keep the values of uint8 images.
        probabilities: name of an array (n, k) with the probabilities of the classes, for labels with
            doubt; None takes one called ``probabilities`` in files without splits, False none.
            Without labels they are the likeliest classes.
        target: name of the array of continuous targets, such as ``y``, or names of columns; by
            default an array called ``targets``.

    Raises:
        InputError: a file that cannot be used.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "data.npz")
        ...     np.savez(path, x_train=np.zeros((3, 2)), y_train=[0, 1, 1], x_test=np.ones((1, 2)), classes=["a", "b"])
        ...     print(NpzSource(path).labels, NpzSource(path, split="test").read().tolist())
        ['a', 'b', 'b'] [[1.0, 1.0]]
    """

    def __init__(
        self,
        path: Path,
        *,
        split: str | None = None,
        x_key: str | None = None,
        y_key: str | None = None,
        raw: bool = False,
        probabilities: Asked = None,
        target: str | Sequence[str] | None = None,
    ) -> None:
        self._raw = raw
        with reading(path, _KIND, ValueError), zipfile.ZipFile(path) as archive:
            entries = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        pairs = _pairs(path, list(entries), split, x_key, y_key)
        read = partial(_member, path, entries)
        self._parts = [read(x) for x, _ in pairs]
        check_parts(self._parts)
        n = len(self)
        if target is not None and one_or_more(target) == ["y"]:  # of the split
            self.targets = np.concatenate([_targets(read(y or "y")) for _, y in pairs])
            pairs = [(x, None) for x, _ in pairs]
        known = [y is not None and y in entries for _, y in pairs]
        if any(known):
            self.labels, self.classes = _named(
                path, entries, [read(y or "").whole() for _, y in pairs]
            )
            if len(self.labels) != n:
                raise InputError(
                    f"features and labels must have the same length in {path}",
                    f"{n} features, {len(self.labels)} labels",
                    "Store one label for each sample.",
                )
        self._read_doubt(path, entries, keys_of(probabilities), len(pairs) == 1 and split is None)
        if self.targets is None:
            self._find_targets(path, entries, target)
        if self.targets is not None and len(self.targets) != n:
            raise InputError(
                f"features and targets must have the same length in {path}",
                f"{n} features, {len(self.targets)} targets",
                "Store one target for each sample.",
            )
        if len(pairs) > 1 or x_key is not None or split is not None:
            return  # what follows is said of the whole file
        if "weights" in entries:
            self.weights = _weights(read("weights"), n)
        if "columns" in entries:
            self.columns = _columns(read("columns"), self._parts[0].shape[1:])
        if _TABLE in entries:
            self.table = _table(read(_TABLE))

    def _read_doubt(
        self, path: Path, entries: dict[str, zipfile.ZipInfo], keys: list[Any] | None, whole: bool
    ) -> None:
        """Probabilities of classes, if they are asked for or there by our own name."""
        if keys is None:
            keys = (
                [ARRAY]
                if whole and ARRAY in entries and len(_member(path, entries, ARRAY).shape) == 2
                else []
            )
        if not keys:
            return
        values = _member(path, entries, str(keys[0])).whole()
        width = values.shape[1] if values.ndim == 2 else 0
        values = check_array(values, len(self), width, path)
        classes = self.classes
        if self.labels is None and ("names" in entries or "classes" in entries):
            classes = _named(path, entries, [])[1]
        self.labels, self.classes = stored_names(path, values, self.labels, classes)
        self.probabilities = values

    def _find_targets(
        self, path: Path, entries: dict[str, zipfile.ZipInfo], target: str | Sequence[str] | None
    ) -> None:
        """The array that is asked for, or that of our own files, or columns by name."""
        names = ["targets"] if target is None else one_or_more(target)
        if len(names) == 1 and names[0] in entries:
            self.targets = _targets(_member(path, entries, names[0]))
            if names[0] == "targets" and "target_columns" in entries:
                known = _json(_member(path, entries, "target_columns"), list)
                self.target_columns = check_columns(known, self.targets.shape[1:], f" in {path}")
        elif target is not None:
            self.target_columns = tuple(map(str, names))


class NpySource(StoredSource):
    """One array of features (n, …) without labels.

    Args:
        path: the file.
        raw: keep the values of uint8 images, which are otherwise scaled to 0 … 1.

    Raises:
        InputError: a file that cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(Path(folder, "x.npy"), np.eye(3))
        ...     print(NpySource(Path(folder, "x.npy")).read(np.array([1])).tolist())
        [[0.0, 1.0, 0.0]]
    """

    def __init__(self, path: Path, *, raw: bool = False) -> None:
        self._raw = raw
        with reading(path, "a .npy file"), open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            stored = _header(path, "a .npy file", "the array", file)
        stored.check_length(size)
        check_parts([stored])
        self._parts = [replace(stored, place=stored.start)]


def write_npz(path: Path, content: Content) -> None:
    """Arrays x, and if there are any y (positions, −1 missing), classes, columns, weights."""
    arrays: dict[str, Any] = {"x": content.x}
    if content.labels is not None:
        names = content.classes or ()
        arrays["y"] = content.codes
        # numpy drops trailing zeros
        if names and all(type(name) is str and not name.endswith("\0") for name in names):
            arrays["classes"] = np.array(names)
        else:
            arrays["names"] = np.array(json.dumps([pack_name(name) for name in names]))
    if content.columns is not None:
        arrays["columns"] = np.array(json.dumps(content.columns))
    if content.weights is not None:
        arrays["weights"] = content.weights
    if content.probabilities is not None:
        arrays[ARRAY] = content.probabilities
    if content.targets is not None:
        arrays["targets"] = content.targets
    if content.target_columns is not None:
        arrays["target_columns"] = np.array(json.dumps(content.target_columns))
    if content.table is not None:
        arrays[_TABLE] = np.array(json.dumps(content.table.to_dict()))
    with atomic_file(path) as beside, open(beside, "wb") as file:
        np.savez(file, **arrays)


def _pairs(
    path: Path, keys: list[str], split: str | None, x_key: str | None, y_key: str | None
) -> list[tuple[str, str | None]]:
    """Names of features and labels, of one split or of two."""
    held = f"{path} holds {', '.join(keys) or 'nothing'}"
    if split is not None:
        check_known("split", split, ("train", "test", "all"))
    if x_key is not None or y_key is not None:
        for key in (x_key or "x", *([] if y_key is None else [y_key])):
            if key not in keys:
                raise InputError(
                    "no such array", f"{key!r} where {held}", "Pass x_key and y_key from these."
                )
        if split is not None:
            raise InputError(
                "x_key and split exclude each other", f"split={split!r}", "Leave one out."
            )
        return [(x_key or "x", y_key)]
    if split is None and "x" in keys:
        return [("x", "y")]
    wanted = ("train", "test") if split == "all" else (split or "train",)
    if not any(f"x_{name}" in keys for name in ("train", "test")):
        what = "no features called 'x'" if split is None else "no splits (x_train, x_test)"
        raise InputError(
            what,
            held,
            "Name the arrays with x_key and y_key." if split is None else "Leave split out.",
        )
    for name in wanted:
        if f"x_{name}" not in keys:
            raise InputError(f"no split {name!r} (x_{name})", held, "Ask for the other split.")
    labeled = [f"y_{name}" in keys for name in wanted]
    if any(labeled) and not all(labeled):
        raise InputError("both splits need labels, or none", held, "Read the splits one by one.")
    return [(f"x_{name}", f"y_{name}") for name in wanted]


def _named(
    path: Path, entries: dict[str, zipfile.ZipInfo], parts: list[np.ndarray]
) -> tuple[list[Any], tuple[Any, ...]]:
    labels = [name for part in parts for name in as_names(part, path)]
    if "names" in entries:
        packed = _json(_member(path, entries, "names"), list)
        with reading(path, _KIND, ValueError):
            names = tuple(unpack_name(name) for name in packed)
    elif "classes" in entries:
        names = tuple(as_names(_member(path, entries, "classes").whole(), f"classes of {path}"))
    else:
        return labels, class_names(labels)
    given = {label for label in labels if label is not None}
    if "names" not in entries and given <= set(names):
        return labels, names
    unknown = [one for one in given if type(one) not in (int, bool) or not -1 <= one < len(names)]
    if unknown:
        raise InputError(
            f"labels must be among classes, or positions in it, in {path}",
            f"{unknown[0]!r} with {len(names)} classes",
            "Store y with values from 0 to the number of classes, −1 for a missing label.",
        )
    return [None if label is None or label < 0 else names[label] for label in labels], names


def _weights(stored: Stored, n: int) -> np.ndarray:
    if stored.shape != (n,) or stored.dtype.kind not in "fiu":
        raise InputError(
            f"weights must be {n} numbers in {stored.path}",
            f"{stored.shape} {stored.dtype}",
            "Store one for each sample.",
        )
    return stored.whole()


def _targets(stored: Stored) -> np.ndarray:
    """Numbers (n, q)."""
    if len(stored.shape) not in (1, 2) or stored.dtype.kind not in "fiu":
        raise InputError(
            f"targets must be one number or vector for each sample in {stored.path}",
            f"{stored.name} of shape {stored.shape} and {stored.dtype}",
            "Store them as (n,) or (n, q) numbers.",
        )
    values = stored.whole().astype(np.float64)
    return values[:, None] if values.ndim == 1 else values


def _columns(stored: Stored, sample_shape: tuple[int, ...]) -> tuple[str, ...]:
    packed = stored.shape == ()
    names = _json(stored, list) if packed else as_names(stored.whole(), stored.path)
    return check_columns(names, sample_shape, f" in {stored.path}")


def _table(stored: Stored) -> Table:
    facts = _json(stored, dict)
    with reading(stored.path, _KIND, ValueError):
        return Table.from_dict(facts)


def _json(stored: Stored, kind: type) -> Any:
    with reading(stored.path, _KIND, ValueError):
        value = json.loads(str(stored.whole()))
    if type(value) is not kind:
        raise damaged(stored.path, _KIND, f"{stored.name} is not a JSON {kind.__name__}")
    return value


def _member(path: Path, entries: dict[str, zipfile.ZipInfo], key: str) -> Stored:
    info = entries.get(key)
    if info is None:
        raise InputError(
            f"no array {key!r}",
            f"{path} holds {', '.join(entries)}",
            "Store it, or name another one.",
        )
    if info.flag_bits & 1:
        raise InputError(
            "archives with a password cannot be read",
            f"{key} of {path}",
            "Save it with numpy.savez.",
        )
    with reading(path, _KIND, RuntimeError), _open(path, info) as file:
        stored = _header(path, _KIND, key, file)
    stored.check_length(info.file_size)
    stored = replace(stored, stream=partial(_open, path, info))
    if info.compress_type != zipfile.ZIP_STORED:
        stored.check_ratio(info.compress_size)
        return stored
    with reading(path, _KIND), open(path, "rb") as file:
        file.seek(info.header_offset)
        name, extra = struct.unpack("<26xHH", file.read(30))
        start, size = info.header_offset + 30 + name + extra, os.fstat(file.fileno()).st_size
    if start + info.file_size > size:
        raise damaged(path, _KIND, f"{key} ends after the file")
    return replace(stored, place=start + stored.start)


def _open(path: Path, info: zipfile.ZipInfo) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:  # the file is closed with the last open member
        return archive.open(info)


def _header(path: Path, kind: str, name: str, file: IO[bytes]) -> Stored:
    start = io.BytesIO(file.read(1 << 16))
    parsers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    with reading(path, kind, ValueError, TypeError, SyntaxError, KeyError, TokenError):
        version = npy_format.read_magic(start)
        if version not in parsers:
            raise damaged(path, kind, f"{name} has version {version} of the format")
        shape, fortran, dtype = parsers[version](start)
    if dtype.hasobject:
        raise InputError(
            f"{name} is pickled, and unpickling a file may run any code in it",
            f"dtype object in {path}",
            "Save it with a plain dtype: numbers for features, numbers or str for labels.",
        )
    if any(size < 0 for size in shape):
        raise damaged(path, kind, f"{name} says {shape}")
    return Stored(path, kind, name, dtype, shape, start.tell(), fortran=fortran)

"""Samples in files of common formats, as plain arrays: numpy, CSV, Parquet, folders of images,
MNIST's IDX.

Readers give labels at once and then the features of chosen rows in one pass, so that a sample of a
large file takes little memory. Writers leave a whole file or none. What the arrays mean is for
``advect.data.dataset``."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advect._util.checks import check_known
from advect.data.formats.content import Content, Source
from advect.data.formats.folder import FolderSource, write_folder
from advect.data.formats.guard import check_regular
from advect.data.formats.idx import IdxSource, is_idx
from advect.data.formats.kinds import Table
from advect.data.formats.npz import NpySource, NpzSource, write_npz
from advect.data.formats.parquet import ParquetSource, write_parquet
from advect.data.formats.text import CsvSource
from advect.data.formats.text_writer import write_csv
from advect.errors import InputError

__all__ = [
    "SUFFIXES",
    "Content",
    "Source",
    "Table",
    "kind_of",
    "open_source",
    "reader_options",
    "write",
]

_READERS: dict[str, Callable[..., Source]] = {
    "npz": NpzSource,
    "npy": NpySource,
    "csv": CsvSource,
    "parquet": ParquetSource,
    "folder": FolderSource,
    "idx": IdxSource,
}
SUFFIXES = {
    ".npz": "npz",
    ".npy": "npy",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
}
_WRITERS: dict[str, Callable[[Path, Content], None]] = {
    "npz": write_npz,
    "csv": write_csv,
    "parquet": write_parquet,
}


def open_source(path: str | os.PathLike[str], kind: str | None = None, **options: Any) -> Source:
    """A file or folder of samples, open for reading.

    uint8 features with two or more axes for each sample are taken as images and scaled to 0 … 1 in
    every format, unless ``raw=True`` is among the options.

    Args:
        path: where it is.
        kind: ``"npz"``, ``"npy"``, ``"csv"``, ``"parquet"``, ``"folder"`` or ``"idx"``; by default
            told by the suffix, and for directories by what is in them.
        **options: those of the format: split, x_key, y_key, raw (npz); raw (npy); label, weights,
            columns, header, delimiter, categorical, dtype, encoding (csv); label, weights, columns,
            categorical, dtype, raw (parquet); labels, size, channels, raw (folder); split, raw
            (idx).

    Raises:
        InputError: a path, content or option that cannot be used.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "points.csv")
        ...     _ = path.write_text("u,v,label\\n1,2,a\\n3,4,b\\n")
        ...     source = open_source(path)
        ...     print(source.labels, source.read().tolist())
        ['a', 'b'] [[1.0, 2.0], [3.0, 4.0]]
    """
    path, kind = _find(path, kind)
    known = reader_options(kind)
    for option in options:
        check_known(f"option of {kind} files", option, known)
    return _READERS[kind](path, **options)


def kind_of(path: str | os.PathLike[str]) -> str:
    """Which of the formats an existing file or folder has, told as ``open_source`` does.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(kind_of(folder))
        folder
    """
    return _find(path, None)[1]


def reader_options(kind: str) -> list[str]:
    """The options of a format.

    Example:
        >>> reader_options("npz")
        ['split', 'x_key', 'y_key', 'raw']
    """
    check_known("kind of file", kind, _READERS)
    return [name for name in inspect.signature(_READERS[kind]).parameters if name != "path"]


def write(path: str | os.PathLike[str], content: Content, *, overwrite: bool = False) -> None:
    """Write samples to a file, whole or not at all.

    Args:
        path: its suffix says the format: ``.npz``, ``.csv``, ``.tsv`` (also with ``.gz``) or
            ``.parquet``; without one it is a folder of PNG images, sorted by class. The first and
            the last but one keep everything; a table of text leaves out classes without samples, a
            folder these, weights, the order of samples and more than 8 bits.
        content: what to write.
        overwrite: an existing file or folder of images is an error, unless this is set.

    Raises:
        InputError: an unknown format, content that the format cannot hold, a place that cannot be
            written.

    Example:
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(Path(folder, "data.npz"), Content(np.eye(2), [("a", 1), None]))
        ...     print(open_source(Path(folder, "data.npz")).labels)
        [('a', 1), None]
    """
    path = as_path(path)
    suffix = _suffix(path)
    if suffix:
        check_known(
            "suffix of a file to write", suffix, [known for known in SUFFIXES if known != ".npy"]
        )
    try:
        _check_place(path, bool(suffix), overwrite)
        if suffix:
            _WRITERS[SUFFIXES[suffix]](path, content)
        else:
            write_folder(path, content, overwrite)
    except OSError as error:
        raise InputError(
            "cannot write there", f"{path} ({error.strerror or error})", "Choose another place."
        ) from error


def _find(path: str | os.PathLike[str], kind: str | None) -> tuple[Path, str]:
    place = as_path(path)
    check_regular(place)
    return place, _kind_of(place) if kind is None else kind


def _check_place(path: Path, is_file: bool, overwrite: bool) -> None:
    if path.is_dir() and is_file:
        raise InputError("a directory is in the way", path, "Choose another name.")
    if path.is_file() and not is_file:
        raise InputError(
            "a file is in the way", path, "Choose another name, or give it the suffix of a format."
        )
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(
            "what is there is neither a file nor a directory", path, "Choose another name."
        )
    if not overwrite and (path.is_file() or (path.is_dir() and any(path.iterdir()))):
        raise InputError(
            "there is something already", path, "Pass overwrite=True, or choose another name."
        )


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path with ~ filled in; an error for what is none."""
    try:
        whole = Path(path).expanduser()
        os.fsencode(whole)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            "a path must be a string or a Path", f"{path!r} ({error})", "Pass where the file is."
        ) from None
    if "\0" in str(whole) or not whole.name:
        raise InputError(
            "a path must name a file or folder", repr(str(path)), "Pass where the file is."
        )
    return whole


def _suffix(path: Path) -> str:
    ends = [suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)]
    return max(ends, key=len) if ends else path.suffix.lower()


def _kind_of(path: Path) -> str:
    if is_idx(path):
        return "idx"
    if path.is_dir():
        return "folder"
    suffix = _suffix(path)
    if suffix not in SUFFIXES:
        check_known(f"suffix of {path.name} (or pass kind=…)", suffix, SUFFIXES)
    return SUFFIXES[suffix]

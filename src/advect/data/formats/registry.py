"""Which format a file has, who reads and writes it, and formats of one's own."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advect._util.atomic import atomic_file
from advect._util.checks import check_known
from advect.data.formats.content import Content, Source
from advect.data.formats.folder import FolderSource, write_folder
from advect.data.formats.guard import check_regular
from advect.data.formats.idx import IdxSource, is_idx
from advect.data.formats.npz import NpySource, NpzSource, write_npz
from advect.data.formats.parquet import ParquetSource
from advect.data.formats.parquet_writer import write_parquet
from advect.data.formats.text import CsvSource
from advect.data.formats.text_writer import write_csv
from advect.errors import InputError


@dataclass(frozen=True)
class Format:
    """Who opens files of a format (its options are parameters), who writes them, suffixes."""

    open: Callable[..., Source]
    write: Callable[[Path, Content], None] | None = None
    suffixes: tuple[str, ...] = ()


_OURS = {
    "npz": Format(NpzSource, write_npz, (".npz",)),
    "npy": Format(NpySource, None, (".npy",)),
    "csv": Format(CsvSource, write_csv, (".csv", ".csv.gz", ".tsv", ".tsv.gz")),
    "parquet": Format(ParquetSource, write_parquet, (".parquet",)),
    "folder": Format(FolderSource),
    "idx": Format(IdxSource),
}
_formats = dict(_OURS)
PLACES = ("path", "name", "openml", "toy", "run")  # where else datasets are, or how they are found


def register_format(
    name: str,
    read: Callable[..., Source],
    *,
    write: Callable[[Path, Content], None] | None = None,
    suffixes: Iterable[str] = (),
) -> None:
    """Make a file format of your own known, to ``load``, to references and to ``save``.

    Use it where samples lie in files that advect does not read. It holds for this process:
    nothing is searched for, and no code runs but what is passed here.

    Args:
        name: what references call it: ``name:path?option=value``.
        read: called with the path and the options that were given, which are its other parameters;
            returns ``Content``, or a ``Source`` that reads only the rows that are asked for.
        write: called with a path to write to and ``Content``; the file gets its name once it is
            whole. None for a format that is only read.
        suffixes: how names of such files end, so that a path alone is enough.

    Raises:
        InputError: a name or suffix that is taken, or cannot be one.

    Example:
        >>> import json, tempfile, numpy as np, advect as ad
        >>> def read_points(path, *, scale=1.0):
        ...     points = json.loads(path.read_text())
        ...     return ad.datasets.Content(scale * np.array(points["x"]), points["y"])
        >>> ad.datasets.register_format("points", read_points, suffixes=[".points"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "two.points")
        ...     _ = path.write_text('{"x": [[1, 2], [3, 4]], "y": ["a", "b"]}')
        ...     print(ad.datasets.load(path).labels, ad.datasets.load(f"points:{path}?scale=2").x.tolist())
        ['a', 'b'] [[2.0, 4.0], [6.0, 8.0]]
    """
    endings = tuple(suffix.lower() for suffix in suffixes)
    if not re.fullmatch(r"[A-Za-z][\w+-]+", name) or name in (*_OURS, *PLACES):
        raise InputError(
            "a format needs a name of its own, of letters, digits, +, - and _",
            repr(name),
            f"Taken: {', '.join((*_OURS, *PLACES))}.",
        )
    taken = {suffix: kind for suffix, kind in suffixes_known().items() if kind != name}
    for suffix in endings:
        if not suffix.startswith(".") or suffix in taken:
            raise InputError(
                "a suffix must start with a dot and be free",
                repr(suffix),
                f"Taken: {', '.join(taken)}.",
            )
    _formats[name] = Format(read, write and _atomic(write), endings)


def _atomic(write: Callable[[Path, Content], None]) -> Callable[[Path, Content], None]:
    def whole(path: Path, content: Content) -> None:
        with atomic_file(path) as beside:
            write(beside, content)

    return whole


def formats() -> tuple[str, ...]:
    """The names of the formats that can be read."""
    return tuple(_formats)


def suffixes_known() -> dict[str, str]:
    """The format of each suffix."""
    return {suffix: kind for kind, one in _formats.items() for suffix in one.suffixes}


def open_source(path: str | os.PathLike[str], kind: str | None = None, **options: Any) -> Source:
    """A file or folder of samples, open for reading.

    uint8 features with two or more axes for each sample are taken as images and scaled to 0 … 1 in
    every format, unless ``raw=True`` is among the options.

    Args:
        path: where it is.
        kind: ``"npz"``, ``"npy"``, ``"csv"``, ``"parquet"``, ``"folder"``, ``"idx"``, or a name
            that was registered; by default that of the suffix, for directories by what is in them.
        **options: those of the format: split, x_key, y_key, raw, probabilities, target (npz); raw (npy);
            label, weights, columns, header, delimiter, categorical, dtype, encoding, probabilities (csv);
            label, weights, columns, categorical, dtype, raw, probabilities (parquet);
            labels, size, channels, raw (folder); split, raw
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
    return _formats[kind].open(path, **options)


def kind_of(path: str | os.PathLike[str]) -> str:
    """Which of the formats an existing file or folder has, as ``open_source`` finds it.

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
        ['split', 'x_key', 'y_key', 'raw', 'probabilities', 'target']
    """
    check_known("kind of file", kind, _formats)
    return [name for name in inspect.signature(_formats[kind].open).parameters if name != "path"]


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
    suffix, known = _suffix(path), suffixes_known()
    writer = _formats[known[suffix]].write if suffix in known else None
    if suffix and writer is None:
        kinds = [one for one, kind in known.items() if _formats[kind].write is not None]
        check_known("suffix of a file to write", suffix, kinds)
    try:
        _check_place(path, writer is not None, overwrite)
        if writer is None:
            if content.targets is not None:
                raise InputError(
                    "a folder of images has no place for continuous targets",
                    path,
                    "Save as .npz or .parquet.",
                )
            write_folder(path, content, overwrite)
        else:
            writer(path, content)
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
    ends = [suffix for suffix in suffixes_known() if path.name.lower().endswith(suffix)]
    return max(ends, key=len) if ends else path.suffix.lower()


def _kind_of(path: Path) -> str:
    if is_idx(path):
        return "idx"
    if path.is_dir():
        return "folder"
    suffix, known = _suffix(path), suffixes_known()
    check_known(f"suffix of {path.name} (or pass kind=…)", suffix, known)
    return known[suffix]

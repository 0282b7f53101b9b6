"""Which format a file has, and who reads and writes it."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from advect._util import InputError, check_known, refuse_if
from advect.io.formats.content import Content
from advect.io.formats.guard import check_regular, reading


@dataclass(frozen=True)
class Format:
    """A reader (its options are parameters), a writer, and suffixes. Functions have names, see ``_load``."""

    read: str
    write: str | None = None
    suffixes: tuple[str, ...] = ()


_FORMATS = {
    "npz": Format("arrays.read_npz", "arrays.write_npz", (".npz",)),
    "npy": Format("arrays.read_npy", None, (".npy",)),
    "csv": Format("tables.read_csv", "tables.write_csv", (".csv", ".csv.gz", ".tsv", ".tsv.gz")),
    "parquet": Format("tables.read_parquet", "tables.write_parquet", (".parquet",)),
    "folder": Format("folder.read_folder"),
}
_ROLES = ("label", "weights", "columns", "target", "probabilities")  # options of tables
_KINDS = {suffix: kind for kind, form in _FORMATS.items() for suffix in form.suffixes}


def _load(function: str) -> Any:
    """Readers and writers are imported on first use: pyarrow is slow to import."""
    module, name = function.split(".")
    return getattr(import_module(f"advect.io.formats.{module}"), name)


def formats() -> tuple[str, ...]:
    """The names of the formats."""
    return tuple(_FORMATS)


def reader_options(kind: str) -> list[str]:
    """The options of a format."""
    check_known("kind of file", kind, _FORMATS)
    reader = _load(_FORMATS[kind].read)
    parameters = [name for name in inspect.signature(reader).parameters if name != "roles"]
    return [*parameters[1:], *(_ROLES if kind in ("csv", "parquet") else ())]


def open_source(path: str | os.PathLike[str], kind: str | None = None, **options: Any) -> Content:
    """Open a file or folder of samples; by default the suffix or the content says the format."""
    path = as_path(path)
    kind = kind_of(path) if kind is None else kind
    check_regular(path)
    known = reader_options(kind)
    for option in options:
        check_known(f"option of {kind} files", option, known)
    with reading(path, f"a {kind} file", Exception):
        return _load(_FORMATS[kind].read)(path, **options)


def kind_of(path: str | os.PathLike[str]) -> str:
    """The format of an existing file or folder."""
    path = as_path(path)
    check_regular(path)
    if path.is_dir():
        return "folder"
    suffix = _suffix(path)
    check_known(f"suffix of {path.name} (or pass kind=…)", suffix, _KINDS)
    return _KINDS[suffix]


def write(path: str | os.PathLike[str], content: Content, *, overwrite: bool = False) -> None:
    """Write samples atomically, in the format of the suffix."""
    path = as_path(path)
    suffix = _suffix(path)
    writers = {s: writer for s, kind in _KINDS.items() if (writer := _FORMATS[kind].write)}
    check_known("suffix of a file to write", suffix, writers)
    try:
        if path.exists():
            check_regular(path)
        refuse_if(
            path.is_file() and not overwrite,
            "the path exists already",
            path,
            "Pass overwrite=True, or choose another name.",
        )
        _load(writers[suffix])(path, content)
    except (OSError, UnicodeError, OverflowError) as error:
        raise InputError(
            "cannot write there",
            f"{path} ({getattr(error, 'strerror', None) or error})",
            "Choose another place.",
        ) from error


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path with ~ expanded."""
    try:
        expanded = Path(path).expanduser()
        os.fsencode(expanded)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            "a path must be a string or a Path", f"{path!r} ({error})", "Name a file."
        ) from None
    refuse_if(
        "\0" in str(expanded) or not expanded.name,
        "a path must name a file or folder",
        repr(str(path)),
        "Name a file.",
    )
    return expanded


def _suffix(path: Path) -> str:
    endings = [suffix for suffix in _KINDS if path.name.lower().endswith(suffix)]
    return max(endings, key=len) if endings else path.suffix.lower()

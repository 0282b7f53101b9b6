"""Which format a file has, who reads and writes it, and formats that users register."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from advect._util.atomic import atomic_file
from advect._util.checks import check_known, refuse_if
from advect.errors import InputError
from advect.io.formats.content import Content
from advect.io.formats.guard import check_regular, reading


@dataclass(frozen=True)
class Format:
    """A reader (its options are parameters), a writer, and suffixes; ours by name, see ``_load``."""

    read: Any
    write: Any = None
    suffixes: tuple[str, ...] = ()


_OURS = {
    "npz": Format("arrays.read_npz", "arrays.write_npz", (".npz",)),
    "npy": Format("arrays.read_npy", None, (".npy",)),
    "csv": Format("tables.read_csv", "tables.write_csv", (".csv", ".csv.gz", ".tsv", ".tsv.gz")),
    "parquet": Format("tables.read_parquet", "tables.write_parquet", (".parquet",)),
    "folder": Format("folder.read_folder", "folder.write_folder"),
    "idx": Format("arrays.read_idx"),
}
_ROLES = ("label", "weights", "columns", "target", "probabilities")  # options of tables
_formats = dict(_OURS)
OTHER_KINDS = ("name", "openml", "toy", "run")  # of references, besides formats of files


def register_format(
    name: str,
    read: Callable[..., Any],
    *,
    write: Callable[[Path, Any], None] | None = None,
    suffixes: Iterable[str] = (),
) -> None:
    """Register a file format for ``load``, references and ``save``, in this process.

    Args:
        name: the name in references: ``name:path?option=value``.
        read: called with the path and the options. Returns ``(x, labels)``, or a dictionary with
            ``x`` and any of ``labels``, ``classes``, ``columns``, ``weights``, ``probabilities``
            and ``targets``.
        write: called with a path and an object that has these as attributes; or None.
        suffixes: of such files, so that a path alone is enough.

    Example:
        >>> import json, tempfile, numpy as np, advect as ad
        >>> def read_points(path, *, scale=1.0):
        ...     points = json.loads(path.read_text())
        ...     return scale * np.array(points["x"]), points["y"]
        >>> ad.datasets.register_format("points", read_points, suffixes=[".points"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "two.points")
        ...     _ = path.write_text('{"x": [[1, 2], [3, 4]], "y": ["a", "b"]}')
        ...     print(ad.datasets.load(f"points:{path}?scale=2").x.tolist())
        [[2.0, 4.0], [6.0, 8.0]]
    """
    endings = tuple(suffix.lower() for suffix in suffixes)
    refuse_if(
        not re.fullmatch(r"[A-Za-z][\w+-]+", name) or name in (*_OURS, *OTHER_KINDS, "path"),
        "a format needs a free name of letters, digits, +, - and _",
        repr(name),
        "Choose another name.",
    )
    others = {suffix: kind for suffix, kind in _kinds().items() if kind != name}
    for suffix in endings:
        refuse_if(
            not suffix.startswith(".") or suffix in others,
            "a suffix must start with a dot and be free",
            repr(suffix),
            f"Taken: {', '.join(others)}.",
        )
    _formats[name] = Format(read, write, endings)


def _load(function: Any) -> Any:
    """Our readers and writers are imported on first use: pyarrow is slow to import."""
    if type(function) is not str:
        return function
    module, name = function.split(".")
    return getattr(import_module(f"advect.io.formats.{module}"), name)


def formats() -> tuple[str, ...]:
    """The names of the formats."""
    return tuple(_formats)


def _kinds() -> dict[str, str]:
    """The format of each suffix."""
    return {suffix: kind for kind, form in _formats.items() for suffix in form.suffixes}


def reader_options(kind: str) -> list[str]:
    """The options of a format."""
    check_known("kind of file", kind, _formats)
    reader = _load(_formats[kind].read)
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
    read = _load(_formats[kind].read)
    if kind in _OURS:
        with reading(path, f"a {kind} file", Exception):
            return read(path, **options)
    content = read(path, **options)
    return Content(**content) if isinstance(content, Mapping) else Content(*content)


def kind_of(path: str | os.PathLike[str]) -> str:
    """The format of an existing file or folder."""
    path = as_path(path)
    check_regular(path)
    if path.is_dir():
        return "idx" if any(path.glob("*-idx?-ubyte*")) else "folder"
    suffix, kinds = _suffix(path), _kinds()
    check_known(f"suffix of {path.name} (or pass kind=…)", suffix, kinds)
    return kinds[suffix]


def write(path: str | os.PathLike[str], content: Content, *, overwrite: bool = False) -> None:
    """Write samples atomically, in the format of the suffix; without one, a folder of images."""
    path = as_path(path)
    suffix, kinds = _suffix(path), {s: k for s, k in _kinds().items() if _formats[k].write}
    if suffix:
        check_known("suffix of a file to write", suffix, kinds)
    kind = kinds.get(suffix, "folder")
    writer = _load(_formats[kind].write)
    try:
        refuse_if(
            path.exists() and not (path.is_dir() if kind == "folder" else path.is_file()),
            "something else is in the way",
            path,
            "Choose another name.",
        )
        refuse_if(
            not overwrite and (path.is_file() or (path.is_dir() and any(path.iterdir()))),
            "the path exists already",
            path,
            "Pass overwrite=True, or choose another name.",
        )
        if kind in _OURS:
            writer(path, content)
        else:
            with atomic_file(path) as temporary:
                writer(temporary, content)
    except (OSError, UnicodeError, OverflowError) as error:
        got = f"{path} ({getattr(error, 'strerror', None) or error})"
        raise InputError("cannot write there", got, "Choose another place.") from error


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path with ~ expanded."""
    try:
        expanded = Path(path).expanduser()
        os.fsencode(expanded)
    except (TypeError, ValueError, RuntimeError) as error:
        got = f"{path!r} ({error})"
        raise InputError("a path must be a string or a Path", got, "Name a file.") from None
    refuse_if(
        "\0" in str(expanded) or not expanded.name,
        "a path must name a file or folder",
        repr(str(path)),
        "Name a file.",
    )
    return expanded


def _suffix(path: Path) -> str:
    endings = [suffix for suffix in _kinds() if path.name.lower().endswith(suffix)]
    return max(endings, key=len) if endings else path.suffix.lower()

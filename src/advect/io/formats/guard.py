"""Errors of files as ``InputError``; pipes, devices and what exceeds the memory are refused."""

from __future__ import annotations

import difflib
import gzip
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advect._util import InputError, check_room, refuse_if

_BROKEN = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error),
    *(NotImplementedError, RecursionError),  # the last for JSON that is nested too deep
)
_CHUNK = 1 << 20


@contextmanager
def reading(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Convert errors of the disk, of the content and ``more`` to errors that name the file."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise missing(path) from None
    except IsADirectoryError:
        raise InputError(f"not {kind} but a directory", path, "Name a file inside it.") from None
    except NotADirectoryError:
        raise InputError(f"not {kind} but a file", path, "Pass the path of a directory.") from None
    except PermissionError:
        raise InputError("no permission to read", path, "Change its permissions.") from None
    except MemoryError:
        raise InputError("too large for the memory", path, "Read fewer rows of it.") from None
    except (*_BROKEN, *more) as error:
        raise damaged(path, kind, f"{type(error).__name__}: {error}".splitlines()[0]) from error


def check_regular(path: Path) -> None:
    """Refuse pipes, which may block, and devices, which may not end."""
    with reading(path, "a file"):
        mode = path.stat().st_mode
    refuse_if(
        not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)),
        "not a file or directory",
        path,
        "Write its content to a file first.",
    )


def check_plain(path: Path) -> None:
    """Refuse a link, a pipe, a device or a directory in the place of a file of a run."""
    refuse_if(
        path.is_symlink() or (path.exists() and not path.is_file()),
        "not a file",
        path,
        "Remove it, or restore the file from a copy.",
    )


def read_text(path: Path) -> str:
    """The text of a file of a run; errors of the disk and of the encoding are passed on."""
    check_plain(path)
    return path.read_text(encoding="utf-8")


def read_bytes(path: Path, packed: bool) -> bytes:
    """The content of a file, decompressed by gzip if it is packed, as far as it fits into memory."""
    check_size(path, path.stat().st_size)
    if not packed:
        return path.read_bytes()
    content = bytearray()
    with gzip.open(path) as file:
        while chunk := file.read(_CHUNK):
            content += chunk
            check_size(path, len(content))
    return bytes(content)


def check_size(path: Path, size: int) -> None:
    """Refuse what does not fit into memory."""
    check_room(f"what is read from {path}", size, "Read fewer rows: n=… or max_samples=….")


def damaged(path: Path, kind: str, why: str) -> InputError:
    """The error for content that is not what it should be."""
    remedy = "Restore it from a copy, or create it again."
    remedy += " on_error='skip' leaves it out." if kind == "an image" else ""
    return InputError(f"not {kind}, or damaged", f"{path} ({why})", remedy)


def missing(path: Path) -> InputError:
    """The error for a path that does not exist, with similar names."""
    hint = f"There is no directory {path.parent}: check the path."
    if path.parent.is_dir():
        names = [other.name for other in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, names, n=3)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Check the path."
    return InputError("no such file or directory", path, hint)

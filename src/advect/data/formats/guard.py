"""Errors of files: whatever a reader below us raises on bad content becomes an ``InputError`` that
names the file.

What could hang or fill the memory is refused before it is opened or made: pipes and devices, arrays
that do not fit, and content that grows out of all proportion when it is unpacked."""

from __future__ import annotations

import difflib
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np

from advect._util.memory import check_room, readable
from advect.errors import InputError

_BROKEN = (
    *(OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error),
    *(NotImplementedError, RecursionError),  # the last for JSON and literals nested too deep
)
_GROWTH, _SMALL = 500, 1 << 26  # only almost constant data shrinks more; up to 64 MiB do no harm
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def reading(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Around calls that touch the disk: errors of the file, and ``more``, are converted."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise missing(path) from None
    except IsADirectoryError:
        raise InputError(
            f"not {kind} but a directory", path, "Give the path of the file inside it."
        ) from None
    except NotADirectoryError:
        raise InputError(f"not {kind} but a file", path, "Give the path of a directory.") from None
    except PermissionError:
        raise InputError(
            "no permission to read", path, "Ask its owner, or run as a user who may read it."
        ) from None
    except MemoryError:
        raise InputError("too large for the memory", path, "Read fewer rows of it.") from None
    except (*_BROKEN, *more) as error:
        raise damaged(path, kind, f"{type(error).__name__}: {error}") from None


def check_regular(path: Path) -> None:
    """An error for pipes, which may wait for ever to be opened, and devices, which may not end."""
    with reading(path, "a file"):
        mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        what = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise InputError(
            "not a file or directory",
            f"{path}, {what}",
            "Write its content to a file first, and give that.",
        )


def check_plain(path: Path) -> None:
    """An error for a pipe, a device or a directory in the place of a file of ours, if any."""
    if path.exists() and not path.is_file():
        what = _KINDS.get(stat.S_IFMT(path.stat().st_mode), "a directory")
        raise InputError(
            "not a file", f"{path}, {what}", "Remove it, or put the file back from a copy."
        )


def read_text(path: Path) -> str:
    """The text of a file of ours; errors of the disk and of text are passed on."""
    check_plain(path)
    return path.read_text(encoding="utf-8")


def check_growth(path: Path, what: str, size: int, packed: int) -> None:
    """An error for ``packed`` bytes that stand for out of all proportion more."""
    if size > max(_SMALL, _GROWTH * packed):
        raise InputError(
            "a compressed file grows too much to be safe",
            f"{what} of {readable(size)} in {readable(packed)} of {path}",
            f"If you trust it, save it without compression; up to {_GROWTH} times as much is fine.",
        )


def empty(path: Path, kind: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array to fill from a file, if there is room for it."""
    check_room(
        f"what is asked of {path}",
        prod(shape) * dtype.itemsize,
        "Read fewer rows of it: n=…, or max_samples=….",
    )
    with reading(path, kind, ValueError):
        return np.empty(shape, dtype)


def damaged(path: Path, kind: str, why: str) -> InputError:
    """The error for content that is not what it should be."""
    return InputError(
        f"not {kind}, or damaged",
        f"{path} ({why})",
        "Make the file again, or say what it is with kind=….",
    )


def missing(path: Path) -> InputError:
    """The error for a path where nothing is, with names like it."""
    if not path.parent.is_dir():
        return InputError(
            "no such file or directory",
            path,
            f"There is no directory {path.parent} either: check the path.",
        )
    near = difflib.get_close_matches(
        path.name, [other.name for other in path.parent.iterdir()], n=3
    )
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Check the path."
    return InputError("no such file or directory", path, hint)

"""Errors of files: whatever a reader below us raises on bad content becomes an ``InputError`` that names the file."""

from __future__ import annotations

import difflib
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advect.errors import InputError

_BROKEN = (OSError, EOFError, zlib.error, zipfile.BadZipFile, struct.error, NotImplementedError)


@contextmanager
def reading(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Around a few calls that touch the disk: errors of the file, and those in ``more``, are converted."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise missing(path) from None
    except IsADirectoryError:
        raise InputError(f"not {kind} but a directory", path, "Give the path of the file inside it.") from None
    except NotADirectoryError:
        raise InputError(f"not {kind} but a file", path, "Give the path of a directory.") from None
    except PermissionError:
        raise InputError("no permission to read", path, "Ask its owner, or run as somebody who may read it.") from None
    except MemoryError:
        raise InputError("too large for the memory", path, "Read fewer rows of it.") from None
    except (*_BROKEN, *more) as error:
        raise damaged(path, kind, f"{type(error).__name__}: {error}") from None


def damaged(path: Path, kind: str, why: str) -> InputError:
    """The error for content that is not what it should be."""
    return InputError(f"not {kind}, or damaged", f"{path} ({why})", "Make the file again, or say what it is with kind=….")


def missing(path: Path) -> InputError:
    """The error for a path where nothing is, with names like it."""
    if not path.parent.is_dir():
        return InputError("no such file or directory", path, f"There is no directory {path.parent} either: check the path.")
    near = difflib.get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=3)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else "Check the path."
    return InputError("no such file or directory", path, hint)

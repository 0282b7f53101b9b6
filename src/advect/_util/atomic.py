"""Files and folders that are there whole or not at all: written beside their place and renamed at
the end.

A folder changes places with the one before it in a single step where the system can do that, and in
two renames elsewhere: what a process leaves that is killed in between is put back by ``recover``.
Renames are flushed to the disk with their directory.

Every writer has a place of its own, so that several may write the same file at a time, and the last
one stays. What killed processes leave is removed by those that come later. What is in the files,
and what may be written over, is for others to say."""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import os
import platform
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from advect.errors import InputError

_OWN = re.compile(
    r"(?P<stem>\..*\.(?P<where>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{12})\.(?P<kind>tmp|old)",
    re.DOTALL,
)
# seconds without a change, after which a writer is gone even where its process cannot be looked for
_STALE = 24 * 3600
_LONGEST = 48  # characters of a name: file systems have a limit, and some take four bytes

_writing: set[str] = set()  # stems of the names that writers of this process are at
_tidied: set[tuple[int, Path]] = set()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever happens in between."""
    with atomic_file(path) as beside:
        beside.write_bytes(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A place beside ``path`` to write a file to; it gets its name once it is on the disk, and goes
    away on any error.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_file(Path(folder, "notes.txt")) as beside:
        ...         _ = beside.write_text("done")
        ...     print(Path(folder, "notes.txt").read_text())
        done
    """
    with _beside(path) as beside:
        try:
            yield beside
            with open(beside, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(beside, path)
            sync_directory(path.parent)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A new folder beside ``path`` to fill; it takes its place at the end, and goes away on any
    error.

    Args:
        path: where the folder will be.
        overwrite: a folder that has anything in it is an error, unless this is set.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_directory(Path(folder, "images")) as beside:
        ...         _ = (beside / "notes.txt").write_text("done")
        ...     print([file.name for file in Path(folder, "images").iterdir()])
        ['notes.txt']
    """
    if path.is_symlink():  # the link stays, and what it points to is replaced
        path = path.resolve()
    recover(path)
    _check_free(path, overwrite)
    with _beside(path) as beside:
        beside.mkdir()
        try:
            yield beside
            _sync_files(beside)
            take_place(beside, path, overwrite=overwrite)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _check_free(path: Path, overwrite: bool) -> None:
    if not overwrite and path.is_dir() and any(path.iterdir()):
        raise InputError(
            "the directory is not empty", path, "Choose another one, or empty it first."
        )


def take_place(beside: Path, path: Path, *, overwrite: bool) -> None:
    """Rename a folder to ``path``. One that has anything in it cannot be renamed over: they change
    places, or it is put aside.

    What was there before may be left at ``beside``, for the caller to remove.
    """
    before = path.with_name(f"{_own_name(path)}.old")
    while not _renamed(beside, path):
        _check_free(path, overwrite)  # another writer may have been faster
        if _exchanged(beside, path):
            break
        try:
            os.rename(path, before)
        except FileNotFoundError:  # another writer has just put it aside
            continue
        try:
            done = _renamed(beside, path)
        except OSError:
            os.rename(before, path)
            raise
        _remove(before)
        if done:
            break
    sync_directory(path.parent)
    for place in _left_in(path.parent, "old", hidden_name(path)):
        _remove(place)  # of a writer killed between two renames: not needed any more


def recover(path: Path) -> bool:
    """Put a folder back that a writer had put aside when it was killed; whether there was one and
    nothing in its place.

    Example:
        >>> recover(Path("no-such-folder"))
        False
    """
    if path.exists() or path.is_symlink():
        return False
    left = _left_in(path.parent, "old", hidden_name(path))
    if not left:
        return False
    os.rename(max(left, key=lambda place: place.stat().st_mtime), path)
    sync_directory(path.parent)
    return True


def sync_directory(folder: Path) -> None:
    """Flush the names in a folder to the disk, where a system can: a rename is not safe before."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _sync_files(folder: Path) -> None:
    """Flush all that is in a folder to the disk."""
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError), open(os.path.join(where, name), "rb+") as file:
                os.fsync(file.fileno())
        sync_directory(Path(where))


def _exchanged(one: Path, other: Path) -> bool:
    """Whether two folders have changed places in one step, which Linux can do."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _renamed(beside: Path, path: Path) -> bool:
    """Whether ``path`` was free to be taken by a folder; any other hindrance is an error."""
    try:
        os.rename(beside, path)
    except OSError as error:
        full = error.errno in (errno.ENOTEMPTY, errno.EEXIST) or path.is_symlink()
        if not full or (path.exists() and not path.is_dir()):
            raise
        return False
    return True


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A name that no other writer has, in this process or another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stem = _own_name(path)
    _writing.add(stem)
    try:
        _tidy(path.parent.absolute())
        yield path.with_name(f"{stem}.tmp")
    finally:
        _writing.discard(stem)


def _own_name(path: Path) -> str:
    return f"{hidden_name(path)}.{_where()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def hidden_name(path: Path) -> str:
    """How names of files beside a path begin; not too long for a file system."""
    name = path.name
    if not name:
        raise InputError(
            "the root of the file system is no place to write to", path, "Choose a directory in it."
        )
    return f".{name if len(name) <= _LONGEST else name[: _LONGEST - 9] + '-' + _short(name)}"


def is_leftover(name: str) -> bool:
    """Whether a name is that of a place beside another, as writers use them until they are done.

    Example:
        >>> is_leftover(".notes.txt.0123abcd-4711-0123456789ab.tmp"), is_leftover("notes.txt")
        (True, False)
    """
    return _OWN.fullmatch(name) is not None


def _tidy(folder: Path) -> None:
    """Remove what killed writers left; once for each process and folder, which may be large."""
    key = (os.getpid(), folder)  # a forked process has more to look for than its parent
    if key not in _tidied:
        _tidied.add(key)
        for place in _left_in(folder, "tmp"):
            _remove(place)


def _left_in(folder: Path, kind: str, stem: str = "") -> list[Path]:
    try:
        matches = [match for name in os.listdir(folder) if (match := _OWN.fullmatch(name))]
    except OSError:  # to write in a folder, one need not be allowed to read it
        return []
    return [
        folder / match[0]
        for match in matches
        if match["kind"] == kind
        and (not stem or match["stem"].rsplit(".", 1)[0] == stem)
        and match["stem"] not in _writing
        and _is_left(folder / match[0], match)
    ]


def _is_left(place: Path, match: re.Match[str]) -> bool:
    pid = int(match["pid"])
    alive = pid != os.getpid() and pid < 2**31 and psutil.pid_exists(pid)  # numbers come again
    if match["where"] == _where() and not alive:
        return True
    try:
        return time.time() - place.lstat().st_mtime > _STALE
    except OSError:  # gone in the meantime
        return False


def _remove(place: Path) -> None:
    """As far as it can be: what is left over is no reason to fail."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink()


@functools.cache
def _where() -> str:
    """What process numbers belong to: the machine, and the container if there is one."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return _short(f"{platform.node()} {space}")


def _short(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=4).hexdigest()

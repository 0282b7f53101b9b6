"""Files and folders that are written completely or not at all: each is written under a temporary name next
to its place, flushed to the disk and renamed. A symbolic link stays, and what it points to is replaced.

Every writer uses its own temporary name, so several may write the same file and the last one wins. Later
writers remove what killed ones left. A folder takes the place of another in two renames; ``recover``
puts the old one back if the process was killed between them. A folder gets a temporary name before its files are
removed, so a part of it is never taken for the whole."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psutil

from advect._util.checks import refuse_if

_TEMPORARY = re.compile(
    r"(?P<stem>\..*)\.(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{12}\.(?P<kind>tmp|old)",
    re.DOTALL,
)
_STALE = 24 * 3600  # seconds after which a writer on another machine is taken for dead
_MAX_NAME = 48  # characters of a name: file systems have a limit, and some use four bytes for each

_tidied: set[tuple[int, Path]] = set()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary file to write; it is renamed to ``path`` at the end and removed on any error."""
    path = path.resolve() if path.is_symlink() else path
    temporary = _temporary(path)
    try:
        yield temporary
        _flush(temporary, os.O_RDWR)
        os.replace(temporary, path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to fill; it takes the place of ``path`` at the end and is removed on any error.

    A folder that is not empty is replaced only with ``overwrite``."""
    path = path.resolve() if path.is_symlink() else path
    recover(path)
    _check_empty(path, overwrite)
    temporary = _temporary(path)
    temporary.mkdir()
    try:
        yield temporary
        for folder, _, names in os.walk(temporary):
            for name in names:
                _flush(Path(folder, name), os.O_RDWR)
            sync_directory(Path(folder))
        _check_empty(path, overwrite)
        replace_directory(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_empty(path: Path, overwrite: bool) -> None:
    refuse_if(
        not overwrite and path.is_dir() and any(path.iterdir()),
        "the directory is not empty",
        path,
        "Choose another one, or empty it.",
    )


def replace_directory(new: Path, path: Path) -> None:
    """Rename a folder to ``path``; a folder that is there is moved aside first and then removed."""
    old = _temporary(path, "old")
    while True:
        with suppress(FileNotFoundError):
            os.rename(path, old)
        try:
            os.rename(new, path)
            break
        except OSError:
            if not path.is_dir():  # not another writer, which would be tried again
                if old.exists():
                    os.rename(old, path)
                raise
        remove(old)
    sync_directory(path.parent)
    _remove_old(path, old)


@contextmanager
def set_aside(path: Path) -> Iterator[Callable[[], object]]:
    """Move a folder aside, and back on any error. The function that this gives removes it for good."""
    old = _temporary(path, "old")
    os.rename(path, old)
    try:
        yield cache(lambda: _remove_old(path, old))
    except BaseException:
        if old.exists():
            remove(path)
            os.rename(old, path)
        raise


def recover(path: Path, is_begun: Callable[[Path], bool] = lambda _: False) -> None:
    """Put back a folder that a killed writer had moved aside, unless another one is in its place. One that
    is only begun, as ``is_begun`` says, is removed."""
    path = path.resolve() if path.is_symlink() else path
    leftovers = _leftovers(path.parent, "old", hidden_name(path)) if path.name else []
    if leftovers and (not path.exists() or is_begun(path)):
        remove(path)
        os.rename(max(leftovers, key=lambda leftover: leftover.stat().st_mtime), path)
        sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Flush the names in a folder to the disk: a rename is not safe before."""
    with suppress(PermissionError):  # a folder may be writable but not readable
        _flush(folder, os.O_RDONLY)


def _flush(path: Path, mode: int) -> None:
    """Flush a file or folder to the disk; only file systems that cannot do so are excused."""
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def hidden_name(path: Path) -> str:
    """The beginning of names of hidden files next to a path, short enough for any file system."""
    name = path.name
    refuse_if(not name, "cannot write to the root of the file system", path, "Choose a directory.")
    return f".{name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 9] + '-' + _short_hash(name)}"


def is_leftover(name: str) -> bool:
    """Whether a name is a temporary name of a writer."""
    return _TEMPORARY.fullmatch(name) is not None


def _temporary(path: Path, kind: str = "tmp") -> Path:
    """A name next to a path that no other writer uses; leftovers are removed once for each folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = f"{hidden_name(path)}.{_host()}-{os.getpid()}-{uuid.uuid4().hex[:12]}.{kind}"
    folder = path.parent.absolute()
    if (os.getpid(), folder) not in _tidied:
        _tidied.add((os.getpid(), folder))
        for leftover in _leftovers(folder, "tmp"):
            remove(leftover)
    return path.with_name(name)


def _leftovers(folder: Path, kind: str, stem: str = "") -> list[Path]:
    """What killed writers left in a folder."""
    paths = []
    with suppress(OSError):  # a folder may be writable but not readable
        for name in os.listdir(folder):
            match = _TEMPORARY.fullmatch(name)
            if match and match["kind"] == kind and stem in ("", match["stem"]):
                paths += [folder / name] if _writer_is_gone(folder / name, match) else []
    return paths


def _writer_is_gone(path: Path, match: re.Match[str]) -> bool:
    pid = int(match["pid"])
    if match["host"] == _host() and not (pid < 2**31 and psutil.pid_exists(pid)):
        return True
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime > _STALE
    return False


def _remove_old(path: Path, old: Path) -> None:
    """Remove a folder that was moved aside, and those that killed writers have moved."""
    for leftover in (old, *_leftovers(path.parent, "old", hidden_name(path))):
        remove(leftover)


def remove(path: Path) -> None:
    """Remove a file, or a folder under a temporary name, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        hidden = path if path.suffix == ".tmp" else _temporary(path)
        with suppress(OSError):
            path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _host() -> str:
    return _short_hash(platform.node())


def _short_hash(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=4).hexdigest()

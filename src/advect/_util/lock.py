"""One writer for each directory: a lock that a process holds while it writes, and that is free when
the process is gone.

The lock is an open file beside the directory (inside it, where that cannot be), locked with
``flock``: the system frees it with the process, however that ends. Symbolic links lead to the same
lock as what they point to."""

from __future__ import annotations

import errno
import os
import platform
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from advect._util.atomic import hidden_name
from advect.errors import InputError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}


@dataclass
class _Held:
    """A lock of this process: its file, how many hold it, in which thread."""

    file: Path | None
    descriptor: int
    thread: int
    made: list[Path]
    count: int = 1


_held: dict[
    tuple[int, Path], _Held
] = {}  # by process, since a forked one holds nothing, and directory
_guard = threading.RLock()


class Hold:
    """A directory that is held for writing, until ``release`` or the end of the context.

    Within a thread it may be held several times over: what writes to one run (frames, checkpoints,
        metrics) does so.

    Raises:
        InputError: another process, or another thread of this one, is writing there.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Hold(Path(folder, "run")):
        ...         print(sorted(os.listdir(folder)))
        ...     print(os.listdir(folder))
        ['.run.lock']
        []
    """

    def __init__(self, directory: Path) -> None:
        self._key = (os.getpid(), directory.resolve())
        self._holds = False  # one that is refused has nothing to release
        with _guard:
            held = _held.get(self._key)
            if held is None:
                _held[self._key] = _locked(directory)
            elif held.thread != threading.get_ident():
                raise _busy(directory, f"another thread of process {os.getpid()}")
            else:
                held.count += 1
            self._holds = True

    def release(self) -> None:
        """Let others write; once is enough."""
        with _guard:
            if not self._holds or self._key[0] != os.getpid():
                return
            self._holds = False
            held = _held[self._key]
            held.count -= 1
            if held.count == 0:
                del _held[self._key]
                _free(held)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        with suppress(Exception):
            self.release()


def is_held(directory: Path) -> bool:
    """Whether somebody is writing there now; no lock is taken, and none is made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Hold(Path(folder, "run")):
        ...         print(is_held(Path(folder, "run")))
        ...     print(is_held(Path(folder, "run")))
        True
        False
    """
    place = directory.resolve()
    for file in (place.with_name(f"{hidden_name(place)}.lock"), place / ".lock"):
        try:
            # taking the lock to see whether it is free would refuse a writer at that moment
            process, _, node = file.read_text(errors="replace").strip().partition(" on ")
            if node != platform.node():
                return bool(node)  # of another machine, which cannot be asked
            os.kill(int(process), 0)
        except PermissionError:
            return True
        except (OSError, ValueError, OverflowError):
            continue
        return True
    return False


def _locked(directory: Path) -> _Held:
    place = directory.resolve()
    made = _made_parents(place)
    while True:
        file, descriptor = _opened(place)
        try:
            if fcntl is None:
                raise OSError(errno.ENOSYS, "no such locks on this system")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = os.pread(descriptor, 200, 0) if hasattr(os, "pread") else b""
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                with suppress(OSError):
                    file.unlink()
                why = f"this place has no locks ({error.strerror}): see to it yourself that nothing else writes {directory}"
                warnings.warn(why, UserWarning, stacklevel=4)
                return _Held(None, -1, threading.get_ident(), made)
            raise _busy(
                directory, f"process {who.decode(errors='replace').strip() or 'unknown'}"
            ) from None
        if _is_at(file, descriptor):  # the one before us may have removed it in the meantime
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()} on {platform.node()}\n".encode())
            return _Held(file, descriptor, threading.get_ident(), made)
        os.close(descriptor)


def _opened(place: Path) -> tuple[Path, int]:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    beside = place.with_name(f"{hidden_name(place)}.lock")
    try:
        return beside, os.open(beside, flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or not place.is_dir():
            raise
        return place / ".lock", os.open(place / ".lock", flags, 0o666)


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(file, follow_symlinks=False), os.fstat(descriptor))
    except OSError:
        return False


def _free(held: _Held) -> None:
    if held.file is not None:
        with suppress(OSError):
            held.file.unlink()
        os.close(held.descriptor)
    for folder in held.made:  # nothing came of it
        with suppress(OSError):
            folder.rmdir()


def _made_parents(place: Path) -> list[Path]:
    """Make the folders above a place; those that were not there, innermost first."""
    missing = [folder for folder in place.parents if not folder.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    return missing


def _busy(directory: Path, who: str) -> InputError:
    return InputError(
        "another writer is at this run",
        f"{directory} ({who})",
        "Wait for it, or choose another directory.",
    )

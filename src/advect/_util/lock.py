"""One writer for each directory: a file lock that the system releases with its process."""

from __future__ import annotations

import os
import platform
import warnings
import weakref
from contextlib import suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from advect._util.atomic import hidden_name
from advect.errors import InputError


class Hold:
    """A directory that is locked for writing, until ``release`` or the end of the context.

    Within a thread it may be locked several times: recorder, checkpoint and metrics of one run do so. The
    lock file is next to the directory, or in it if its parent cannot be written. Symbolic links share
    the lock of what they point to. An ``InputError`` says that another process or thread writes there."""

    def __init__(self, directory: Path) -> None:
        self._held: weakref.finalize[..., Hold] | None = None
        path = directory.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        inside = path.is_dir() and not os.access(path.parent, os.W_OK)
        self._file = path / ".lock" if inside else path.with_name(f"{hidden_name(path)}.lock")
        lock = FileLock(self._file, timeout=0, is_singleton=True)
        try:
            lock.acquire()
        except Timeout:
            writer = "another process"
            with suppress(OSError):
                writer = self._file.read_text(errors="replace").strip()[:200] or writer
            raise InputError(
                "another process is writing to this directory",
                f"{directory} ({writer})",
                "Wait, or choose another.",
            ) from None
        except OSError as error:
            if self._file.is_symlink() or isinstance(error, PermissionError):
                raise
            self._file.unlink(missing_ok=True)
            message = f"this file system has no locks ({error}): make sure that nothing else writes to {directory}"
            warnings.warn(message, UserWarning, stacklevel=2)
            return
        self._held = weakref.finalize(self, _release, lock, self._file, os.getpid())
        with suppress(OSError):
            self._file.write_text(f"process {os.getpid()} on {platform.node()}\n")

    def release(self) -> None:
        """Release the lock."""
        if self._held is not None:
            self._held()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _release(lock: BaseFileLock, file: Path, process: int) -> None:
    """Release a lock once: on request, with its ``Hold``, or before the interpreter exits."""
    if process != os.getpid():
        return
    if lock.lock_counter == 1:
        with suppress(OSError):  # while it is held, so that nobody removes the lock of another
            file.unlink()
    lock.release()

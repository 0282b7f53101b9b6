"""Files and folders that are there whole or not at all: written beside their place and renamed at the end.

What is in them, and what may be written over, is for others to say.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advect.errors import InputError


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever happens in between."""
    with atomic_file(path) as beside:
        beside.write_bytes(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A place beside ``path`` to write a file to; it gets its name once it is on the disk, and goes away on any error.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_file(Path(folder, "notes.txt")) as beside:
        ...         _ = beside.write_text("done")
        ...     print(Path(folder, "notes.txt").read_text())
        done
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _beside(path)
    try:
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A new folder beside ``path`` to fill; it takes its place at the end, and goes away on any error.

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
    full = path.is_dir() and any(path.iterdir())
    if full and not overwrite:
        raise InputError("the directory is not empty", path, "Choose another one, or empty it first.")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside, before = _beside(path), path.with_name(f".{path.name}.old")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        yield beside
        if full:  # a folder that has anything in it cannot be renamed over
            shutil.rmtree(before, ignore_errors=True)
            os.rename(path, before)
        try:
            os.rename(beside, path)
        except OSError:
            if full:
                os.rename(before, path)
            raise
        shutil.rmtree(before, ignore_errors=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")  # always the same: what a killed process leaves, the next one writes over

"""Where a command writes: whether the place is free or may be replaced, who holds it, and how a new
run takes it.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from advect._util.atomic import hidden_name, recover, take_place
from advect._util.lock import Hold
from advect.cli.layout import Layout, Run
from advect.errors import DamageWarning, InputError

_RUN = Run()


def is_run(directory: Path) -> bool:
    """Whether a directory holds a run."""
    return _RUN.is_there(directory)


def has_checkpoint(directory: Path) -> bool:
    """Whether a directory holds a run that can be gone on with, or could if its checkpoints are not
    damaged.
    """
    return any((directory / name).exists() for name in _RUN.marks if name.startswith("checkpoint"))


def require_run(directory: Path) -> Path:
    """The directory, if it holds a run that this command line made."""
    put_back(directory)
    left = next_to(directory)
    if is_run(left):
        warnings.warn(
            f"{left} is left of a killed flow with --overwrite: resume or remove it",
            UserWarning,
            stacklevel=2,
        )
    if not directory.is_dir():
        raise InputError(
            "no such run directory", directory, "Pass the directory that advect flow -o … wrote."
        )
    if not (directory / "frames.jsonl").exists():
        raise InputError(
            "not a run directory", directory, "Pass the directory that advect flow -o … wrote."
        )
    check_files(directory)
    return directory


def check_files(directory: Path) -> None:
    """An error for what has the name of a file of a run and is none, before anything is read or
    written.
    """
    from advect.data.formats.guard import check_plain

    for name in (*_RUN.marks, "env.json", "space.json", "result.json", "metrics.jsonl"):
        check_plain(directory / name)


def check_free(
    directory: Path, overwrite: bool, layout: Layout = _RUN, *, remedy: str = ""
) -> None:
    """A place for a new directory: free, or one of ours that may go, with nothing else in it."""
    if directory.exists() and not directory.is_dir():
        raise InputError("a file is in the way", directory, "Choose another directory.")
    _check_way(directory)
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    foreign = layout.foreign(directory)
    if not layout.is_there(directory):
        if foreign is None:  # what a writer left that was killed at once
            return
        raise InputError(
            "the directory is not empty, and advect did not make it",
            foreign,
            "Choose another directory.",
        )
    if not overwrite:
        raise InputError(
            "the directory has results already",
            directory,
            f"{remedy}Pass --overwrite to write over them.",
        )
    check_ours(directory, foreign)
    place, here = directory.resolve(), Path.cwd().resolve()
    if place == here or place in here.parents:
        raise InputError(
            "the directory that you are in cannot be replaced",
            place,
            "Go elsewhere (cd), and name it from there.",
        )


def check_ours(directory: Path, foreign: Path | None) -> None:
    """An error for a directory to be replaced that holds something which advect did not write."""
    if foreign is not None:
        raise InputError(
            f"{directory} is not replaced: advect did not write all that is in it",
            foreign,
            "Choose another directory with -o, or move that elsewhere first.",
        )


def check_free_file(path: Path, overwrite: bool) -> None:
    """A place for a new file."""
    if path.is_dir():
        raise InputError("a directory is in the way", path, "Choose another name.")
    if path.exists() and not path.is_file():
        raise InputError(
            "what is there is neither a file nor a directory", path, "Choose another name."
        )
    if path.exists() and not overwrite:
        raise InputError(
            "there is a file already", path, "Pass --overwrite, or choose another name."
        )
    _check_way(path)


def _check_way(path: Path) -> None:
    """An error where the nearest thing that is there on the way to a place is no folder."""
    there = next((folder for folder in path.absolute().parents if folder.exists()), None)
    if there is not None and not there.is_dir():
        raise InputError("a folder on the way is a file", there, "Choose another place.")


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """Holds a run: a second writer is refused, and what a killed one left is put back."""
    with Hold(directory):
        put_back(directory)
        yield


def put_back(directory: Path) -> None:
    """Bring back a run that a process had put aside to replace it when it was killed."""
    place = directory.resolve()
    if recover(place):
        warnings.warn(
            f"{directory} was put back: a process that replaced it was killed",
            DamageWarning,
            stacklevel=2,
        )
    before = place.parent / f".{place.name}.before"  # where versions until 0.1 put it
    if is_run(before) and not (place.is_dir() and any(place.iterdir())):
        with suppress(OSError):
            place.rmdir()
        os.rename(before, place)


def next_to(directory: Path) -> Path:
    """Where a run is made that is to replace another."""
    place = directory.resolve()
    return place.with_name(f"{hidden_name(place)}.next")


@contextmanager
def replacing(directory: Path) -> Iterator[Path]:
    """Where to make a run: in its directory; if there is one already, beside it, and at the end
    they change places.

    A new run that fails before it has begun leaves nothing; one that is killed stays beside the old
    one."""
    place, beside = directory.resolve(), next_to(directory)
    if not (place.is_dir() and any(place.iterdir())):
        yield place
        return
    if beside.exists():  # of a flow that was killed
        check_free(beside, True)
        shutil.rmtree(beside)
    beside.mkdir()
    try:
        yield beside
        check_ours(
            directory, _RUN.foreign(place)
        )  # a flow takes long: something may have come since
        take_place(beside, place, overwrite=True)
    except BaseException:
        if is_run(beside):
            warnings.warn(
                f"{directory} is as it was; the run that was to replace it is {beside}",
                UserWarning,
                stacklevel=2,
            )
            raise
        shutil.rmtree(beside, ignore_errors=True)
        raise
    shutil.rmtree(beside, ignore_errors=True)

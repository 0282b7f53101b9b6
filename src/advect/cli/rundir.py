"""The directory of a run: what was asked for, with what, and what became of it.

config.toml     the resolved options; ``advect flow -c config.toml -o other`` does it again
env.json        versions, device, seed, digests of the inputs
space.json      how both datasets came into one feature space
frames.jsonl, frames/, metrics.jsonl, checkpoint-a and -b: see ``advect.storage``
result.json     how it ended; not there while it runs, or when it was killed
report.html     the page about it
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advect._atomic import hidden_name, recover, take_place, write_atomically
from advect._lock import Hold
from advect.cli.config import FlowOptions
from advect.cli.output import plain
from advect.errors import DamageWarning, InputError

if TYPE_CHECKING:
    from advect.data import LabeledDataset
    from advect.flow import Step
    from advect.snapshots import Snapshot

_MARKS = ("config.toml", "frames.jsonl", "checkpoint-a.safetensors", "checkpoint-b.safetensors")


def is_run(directory: Path) -> bool:
    """Whether a directory holds a run."""
    return any((directory / name).exists() for name in _MARKS)


def has_checkpoint(directory: Path) -> bool:
    """Whether a directory holds a run that can be gone on with, or could if its checkpoints are not damaged."""
    return any((directory / name).exists() for name in _MARKS if name.startswith("checkpoint"))


def require_run(directory: Path) -> Path:
    """The directory, if it holds a run that this command line made."""
    put_back(directory)
    left = next_to(directory)
    if is_run(left):
        warnings.warn(f"{left} is left of a killed flow with --overwrite: resume or remove it", UserWarning, stacklevel=2)
    if not directory.is_dir():
        raise InputError("no such run directory", directory, "Pass the directory that advect flow -o … wrote.")
    if not (directory / "frames.jsonl").exists():
        raise InputError("not a run directory", directory, "Pass the directory that advect flow -o … wrote.")
    return directory


def check_free(directory: Path, overwrite: bool, *, marks: tuple[str, ...] = _MARKS, remedy: str = "") -> None:
    """A place for a new directory: free, or one of ours that may go."""
    if directory.exists() and not directory.is_dir():
        raise InputError("a file is in the way", directory, "Choose another directory.")
    if not directory.is_dir() or not any(directory.iterdir()):
        return
    if not any((directory / name).exists() for name in marks):
        raise InputError("the directory is not empty, and advect did not make it", directory, "Choose another one.")
    if not overwrite:
        raise InputError("the directory has results already", directory, f"{remedy}Pass --overwrite to write over them.")


def check_free_file(path: Path, overwrite: bool) -> None:
    """A place for a new file."""
    if path.is_dir():
        raise InputError("a directory is in the way", path, "Choose another name.")
    if path.exists() and not overwrite:
        raise InputError("there is a file already", path, "Pass --overwrite, or choose another name.")


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
        warnings.warn(f"{directory} was put back: a process that replaced it was killed", DamageWarning, stacklevel=2)
    before = place.with_name(f".{place.name}.before")  # where versions until 0.1 put it
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
    """Where to make a run: in its directory; if there is one already, beside it, and at the end they change places.

    A new run that fails before it has begun leaves nothing; one that is killed stays beside the old one.
    """
    place, beside = directory.resolve(), next_to(directory)
    if not (place.is_dir() and any(place.iterdir())):
        yield place
        return
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        yield beside
        take_place(beside, place, overwrite=True)
    except BaseException:
        if is_run(beside):
            warnings.warn(f"{directory} is as it was; the run that was to replace it is {beside}", UserWarning, stacklevel=2)
            raise
        shutil.rmtree(beside, ignore_errors=True)
        raise
    shutil.rmtree(beside, ignore_errors=True)


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Facts as readable JSON, whole or not at all."""
    write_atomically(path, (json.dumps(plain(facts), indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """What ``write_json`` wrote; empty if it is not there."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("not a JSON file, or damaged", f"{path} ({error})", "Remove it, or take it from a copy.") from None
    if not isinstance(found, dict):
        raise InputError("not a JSON object", path, "Remove it, or take it from a copy.")
    return found


def write_config(directory: Path, source: str, target: str | None, options: FlowOptions) -> None:
    """The resolved options as TOML."""
    import tomlkit

    whole = {"source": source, **({} if target is None else {"target": target}), **options.model_dump(mode="json")}
    write_atomically(directory / "config.toml", tomlkit.dumps(_without_none(whole)).encode())


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null; tables last, as it wants them."""
    kept = {name: _without_none(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    kept = {name: value for name, value in kept.items() if value is not None and value != {}}
    return dict(sorted(kept.items(), key=lambda item: isinstance(item[1], dict)))


def read_config(directory: Path) -> tuple[str, str | None, FlowOptions]:
    """Source, target and options of a run."""
    path = directory / "config.toml"
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        source, target = values.pop("source"), values.pop("target", None)
        if not isinstance(source, str) or not isinstance(target, str | None):
            raise TypeError("source and target must be text")
        return source, target, FlowOptions.model_validate(values)
    except FileNotFoundError:
        raise InputError("the run has no config.toml", directory, "Pass a directory that advect flow -o … wrote.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:  # of TOML, of text, of pydantic
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError("config.toml cannot be used", f"{path} ({why})", "Mend it, or take it from a copy.") from None


def environment(options: FlowOptions, digests: Mapping[str, str]) -> dict[str, Any]:
    """Versions, device, seed and digests."""
    import numpy
    import torch

    import advect as ad

    return {
        "advect": ad.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "device": options.device,
        "threads": torch.get_num_threads(),
        "seed": options.seed,
        "digests": dict(digests),
        "command": sys.argv,
    }


class RunFiles:
    """A callback: at the first state, once the functional has a value, it writes what says how the run was made."""

    def __init__(self, write: Any) -> None:
        self._write, self._done = write, False

    def __call__(self, step: Step) -> None:
        if not self._done:
            self._write()
            self._done = True


class Curves:
    """A callback: value, terms, speed and time of every step, a line each in metrics.jsonl under the name ``flow``."""

    def __init__(self, directory: Path) -> None:
        self.path, self._first, self._offset = directory / "metrics.jsonl", 0, 0.0
        self._clean = False

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self._first = 0 if start is None else start.index
        seconds = [] if start is None else start.history.get("seconds", [])
        self._offset = seconds[-1] if seconds else 0.0
        self._clean = False

    def __call__(self, step: Step) -> None:
        from advect.logs import append_line, is_metric, keep_lines

        if not self._clean:  # steps from here on are logged anew
            keep_lines(self.path, is_metric, lambda record: record["name"] != "flow" or record["index"] < self._first)
            self._clean = True
        record = {"value": step.value, "speed": step.speed, "seconds": step.seconds + self._offset, "terms": step.terms}
        append_line(self.path, {"name": "flow", "index": step.index, **record})

"""What advect writes into a directory: only that is ever removed to make room for something new.

A name that advect uses is not enough, since others use it too (config.toml is that of many
programs): files that tell what a directory is are read, and a directory is ours if one of them says
so and there is nothing else in it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from advect._util.atomic import is_leftover
from advect.cli.rundir import entry as part_of, read_config, read_json
from advect.errors import InputError

_RUN = re.compile(
    r"config\.toml|(env|space|result)\.json|(frames|metrics)\.jsonl|report\.html|checkpoint-[ab]\.safetensors"
    r"|frames/[0-9]{6,18}(\.[0-9]{1,5}-of-[0-9]{1,5})?\.safetensors"
)
_SETTLED = {
    "source",
    "functional",
    "steps",
    "seed",
    "device",
    "checkpoint_every",
    "metric_every",
}  # in the file of every run
_FILES = ("file", "predictions", "flowed", "report")  # of a set, in result.json


class Layout:
    """The directories of one kind: which files are in them.

    Example:
        >>> Run().knows(Path("run"), "frames/000010.safetensors"), Run().knows(Path("run"), "notes.txt")
        (True, False)
    """

    marks: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def knows(self, directory: Path, name: str) -> bool:
        """Whether a file is one that advect writes there; none is, where a kind does not say."""
        return False

    def is_proven(self, directory: Path) -> bool:
        """Whether what the files say shows that advect made the directory."""
        return False

    def foreign(self, directory: Path) -> Path | None:
        """The first thing that advect did not write there; None if there is none."""
        names = [*self._names(directory)]
        for name, plain in names:
            if not plain or not self.knows(directory, name):
                return directory / name
        return directory / names[0][0] if names and not self.is_proven(directory) else None

    def is_there(self, directory: Path) -> bool:
        """Whether a directory looks like one of this kind."""
        return any((directory / name).exists() for name in self.marks)

    def _names(self, directory: Path, folder: str = "") -> Iterator[tuple[str, bool]]:
        """All that is in a directory, and whether it is a plain file; what writers that were killed
        left counts as nothing.
        """
        for entry in sorted(os.scandir(directory / folder), key=lambda entry: entry.name):
            name, plain = f"{folder}{entry.name}", entry.is_file(follow_symlinks=False)
            if name in self.folders and entry.is_dir(follow_symlinks=False):
                yield from self._names(directory, f"{name}/")
            elif not (plain and (is_leftover(entry.name) or name == ".lock")):
                yield name, plain


class Run(Layout):
    """What ``advect flow`` writes, and ``Recorder`` and ``Checkpoint``."""

    marks = ("config.toml", "frames.jsonl", "checkpoint-a.safetensors", "checkpoint-b.safetensors")
    folders = ("frames",)

    def knows(self, directory: Path, name: str) -> bool:
        return _RUN.fullmatch(name) is not None and (name != "config.toml" or _is_config(directory))

    def is_proven(self, directory: Path) -> bool:
        from advect.data.store import is_ours
        from advect.datasets.logs import is_frame, read_log

        checkpoints = (directory / name for name in self.marks if name.startswith("checkpoint"))
        if (directory / "config.toml").exists() or any(map(is_ours, checkpoints)):
            return True
        return bool(read_log(directory / "frames.jsonl", is_frame).records)


class Map(Layout):
    """What ``advect map fit`` writes."""

    marks = ("map.safetensors",)

    def knows(self, directory: Path, name: str) -> bool:
        return name in ("map.safetensors", "space.json")

    def is_proven(self, directory: Path) -> bool:
        from advect.data.store import is_ours

        return is_ours(directory / "map.safetensors")


class Sets(Layout):
    """What ``advect transfer`` and ``advect repurpose`` write: result.json, and the files that it
    lists.
    """

    marks = ("result.json",)

    def knows(self, directory: Path, name: str) -> bool:
        return name in ("result.json", "report.html") or name in self._listed(directory)

    def is_proven(self, directory: Path) -> bool:
        return bool(self._listed(directory))

    @staticmethod
    def _listed(directory: Path) -> set[str]:
        try:
            facts = read_json(directory / "result.json")
        except InputError:
            return set()
        tables = [part_of(facts, part, dict) or {} for part in ("sets", "datasets")]
        files = [part_of(table, name, dict) or {} for table in tables for name in table]
        names = {part_of(file, k, str) for file in files for k in _FILES}
        return {name for name in names if name is not None}


def _is_config(directory: Path) -> bool:
    """Whether config.toml is that of a run as it was written, with what nobody writes by hand."""
    from advect.data.formats.guard import read_text

    try:
        read_config(directory)
        return tomllib.loads(read_text(directory / "config.toml")).keys() >= _SETTLED
    except InputError:
        return False

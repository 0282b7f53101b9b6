"""The directory of a run, and other directories that commands write.

config.toml     the resolved options; ``advect flow -c config.toml -o other`` repeats the run
env.json        versions, device, seed, digests of the inputs
space.json      the common feature space
frames.jsonl, frames/, metrics.jsonl, checkpoint-a and -b: written along the flow
result.json     how the run ended; missing while it runs, and after it was killed
report.html     its page
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import advect as ad
import advect.registry as registry
from advect._util import InputError, is_leftover, query, refuse_if, remove, set_aside
from advect.cli.options import TABLES, FlowSettings
from advect.cli.session import check_parents
from advect.registry import as_text

if TYPE_CHECKING:
    from advect.data.dataset import LabeledDataset
    from advect.flows.loop import Step
    from advect.flows.snapshots import Snapshot

Kind = TypeVar("Kind")
OBJECTS = [option.removeprefix("--") for option in TABLES]
_CHECKPOINTS = ("checkpoint-a.safetensors", "checkpoint-b.safetensors")
_FILES = {
    "run": r"config\.toml|(env|space|result)\.json|(frames|metrics)\.jsonl|report\.html"
    r"|checkpoint-[ab]\.safetensors|frames(/[0-9]{6,18}\.safetensors)?",
    "sets": r"result\.json|report\.html|(recommended|final|path)\.npz",
}
_MARKS = {"run": ("env.json", "digests"), "sets": ("result.json", "files")}  # file and key
_PASS_RUN = "Pass a directory that advect flow -o wrote."


def read_json(path: Path) -> dict[str, Any]:
    """Read what ``write_json`` wrote; empty if there is no file."""
    from advect.io.formats.guard import read_text, reading

    if not path.exists():
        return {}
    with reading(path, "a JSON file", ValueError):
        table = json.loads(read_text(path))
    refuse_if(not isinstance(table, dict), "not a JSON object", path, "Restore it from a copy.")
    return table


def entry(table: Mapping[str, Any], key: str, kind: type[Kind]) -> Kind | None:
    """The value of a key if it has that type, else None: files may be damaged."""
    value = table.get(key)
    return value if type(value) is kind else None


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run."""

    source: str
    target: str | None
    settings: FlowSettings

    def to_toml(self) -> str:
        """The content of config.toml; None and empty tables are left out."""
        import tomlkit

        table = {"source": self.source, "target": self.target, **asdict(self.settings)}
        for name in OBJECTS:
            table[name] = {key: _native(text) for key, text in (table[name] or {}).items()}
        values = {name: value for name, value in table.items() if value not in (None, {})}
        return tomlkit.dumps(dict(sorted(values.items(), key=lambda item: item[0] in OBJECTS)))

    @classmethod
    def read(cls, directory: Path) -> RunConfig:
        """Read config.toml."""
        from advect.io.formats.guard import read_text, reading

        path = directory / "config.toml"
        refuse_if(not path.exists(), "the run has no config.toml", directory, _PASS_RUN)
        with reading(path, "the configuration of a run", ValueError, KeyError, TypeError):
            return cls.parse(tomllib.loads(read_text(path)))

    @classmethod
    def parse(cls, values: dict[str, Any]) -> RunConfig:
        """The content of config.toml; ``ValueError`` for wrong types and unknown names."""
        from pydantic import TypeAdapter

        ends = {name: values.pop(name, None) for name in ("source", "target")}
        refuse_if(
            "steps" in values,
            "the run was written by advect 0.2",
            ends["source"],
            "Run the flow again, or use advect 0.2.",
        )
        for name in values.keys() & OBJECTS:
            values[name] = {key: as_text(value) for key, value in dict(values[name]).items()}
        if unknown := values.keys() - FlowSettings.__dataclass_fields__.keys():
            raise ValueError(f"unknown options {', '.join(sorted(unknown))}")
        return TypeAdapter(cls).validate_python({**ends, "settings": values})


def as_table(kind: str, made: Any) -> dict[str, str]:
    """An object as text by key, as options and config.toml have it."""
    table = registry.describe(kind, made)
    return {key: as_text(value) for key, value in table.items() if value is not None}


def _native(text: str) -> Any:
    """A number or truth value if the text is one, otherwise the text."""
    value = query.guess(text)
    return value if "," not in text and as_text(value) == text else text


def environment(settings: FlowSettings, digests: Mapping[str, str]) -> dict[str, Any]:
    """Versions, device, seed and digests."""
    import torch

    return {
        "advect": ad.__version__,
        **{name: version(name) for name in ("torch", "numpy")},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": settings.device,
        "threads": torch.get_num_threads(),
        "seed": settings.seed,
        "digests": dict(digests),
        "command": sys.argv,
    }


class Curves:
    """A callback that logs value, terms, speed and time of every step in metrics.jsonl as "flow"."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "metrics.jsonl"
        self._first, self._offset, self._clean = 0, 0.0, False

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        seconds = [] if start is None else start.history.get("seconds", [])
        self._first = 0 if start is None else start.index
        self._offset, self._clean = seconds[-1] if seconds else 0.0, False

    def __call__(self, step: Step) -> None:
        from advect.io.logs import append_line, is_metric, keep_lines

        if not self._clean:  # steps from here on are logged again
            first = self._first
            keep_lines(self.path, is_metric, lambda r: r["name"] != "flow" or r["index"] < first)
            self._clean = True
        record = {"value": step.value, "speed": step.speed, "terms": step.terms}
        record["seconds"] = step.seconds + self._offset
        append_line(self.path, {"name": "flow", "index": step.index, **record})


def open_run(directory: Path) -> Path:
    """The directory of a run, expanded; an error if a file of it is a link, a pipe or a directory."""
    from advect.io.formats.guard import check_plain
    from advect.io.logs import recover_run

    directory = directory.expanduser()
    recover_run(directory)
    refuse_if(not directory.is_dir(), "no such run directory", directory, _PASS_RUN)
    frames = directory / "frames.jsonl"
    refuse_if(not frames.exists(), "not a run directory", directory, _PASS_RUN)
    logs = ("config.toml", "frames.jsonl", "metrics.jsonl")
    for name in (*logs, "env.json", "space.json", "result.json", "report.html", *_CHECKPOINTS):
        check_plain(directory / name)
    frames = directory / "frames"
    refuse_if(frames.is_symlink(), "not a directory", frames, "Remove the link.")
    return directory


def check_free(directory: Path, overwrite: bool, kind: str = "run", remedy: str = "") -> bool:
    """Raise an error unless the directory is free, or may be replaced and holds only files of advect;
    whether it has results."""
    refuse_if(
        directory.exists() and not directory.is_dir(),
        "a file exists at this path",
        directory,
        "Choose another directory.",
    )
    check_parents(directory)
    what, paths = f"{directory} has files that advect did not write", []
    remedy_foreign = "Choose another directory, or move the file."
    for path in directory.rglob("*"):
        if not is_leftover(path.name) and path.name != ".lock":
            refuse_if(_is_foreign(path, directory, kind), what, path, remedy_foreign)
            paths.append(path)
    refuse_if(paths and not _is_ours(directory, kind), what, paths and paths[0], remedy_foreign)
    refuse_if(
        paths and not overwrite,
        "the directory has results already",
        directory,
        f"{remedy}Pass --overwrite to replace them.",
    )
    refuse_if(
        paths and Path.cwd().resolve().is_relative_to(directory.resolve()),
        "the current directory cannot be replaced",
        directory,
        "Change to another directory first.",
    )
    return bool(paths)


def _is_foreign(path: Path, directory: Path, kind: str) -> bool:
    name = path.relative_to(directory).as_posix()
    is_plain = path.is_dir() if name == "frames" else path.is_file()
    return path.is_symlink() or not is_plain or not re.fullmatch(_FILES[kind], name)


def _is_ours(directory: Path, kind: str) -> bool:
    """Whether the content of a directory, not only its names, shows that advect wrote it."""
    name, key = _MARKS[kind]
    try:
        return key in read_json(directory / name)
    except InputError:
        return False


def aside(directory: Path) -> AbstractContextManager[Callable[[], object]]:
    """``set_aside`` for an earlier run. A directory that cannot be moved is emptied, env.json last, which shows
    that advect wrote the other files."""
    if os.access(directory.parent, os.W_OK) and not directory.is_mount():
        return set_aside(directory)
    order = {"frames.jsonl": 0, "env.json": 2, ".lock": 3}
    paths = sorted(directory.iterdir(), key=lambda path: order.get(path.name, 1))
    for path in paths[: -1 if (directory / ".lock") in paths else None]:
        remove(path)
    return nullcontext(bool)

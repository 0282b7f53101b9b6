"""What is known of a run by looking at its directory, while it is going on or afterwards."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advect._util.lock import is_held
from advect._util.stored_facts import stored_facts
from advect.cli.rundir import entry, read_config, read_json
from advect.errors import InputError

_DEEP = 3  # folders below a root in which runs are looked for
_MOST_RUNS = 1000


@dataclass(frozen=True)
class RunFacts:
    """A run as it stands.

    Attributes:
        place: its directory.  source, target: what was asked for.
        status: how it ended; "running", or "interrupted or killed".
        curve: a record for each step that was logged.
        done, wanted: steps.  changed: when something was last written, in seconds since 1970.
    """

    place: Path
    source: str
    target: str | None
    status: str
    message: str
    running: bool
    curve: list[dict[str, Any]]
    wanted: int | None
    has_report: bool
    changed: float

    @classmethod
    def read(cls, place: Path) -> RunFacts:
        """What can be read; a file that is damaged, or being written, says nothing."""
        from advect.datasets.logs import is_metric, read_lines

        source, target, wanted, ended = "?", None, None, {}
        try:
            source, target, options = read_config(place)
            wanted = options.steps
            ended = read_json(place / "result.json")
        except InputError:
            pass
        running = is_held(place)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                log = read_lines(place / "metrics.jsonl", is_metric)
            except InputError:
                log = []
        status = "running" if running else entry(ended, "status", str) or "interrupted or killed"
        return cls(
            place,
            source,
            target,
            status,
            entry(ended, "message", str) or "",
            running,
            [record for record in log if record["name"] == "flow"],
            wanted,
            (place / "report.html").is_file(),
            _changed(place),
        )

    @property
    def done(self) -> int:
        """Steps that were logged."""
        return self.curve[-1]["index"] if self.curve else 0

    @property
    def kind(self) -> str:
        """The status as a name of a style."""
        return "interrupted" if self.status.startswith("interrupted") else self.status

    @property
    def values(self) -> tuple[float, float] | None:
        """The first value and the last."""
        return (self.curve[0]["value"], self.curve[-1]["value"]) if self.curve else None


def find_runs(roots: Sequence[Path]) -> Iterator[Path]:
    """Directories of runs, the roots themselves or below them; links are not followed."""
    count = 0
    for root in roots:
        for place in _below(root.resolve(), _DEEP):
            yield place
            count += 1
            if count >= _MOST_RUNS:
                return


def checkpoint_steps(place: Path) -> list[int]:
    """The steps of the checkpoints of a run that are whole."""
    found = [stored_facts(place / f"checkpoint-{turn}.safetensors") or {} for turn in "ab"]
    steps = [
        entry(facts, "index", int) for facts in found if facts.get("kind") == "advect snapshot"
    ]
    return sorted(step for step in steps if step is not None)


def _below(place: Path, depth: int) -> Iterator[Path]:
    if (place / "config.toml").is_file() and (place / "metrics.jsonl").is_file():
        yield place
        return
    if depth == 0:
        return
    try:
        entries = sorted(os.scandir(place), key=lambda one: one.name)
    except OSError:
        return
    for one in entries:
        if one.is_dir(follow_symlinks=False) and not one.name.startswith("."):
            yield from _below(Path(one.path), depth - 1)


def _changed(place: Path) -> float:
    try:
        return (place / "metrics.jsonl").stat().st_mtime
    except OSError:
        return 0.0

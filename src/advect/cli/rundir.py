"""The directory of a run: what was asked for, with what, and what became of it.

config.toml     the resolved options; ``advect flow -c config.toml -o other`` does it again
env.json        versions, device, seed, digests of the inputs
space.json      how both datasets came into one feature space
frames.jsonl, frames/, metrics.jsonl, checkpoint-a and -b: see ``advect.data.store``
result.json     how it ended; not there while it runs, or when it was killed
report.html     the page about it
"""

from __future__ import annotations

import json
import platform
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

from advect._util.atomic import write_atomically
from advect.cli.config import FlowOptions
from advect.cli.output import plain
from advect.errors import InputError

if TYPE_CHECKING:
    from advect.data.dataset import LabeledDataset
    from advect.flows.loop import Step
    from advect.flows.snapshots import Snapshot

Kind = TypeVar("Kind")


def write_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Facts as readable JSON, whole or not at all."""
    write_atomically(path, (json.dumps(plain(facts), indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """What ``write_json`` wrote; empty if it is not there."""
    from advect.data.formats.guard import read_text

    try:
        found = json.loads(read_text(path))
    except FileNotFoundError:
        return {}
    except InputError:  # no file at all
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            "not a JSON file, or damaged", f"{path} ({error})", "Remove it, or take it from a copy."
        ) from None
    if not isinstance(found, dict):
        raise InputError("not a JSON object", path, "Remove it, or take it from a copy.")
    return found


def entry(table: Any, key: str, kind: type[Kind]) -> Kind | None:
    """What a JSON object has under a key, if it is of that kind: files may be damaged.

    Example:
        >>> entry({"steps": 3, "status": 7}, "steps", int), entry({"status": 7}, "status", str)
        (3, None)
    """
    found = table.get(key)
    return found if type(found) is kind else None


def write_config(directory: Path, source: str, target: str | None, options: FlowOptions) -> None:
    """The resolved options as TOML."""
    import tomlkit

    whole = {
        "source": source,
        "target": target,
        **options.model_dump(mode="json", exclude_none=True),
    }
    kept = {name: value for name, value in whole.items() if value is not None and value != {}}
    ordered = dict(sorted(kept.items(), key=lambda item: type(item[1]) is dict))  # tables last
    write_atomically(directory / "config.toml", tomlkit.dumps(ordered).encode())


def read_config(directory: Path) -> tuple[str, str | None, FlowOptions]:
    """Source, target and options of a run."""
    from advect.data.formats.guard import read_text

    path = directory / "config.toml"
    try:
        values = tomllib.loads(read_text(path))
        ends = TypeAdapter(tuple[str, str | None])
        source, target = ends.validate_python((values.pop("source"), values.pop("target", None)))
        return source, target, FlowOptions.model_validate(values)
    except FileNotFoundError:
        raise InputError(
            "the run has no config.toml", directory, "Pass a directory that advect flow -o … wrote."
        ) from None
    except InputError:  # no file at all
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:  # of TOML, of text, of pydantic
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            "config.toml cannot be used", f"{path} ({why})", "Mend it, or take it from a copy."
        ) from None


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
    """A callback: at the first state, once the functional has a value, it writes what says how the
    run was made.
    """

    def __init__(self, write: Any) -> None:
        self._write, self._done = write, False

    def __call__(self, step: Step) -> None:
        if not self._done:
            self._write()
            self._done = True


class Curves:
    """A callback: value, terms, speed and time of every step, a line each in metrics.jsonl under
    the name ``flow``.
    """

    def __init__(self, directory: Path) -> None:
        self.path, self._first, self._offset = directory / "metrics.jsonl", 0, 0.0
        self._clean = False

    def begin(self, source: LabeledDataset, start: Snapshot | None) -> None:
        self._first = 0 if start is None else start.index
        seconds = [] if start is None else start.history.get("seconds", [])
        self._offset = seconds[-1] if seconds else 0.0
        self._clean = False

    def __call__(self, step: Step) -> None:
        from advect.datasets.logs import append_line, is_metric, keep_lines

        if not self._clean:  # steps from here on are logged anew
            keep_lines(
                self.path,
                is_metric,
                lambda record: record["name"] != "flow" or record["index"] < self._first,
            )
            self._clean = True
        record = {
            "value": step.value,
            "speed": step.speed,
            "seconds": step.seconds + self._offset,
            "terms": step.terms,
        }
        append_line(self.path, {"name": "flow", "index": step.index, **record})

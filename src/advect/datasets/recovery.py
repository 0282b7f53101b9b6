"""Frames whose line in ``frames.jsonl`` is damaged, found again by their files."""

from __future__ import annotations

import re
from pathlib import Path

from advect._util.stored_facts import stored_facts
from advect.datasets.logs import Log, Record, is_frame, is_metric, read_log

_NAME = re.compile(r"(?P<index>[0-9]{6,18})(?:\.1-of-(?P<shards>[0-9]{1,5}))?\.safetensors")


def frame_path(directory: Path, index: int, shard: int = 0, shards: int = 1) -> Path:
    """Where a frame, or one of several files of it, is kept."""
    part = f".{shard + 1}-of-{shards}" if shards > 1 else ""
    return directory / "frames" / f"{index:06d}{part}.safetensors"


def find_frames(directory: Path, log: Log) -> list[Record]:
    """The frames that damaged lines of the log may have named: those between the steps of the
    sound lines around them.

    A frame without a line is none, and what a crash left behind the last line is not to be taken
    for one: behind the last sound line, a frame must also have the value that ``metrics.jsonl`` has
    for its step, where that says anything."""
    if not log.damaged:
        return []
    known = {record["index"] for record in log.records.values()}
    files = [file for file in _files(directory) if file["index"] not in known]
    found: dict[int, Record] = {}
    for line in log.damaged:
        steps = {at: record["index"] for at, record in log.records.items()}
        before = max((step for at, step in steps.items() if at < line), default=-1)
        after = min((step for at, step in steps.items() if at > line), default=None)
        for file in files:
            between = before < file["index"] and (after is None or file["index"] < after)
            if between and file["index"] not in found:
                record = _with_value(directory, file, last=after is None)
                found |= {} if record is None else {file["index"]: record}
    return [found[index] for index in sorted(found)]


def frame_records(directory: Path) -> tuple[list[Record], bool]:
    """The frames of a run in the order of their lines, with those that were found again, and whether
    the log is damaged, which is said.
    """
    path = directory / "frames.jsonl"
    log = read_log(path, is_frame)
    found = find_frames(directory, log)
    steps = ", ".join(str(record["index"]) for record in found)
    log.warn(path, f"; frames of steps {steps} were found by their files" if found else "")
    return [*log.records.values(), *found], bool(log.damaged)


def _files(directory: Path) -> list[Record]:
    names = sorted(path.name for path in (directory / "frames").glob("*.safetensors"))
    matches = [match for name in names if (match := _NAME.fullmatch(name))]
    return [
        {"index": int(match["index"]), "shards": int(match["shards"] or 1)} for match in matches
    ]


def _with_value(directory: Path, file: Record, *, last: bool) -> Record | None:
    """The record of a frame whose files are whole; older ones have their value in the curves."""
    index, shards = file["index"], file["shards"]
    parts = range(max(1, shards))
    found = [stored_facts(frame_path(directory, index, shard, shards)) for shard in parts]
    facts = [part for part in found if part is not None]
    if len(facts) < len(parts):
        return None
    curve = {record["index"]: record["value"] for record in _curve(directory)}
    value = facts[0].get("value", curve.get(index))
    if last and curve and curve.get(index) != value:
        return None
    record = {"index": index, "value": value, "shards": shards}
    return record if facts[0].get("index", index) == index and is_frame(record) else None


def _curve(directory: Path) -> list[Record]:
    lines = read_log(directory / "metrics.jsonl", is_metric).records.values()
    return [record for record in lines if record["name"] == "flow"]

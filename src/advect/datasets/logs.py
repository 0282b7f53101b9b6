"""JSON-lines logs: append-only text files of records, each with a check of its own, so that damage
costs the lines it is in.

A record that is not whole is none: a torn last line of a crash is passed over, and any other line
that cannot be trusted is left out with a ``DamageWarning`` that names it. A log is mended by
whoever writes to it next."""

from __future__ import annotations

import json
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advect._util.atomic import sync_directory, write_atomically
from advect.data.formats.guard import check_plain
from advect.errors import DamageWarning, InputError

Record = dict[str, Any]
_LONGEST = 1 << 20  # bytes of a line: no record of ours comes near


@dataclass(frozen=True)
class Log:
    """The records of a log by line number, and the lines that are damaged."""

    records: dict[int, Record]
    damaged: tuple[int, ...] = ()

    def warn(self, path: Path, more: str = "") -> None:
        """Say which lines are damaged."""
        if self.damaged:
            few = ", ".join(map(str, self.damaged[:5])) + (", …" if len(self.damaged) > 5 else "")
            lines = f"line {few} is" if len(self.damaged) == 1 else f"lines {few} are"
            warnings.warn(
                f"{path}: {lines} damaged and left out{more}", DamageWarning, stacklevel=3
            )


def append_line(path: Path, record: Record) -> None:
    """Add a record and flush it to the disk; a torn last line is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_plain(path)
    new = not path.exists()
    with open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(max(0, size - 1))
            if file.read(1) != b"\n":
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_directory(path.parent)


def read_log(path: Path, sound: Callable[[Record], bool]) -> Log:
    """What a log holds; ``sound`` says whether a record belongs there."""
    check_plain(path)
    try:
        whole = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InputError(
            "cannot read the log", f"{path} ({error.strerror})", "Check the disk, or take a copy."
        ) from None
    records: dict[int, Record] = {}
    damaged = []
    for number, line in enumerate(whole[: whole.rfind(b"\n") + 1].split(b"\n")[:-1], start=1):
        record = _record(line)
        if record is not None and sound(record):
            records[number] = record
        elif line.strip():
            damaged.append(number)
    return Log(records, tuple(damaged))


def read_lines(path: Path, sound: Callable[[Record], bool] = lambda _: True) -> list[Record]:
    """The records of a log; a ``DamageWarning`` names the lines that are damaged."""
    log = read_log(path, sound)
    log.warn(path)
    return list(log.records.values())


def write_lines(path: Path, records: Iterable[Record]) -> None:
    """A log anew, whole or not at all."""
    write_atomically(path, b"".join(map(_line, records)))


def keep_lines(
    path: Path, sound: Callable[[Record], bool], wanted: Callable[[Record], bool]
) -> None:
    """Drop the other records and what is damaged; the log is whole before and after."""
    log = read_log(path, sound)
    after = [record for record in log.records.values() if wanted(record)]
    if log.damaged or len(after) < len(log.records):
        log.warn(path)
        write_lines(path, after)


def is_frame(record: Record) -> bool:
    """Whether a record is one of ``frames.jsonl``.

    Example:
        >>> is_frame({"index": 3, "value": 0.5}), is_frame({"index": "3", "value": 0.5})
        (True, False)
    """
    shards = record.get("shards", 1)
    known = record.keys() <= {"index", "value", "shards"} and _is_index(record.get("index"))
    return known and _is_number(record.get("value")) and _is_index(shards) and 1 <= shards <= 99999


def is_metric(record: Record) -> bool:
    """Whether a record is one of ``metrics.jsonl``: what was measured at a step, under a name."""
    terms = record.get("terms", {})
    numbers = (record.get("value"), record.get("seconds", 0.0), record.get("speed", 0.0))
    return (
        type(record.get("name")) is str
        and _is_index(record.get("index"))
        and all(map(_is_number, numbers))
        and type(terms) is dict
        and all(map(_is_number, terms.values()))
    )


def _line(record: Record) -> bytes:
    return json.dumps({**record, "check": _check(record)}).encode() + b"\n"


def _record(line: bytes) -> Record | None:
    """The record of a line, if it is one and its check is right; older logs have no checks."""
    try:
        record = json.loads(line) if len(line) <= _LONGEST else None
    except (ValueError, RecursionError):
        return None
    if type(record) is not dict:
        return None
    check = record.pop("check", None)
    return record if check is None or check == _check(record) else None


def _check(record: Record) -> str:
    return f"{zlib.crc32(json.dumps(record).encode()):08x}"


def _is_index(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_number(value: Any) -> bool:
    return (type(value) is int and abs(value) < 1 << 62) or (
        type(value) is float and not math.isinf(value)
    )

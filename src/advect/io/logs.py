"""Append-only JSON-lines logs, each line with a checksum.

A torn last line, as a crash leaves it, is skipped. Any other line that is damaged is skipped with a
``DamageWarning`` that names it. The next writer removes damaged lines."""

from __future__ import annotations

import json
import math
import os
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advect._util import DamageWarning, is_leftover, recover, sync_directory, write_atomically
from advect.io.formats.guard import check_plain, reading

Record = dict[str, Any]
_FIRST = {".lock", "env.json", "config.toml", "space.json", "frames", "frames.jsonl"}
_LONGEST = 1 << 20  # bytes of a line


def recover_run(directory: Path) -> None:
    """Put back the run that a killed ``flow --overwrite`` was about to replace."""
    recover(directory, _is_begun)


def _is_begun(directory: Path) -> bool:
    """Whether a directory has no more than a flow writes before its first checkpoint."""
    names = {path.name for path in directory.iterdir() if not is_leftover(path.name)}
    return names <= _FIRST and len([*directory.glob("frames/[0-9]*")]) < 2


def append_line(path: Path, record: Record) -> None:
    """Append a record and flush it to the disk; a torn last line is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    check_plain(path)
    new, no_link = not path.exists(), getattr(os, "O_NOFOLLOW", 0)
    with open(path, "ab+", opener=lambda name, mode: os.open(name, mode | no_link, 0o666)) as file:
        if size := file.seek(0, os.SEEK_END):
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_directory(path.parent)


def read_lines(path: Path, sound: Callable[[Record], bool] = lambda _: True) -> list[Record]:
    """The records of a log; a ``DamageWarning`` names lines that are damaged or not ``sound``."""
    return _read(path, sound)[0]


def keep_lines(
    path: Path, sound: Callable[[Record], bool], wanted: Callable[[Record], bool]
) -> None:
    """Rewrite a log with the wanted records only, atomically."""
    records, damaged = _read(path, sound)
    after = [record for record in records if wanted(record)]
    if damaged or len(after) < len(records):
        write_atomically(path, b"".join(map(_line, after)))


def _read(path: Path, sound: Callable[[Record], bool]) -> tuple[list[Record], list[int]]:
    """The records of a log, and the numbers of its damaged lines."""
    check_plain(path)
    with reading(path, "a log"):
        whole = path.read_bytes() if path.exists() else b""
    records, damaged = [], []
    for number, line in enumerate(whole[: whole.rfind(b"\n") + 1].split(b"\n")[:-1], start=1):
        record = _record(line)
        if record is not None and sound(record):
            records.append(record)
        elif line.strip():
            damaged.append(number)
    if damaged:
        few = ", ".join(map(str, damaged[:5])) + (", …" if len(damaged) > 5 else "")
        warnings.warn(f"{path}: damaged and skipped: line {few}", DamageWarning, stacklevel=4)
    return records, damaged


def is_frame(record: Record) -> bool:
    """Whether a record is one of ``frames.jsonl``."""
    fits = record.keys() <= {"index", "value"} and _is_index(record.get("index"))
    return fits and _is_number(record.get("value"))


def is_metric(record: Record) -> bool:
    """Whether a record is one of ``metrics.jsonl``: a named value at a step."""
    terms = record.get("terms", {})
    numbers = (record.get("value"), record.get("seconds", 0.0), record.get("speed", 0.0))
    named = type(record.get("name")) is str and _is_index(record.get("index"))
    return named and type(terms) is dict and all(map(_is_number, (*numbers, *terms.values())))


def _line(record: Record) -> bytes:
    return json.dumps({**record, "check": _check(record)}).encode() + b"\n"


def _record(line: bytes) -> Record | None:
    """The record of a line with a right checksum; older logs have none."""
    try:
        record: Any = json.loads(line) if len(line) <= _LONGEST else None
        check = record.pop("check", None)
    except (ValueError, RecursionError, AttributeError, TypeError):  # the last two: not an object
        return None
    return record if check is None or check == _check(record) else None


def _check(record: Record) -> str:
    return f"{zlib.crc32(json.dumps(record).encode()):08x}"


def _is_index(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_number(value: Any) -> bool:
    finite = type(value) is float and not math.isinf(value)
    return finite or (type(value) is int and abs(value) < 1 << 62)

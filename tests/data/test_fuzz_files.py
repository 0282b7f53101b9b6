"""Every reader against hundreds of damaged files: each is read or refused with a message, soon, in
little memory.

The files are made and read by ``fuzz_files`` in another process, with a limit on memory and on
time: a crash shows too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
WORKER = Path(__file__).with_name("fuzz_files.py")
TABLES = ["npz", "npy", "csv", "csv.gz", "tsv", "tsv.gz", "parquet"]
READERS = [*TABLES, "idx", "idx.gz", "png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"]
GROWTH = 512 << 20  # bytes beside what reading sound files takes


def attack(readers: str, count: int, seed: int, folder: Path) -> list[dict[str, Any]]:
    words = [
        sys.executable,
        "-W",
        "ignore",
        str(WORKER),
        readers,
        str(count),
        str(seed),
        str(folder),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, (
        f"ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(told: dict[str, Any], count: int) -> None:
    assert told["faults"] == [], (
        f"{told['reader']}, mutation {told['faults'][0][0]}:\n{told['faults'][0][1]}"
    )
    assert told["read"] + told["refused"] == count
    assert told["refused"] > 0, "hardly anything was damaged"
    assert told["grown"] < GROWTH


@pytest.mark.slow
def test_a_few_damaged_files_of_each_kind(tmp_path: Path) -> None:
    found = attack(",".join(READERS), 8, 0, tmp_path)
    assert [told["reader"] for told in found] == READERS
    for told in found:
        check(told, 8)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_hundreds_of_damaged_files(reader: str, tmp_path: Path) -> None:
    (told,) = attack(reader, 150, 1, tmp_path)
    check(told, 150)
    print(
        f"{reader}: {told['read']} read, {told['refused']} refused, slowest {told['slowest']:.1f} s"
    )

"""Every reader against damaged files: each is read or refused with a message, in little memory.

``fuzz_files`` makes and reads them in another process with limits on memory and time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("fuzz_files.py")
READERS = ["npz", "npy", "csv", "csv.gz", "parquet", "idx", "png", "jpeg", "tiff"]


def attack(readers, count, folder):
    words = [sys.executable, "-W", "ignore", str(WORKER), readers, str(count), "1", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    for line in done.stdout.splitlines():
        told = json.loads(line)
        assert told["faults"] == [], told["faults"][0]
        assert told["read"] + told["refused"] == count
        assert told["refused"] > 0, "hardly anything was damaged"
        assert told["grown"] < 512 << 20


def test_damaged_files_of_each_format(tmp_path):
    attack(",".join(READERS), 25, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_hundreds_of_damaged_files(reader, tmp_path):
    attack(reader, 150, tmp_path)

"""Commands that only look at files answer before torch could be loaded; others say that they load it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from advect._util.stored_facts import stored_facts
from advect.cli.app import main
from advect.data.store import write_tensors
from advect.flows.snapshots import load_snapshot

LOOK = "import sys; from advect.cli.app import main; code = main(sys.argv[1:]); sys.exit(7 if 'torch' in sys.modules else code)"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("light") / "run"
    line = ["flow", "toy:moons?n=20", "toy:rings?n=20&classes=2", "--steps", "2", "-o", str(place)]
    assert main([*line, "-q", "--no-report"]) == 0
    return place


@pytest.mark.slow
@pytest.mark.parametrize("line", [["show"], ["data", "list"], ["--help"], ["flow", "--help"]])
def test_looking_needs_no_torch(line, run):
    words = [*line, str(run)] if line == ["show"] else line
    done = subprocess.run([sys.executable, "-c", LOOK, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
def test_a_terminal_is_told_at_once_and_a_pipe_is_not(run):
    line = [sys.executable, "-m", "advect", "data", "info", "toy:moons?n=20"]
    ours, theirs = pty.openpty()
    subprocess.run(line, stderr=theirs, stdout=subprocess.DEVNULL, check=True)
    os.close(theirs)
    said = os.read(ours, 1000).decode()
    os.close(ours)
    assert said.split("\r\x1b[K") == ["loading …", "loading torch …", ""]
    assert not subprocess.run(line, capture_output=True, check=True).stderr


def test_facts_of_a_file_are_those_that_were_written(tmp_path):
    path = tmp_path / "file.safetensors"
    kinds = (torch.float64, torch.float32, torch.int64, torch.bool, torch.uint8, torch.bfloat16)
    tensors = {f"b{k}": torch.ones(3, k + 1).to(kind) for k, kind in enumerate(kinds)}
    write_tensors(path, tensors | {"a": torch.zeros(0, 2)}, {"index": 3, "name": "ü"})
    assert stored_facts(path) == {"index": 3, "name": "ü"}
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        assert stored_facts(path) is None
    path.write_bytes(content[:-1])
    assert stored_facts(path) is None


def test_checkpoints_are_seen_and_damaged_ones_are_not(run, tmp_path, capsys):
    import shutil

    place = Path(shutil.copytree(run, tmp_path / "run"))
    steps = sorted(load_snapshot(file).index for file in place.glob("check*"))
    assert main(["show", str(place)]) == 0
    assert f"checkpoints at {', '.join(map(str, steps))}" in capsys.readouterr().out
    newest = place / "checkpoint-a.safetensors"
    newest.write_bytes(newest.read_bytes()[:-3])
    assert main(["show", str(place)]) == 0
    assert f"checkpoints at {', '.join(map(str, steps))}" not in capsys.readouterr().out

"""kill −9 at random moments: nothing is lost, nothing is hidden, and whoever comes next can go on."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

import advect as ad
from advect._util import atomic as _atomic
from advect.cli.app import main
from advect.flows.snapshots import load_snapshot

A, B = "toy:gaussians?n=40&classes=2&seed=1", "toy:gaussians?n=40&classes=2&seed=2"
SMALL = ["--record-every", "1", "--checkpoint-every", "2", "-q"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What the commands work on: a finished run; and what a run of 16 steps should be."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main(["flow", A, B, "-o", "run", "--n-steps", "8", "--no-report", *SMALL]) == 0
        assert main(["flow", A, B, "-o", "whole", "--n-steps", "16", "--no-report", *SMALL]) == 0
        assert main(["map", "fit", "whole", "-o", "map", "--map", "nearest", "-q"]) == 0
        assert main(["data", "convert", A, "-o", "data.npz", "-q"]) == 0
        Path("page.html").write_text("the page before")
    return place


@pytest.fixture(autouse=True)
def place(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def killed(words, delay):
    """Run a command in a child of this process and kill it after so many seconds; whether it was still at work."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(main(words))
        finally:
            os._exit(99)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def same_as_whole(name):
    """A run that has come to 16 steps is the one that was never disturbed, bit for bit."""
    frames = [frame for frame in Path("whole/frames").iterdir() if frame.suffix == ".safetensors"]
    assert len(frames) == 17
    for frame in frames:
        assert Path(name, "frames", frame.name).read_bytes() == frame.read_bytes(), frame.name
    assert Path(name, "frames.jsonl").read_bytes() == Path("whole/frames.jsonl").read_bytes()


def after_flow():
    """A new run: what it had committed is there, and going on makes it whole."""
    kept = ad.Trajectory.open("new").indices if Path("new/frames.jsonl").exists() else []
    assert len(kept) < 4 or load_snapshot(Path("new")).index >= kept[-1] - 2
    again = ["resume", "new", "--no-report", "-q"]
    if not list(Path().glob("new/checkpoint-*")):
        again = [*CASES["flow"][0], "--overwrite"]
    assert main(again) == 0
    same_as_whole("new")


def after_resume():
    assert ad.Trajectory.open("run").indices[:9] == list(range(9))
    assert load_snapshot(Path("run")).index >= 8
    assert main(["resume", "run", "--n-steps", "16", "--no-report", "-q"]) == 0
    same_as_whole("run")


def old_or_new(path):
    """A check that a file is the one before or the one that the command writes, byte for byte."""

    def check():
        found = Path(path).read_bytes()
        words = next(words for words, each in CASES.values() if each is check)
        assert seconds(words) and not list(Path().rglob("*.tmp"))
        assert found in (Path("before", path).read_bytes(), Path(path).read_bytes())

    return check


REPLACE = ["--overwrite", "-q"]
CASES = {
    "flow": (["flow", A, B, "-o", "new", "--n-steps", "16", "--no-report", *SMALL], after_flow),
    "resume": (["resume", "run", "--n-steps", "16", "--no-report", "-q"], after_resume),
    "report": (["report", "run", "-o", "page.html", *REPLACE], old_or_new("page.html")),
    "convert": (["data", "convert", B, "-o", "data.npz", *REPLACE], old_or_new("data.npz")),
    "map": (
        ["map", "fit", "run", "-o", "map", "--map", "nearest", *REPLACE],
        old_or_new("map/map.safetensors"),
    ),
}


def seconds(words):
    """How long a command takes in a child of this process."""
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        os._exit(main(words))
    os.waitpid(child, 0)
    return time.perf_counter() - begun


def kill_often(name, times, place, made, capfd):
    """Kill a command so many times while it is at work, at moments spread over the time it takes."""
    words, check = CASES[name]
    length, draw, came, tries = seconds(words), random.Random(name), 0, 0
    while came < times and tries < 10 * times:
        for entry in os.listdir(place):
            path = place / entry
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(made, place, dirs_exist_ok=True)
        shutil.copytree(made, place / "before")
        _atomic._tidied.clear()  # as in a process that begins
        caught = killed(words, length * (came + draw.random()) / times)
        length *= 1.0 if caught else 0.95  # it was done before: the machine has become faster
        came, tries = came + caught, tries + 1
        check()
    with capfd.disabled():
        print(f"\n{name}: killed {came} times at work; nothing lost, nothing hidden")
    return came


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_killed_often(name, place, made, capfd):
    times = 8 if name in ("flow", "resume") else 4
    assert kill_often(name, times, place, made, capfd) == times

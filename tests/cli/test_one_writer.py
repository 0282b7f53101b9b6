"""One writer for each run: a second is refused, and the lock of a dead one is free. Signals end a flow."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from flow_cases import content

import advect as ad
from advect._util import atomic as _atomic
from advect._util.lock import Hold
from advect.cli.app import _signals_as_interrupts, main
from advect.io.trajectory import Trajectory

A, B = "toy:gaussians?n=12&classes=2&seed=1", "toy:gaussians?n=12&classes=2&seed=2"
FLOW = [sys.executable, "-m", "advect", "flow", A, B, "-o", "run", "-q", "--no-report"]
HOLD = """
import sys
from pathlib import Path
from advect._util.lock import Hold

with Hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


pytestmark = pytest.mark.usefixtures("empty")


@pytest.fixture
def holder():
    """Starts a process that holds a directory until it is killed."""
    started = []

    def start(place):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", HOLD, place], **pipes)
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def run(*words):
    return main([*map(str, words), "--no-report", "-q"])


@pytest.mark.slow
def test_a_second_writer_is_refused_and_a_dead_one_is_not_waited_for(holder, capsys):
    process = holder("run")
    assert run("flow", A, B, "-o", "run") == 2
    err = capsys.readouterr().err
    assert "another process" in err and f"process {process.pid} on " in err and err.count("\n") == 1
    assert not Path("run").exists()
    assert run("flow", A, B, "-o", "other", "--n-steps", "1") == 0
    process.kill()
    process.wait()
    assert Path(".run.lock").exists()  # left behind, and in nobody's way
    assert run("flow", A, B, "-o", "run", "--n-steps", "1") == 0
    assert not Path(".run.lock").exists()
    process = holder("run")
    for words in (["resume", "run"], ["flow", A, B, "-o", "run", "--overwrite"]):
        assert run(*words) == 2 and f"process {process.pid}" in capsys.readouterr().err
    before = content("run")
    for words in (["show", "run", "-q"], ["report", "run", "-o", "page.html", "-q"]):
        assert main(words) == 0  # readers may look
    assert content("run") == before


@pytest.mark.slow
def test_of_two_flows_at_the_same_time_one_is_refused():
    words = [*FLOW, "--n-steps", "30", "--record-every", "1"]
    both = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], said
    assert "another process" in "".join(said) or "already" in "".join(said)
    assert Trajectory.open("run").indices == list(range(31))


@pytest.mark.slow
def test_links_lead_to_the_same_lock(holder, capsys):
    Path("disk").mkdir()
    Path("link").symlink_to("disk/run", target_is_directory=True)
    process = holder("disk/run")
    assert run("flow", A, B, "-o", "link") == 2 and str(process.pid) in capsys.readouterr().err
    process.kill()
    process.wait()
    assert run("flow", A, B, "-o", "link", "--n-steps", "2") == 0  # a link to where nothing is yet
    assert Path("link").is_symlink() and Trajectory.open("disk/run").indices == [0, 1, 2]
    assert run("flow", A, B, "-o", "link", "--n-steps", "3", "--overwrite") == 0
    assert Path("link").is_symlink() and Trajectory.open("disk/run").indices == [0, 1, 2, 3]
    assert sorted(os.listdir("disk")) == ["run"]
    assert run("resume", "link", "--n-steps", "4") == 0
    assert Trajectory.open("disk/run").indices[-1] == 4


def flow(*callbacks):
    data = ad.LabeledDataset([[4.0]], ["a"])
    return ad.flow(data, ad.Potential(ad.norm()), n_steps=1, callbacks=callbacks)


def writers():
    return ad.Recorder(directory="run"), ad.Checkpoint("run"), ad.Metric("n", len, directory="run")


def test_from_python_too(holder):
    process = holder("run")
    for watch in writers():
        with pytest.raises(ad.InputError, match=f"process {process.pid} "):
            flow(watch)
    assert not Path("run").exists()


def test_a_flow_that_fails_releases_its_lock(holder):
    def fail(step):
        raise OSError("full")

    for watch in writers():
        with pytest.raises(OSError, match="full"):
            flow(watch, fail)
        assert not Path(".run.lock").exists()
    holder("run")


def test_places_without_locks_say_so(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(UserWarning, match="no locks"), Hold(Path("run")):
        assert os.listdir() == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(number):
    sets = [f"toy:gaussians?n=1200&seed={seed}" for seed in range(9)]
    words = [sys.executable, "-m", "advect", "matrix", *sets, "-j", "2", "-o", "m", "-q"]
    process = psutil.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    while not list(Path().glob("m/pairs/*")):
        assert process.poll() is None
        time.sleep(0.05)
    workers = process.children(recursive=True)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGTERM else -number)
    alive = psutil.wait_procs(workers, timeout=10)[1]
    assert len(workers) >= 2 and [w for w in alive if w.status() != psutil.STATUS_ZOMBIE] == []


def test_signals_to_be_ignored_are():
    """nohup, and a script that puts a run in the background."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        with _signals_as_interrupts():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) == before[1]
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGTERM, before[1])


def test_renames_are_flushed_with_their_directory(monkeypatch, tmp_path):
    flushed = []
    note = lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    monkeypatch.setattr("os.fsync", note)
    _atomic.write_atomically(tmp_path / "file", b"whole")
    assert flushed[-1] == str(tmp_path) and len(flushed) == 2
    flushed.clear()
    with _atomic.atomic_directory(tmp_path / "folder") as beside:
        (beside / "file").write_text("whole")
    assert flushed[-1] == str(tmp_path) and flushed[0].endswith("/file")

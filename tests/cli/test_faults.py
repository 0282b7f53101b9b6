"""An error of the disk, and kill −9, at each operation on a file: what is left is the old state or the new one, and
the next run is right."""

import builtins
import errno
import io
import json
import os
import re
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from flow_cases import content

import advect as ad
from advect.cli.app import main

A, B = "toy:gaussians?n=12&classes=2&seed=1", "toy:gaussians?n=12&classes=2&seed=2"
EVENTS = {"open": "open", "os.rename": "rename", "os.mkdir": "mkdir", "os.remove": "unlink"}
OPERATIONS = (*EVENTS.values(), "write", "fsync")
CHANGES = ("rename", "mkdir", "unlink", "write", "fsync")  # what kills come before
REST = ["-f", "norm", "--record-every", "1", "--checkpoint-every", "2", "--no-report", "-q"]
FLOW = ["flow", A, *REST, "--n-steps", "3", "-o"]


def save_index(data):
    index = ad.DatasetIndex(ad.datasets.load(A), n_directions=2, n_levels=2)
    index.add("one", ad.datasets.load(data))
    index.save("sets.index")
    return 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of one step, another one, what both should become, and a result of each other kind."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for source, n, name in ((A, "3", "whole"), (A, "1", "run"), (B, "3", "old")):
            assert main(["flow", source, *REST, "--n-steps", n, "-o", name]) == 0
        assert main(["data", "convert", A, "-o", "data.npz", "-q"]) == 0
        assert main(["report", "old", "-o", "page.html", "-q"]) == 0
        save_index(A)
    return place


def strike(operation, number, fault):
    """From here on, count the operations below the current directory; the fault comes in place of one of them."""
    place, calls, real = os.getcwd(), Counter(), open

    def happen(name, path="."):
        if not isinstance(path, int) and os.path.abspath(os.fsdecode(path)).startswith(place):
            calls[name] += 1
            if (name, calls[name]) == (operation, number):
                fault()

    class Raw(io.FileIO):
        def write(self, data):
            happen("write")
            return super().write(data)

    def opened(path, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **options):
        if isinstance(path, int) or not set(mode) & set("wax+"):
            return real(path, mode, buffering, encoding, errors, newline, **options)
        raw = Raw(path, mode.replace("b", "").replace("t", ""), **options)
        file = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        return file if "b" in mode else io.TextIOWrapper(file, encoding, errors, newline)

    def hook(event, values):
        if event in EVENTS:
            happen(EVENTS[event], values[0])

    sys.addaudithook(hook)
    io.open = builtins.open = opened
    os.fsync = lambda _: happen("fsync")
    return calls


def fail():
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def child(work, *where):
    """Run a command in a child of this process: its exit code, what it said, and how often it did what."""
    files = [Path(f"../{name}") for name in ("said", "calls")]
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            sys.stderr = said = io.StringIO()
            calls = strike(*(where or ("", 0, fail)))
            code = main(work) if isinstance(work, list) else work()
            files[1].write_text(json.dumps(calls))
        except OSError:  # not from the command line
            code = 1
        finally:
            files[0].write_text(said.getvalue())
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, files[0].read_text(), json.loads(files[1].read_text()) if code == 0 else {}


def frames(name):
    paths = (path for path in Path(name, "frames").iterdir() if not path.name.startswith("."))
    return {path.name: path.read_bytes() for path in paths}


def is_whole(name):
    assert frames(name) == frames("whole") and len(frames(name)) == 4
    assert Path(name, "frames.jsonl").read_bytes() == Path("whole/frames.jsonl").read_bytes()


def after_flow(code, again):
    """What was recorded is right, and the run can be continued, or begun again if it has no checkpoint."""
    if Path("new/frames.jsonl").exists():
        ad.Trajectory.open("new")
        assert frames("new").items() <= frames("whole").items()
    if code == 0:
        is_whole("new")
    if again:
        words = [*CASES["flow"][0], "--overwrite"]
        if any(Path().glob("new/checkpoint-?.safetensors")):
            words = ["resume", "new", "--no-report", "-q"]
        assert child(words)[0] == 0
        is_whole("new")


def after_resume(code, again):
    assert frames("before/run").items() <= frames("run").items() <= frames("whole").items()
    if code == 0:
        is_whole("run")
    if again:
        assert child(CASES["resume"][0])[0] == 0
        is_whole("run")


def after_overwrite(code, again):
    """The old run is complete, or the new one can be continued; nothing else is shown as a run."""
    shown, said, _ = child(["show", "old", "-q"])
    assert shown == 0, said
    if Path("old/config.toml").read_text() == Path("before/old/config.toml").read_text():
        assert code != 0 and content("old") == content("before/old")
    else:
        assert frames("old").items() <= frames("whole").items()
        words = ["resume", "old", "--no-report", "-q"]
        assert not again or child(words)[0] == 0
    if again:
        assert child(CASES["overwrite"][0])[0] == 0
        is_whole("old")


def old_or_new(name):
    """A check that a file is the one before or, bit for bit, the one that the work writes."""

    def check(code, again):
        found = Path(name).read_bytes() if Path(name).exists() else None
        is_old = found == Path("before", name).read_bytes()
        assert not (is_old and code == 0) and (found or Path(name).parent != Path())
        if again or not is_old:
            work = next(work for work, each in CASES.values() if each is check)
            assert child(work)[0] == 0
            # a page has a time, and what was missing
            is_page = (found or b"").rstrip().endswith(b"</html>")
            assert is_old or is_page or found in (None, Path(name).read_bytes())

    return check


REPLACE = ["--overwrite", "-q"]
CASES = {
    "flow": ([*FLOW, "new"], after_flow),
    "resume": (["resume", "run", "--n-steps", "3", "--no-report", "-q"], after_resume),
    "overwrite": ([*FLOW, "old", "--overwrite"], after_overwrite),
    "convert": (["data", "convert", B, "-o", "data.npz", *REPLACE], old_or_new("data.npz")),
    "report": (["report", "whole", "-o", "page.html", *REPLACE], old_or_new("page.html")),
    "index": (lambda: save_index(B), old_or_new("sets.index")),
}


def state():
    """What lies where, without times and numbers of processes."""
    names = {
        re.sub(r"\.[0-9a-f]{8}-\d+-[0-9a-f]{12}\.", ".", str(path)) for path in Path().rglob("*")
    }
    logs = [path.read_bytes() for path in sorted(Path().glob("*/[cf]*.[tj]*"))]
    return repr((sorted(names), logs))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fail, die])
@pytest.mark.parametrize("name", CASES)
def test_a_fault_at_each_operation(name, fault, made, tmp_path, monkeypatch, capfd):
    work, check = CASES[name]
    place, seen, faults = tmp_path / "place", set(), 0
    place.mkdir()
    monkeypatch.chdir(place)

    def restore():
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(made, place, dirs_exist_ok=True)
        shutil.copytree(made, place / "before")

    restore()
    code, said, calls = child(work)
    assert code == 0, said
    for operation in OPERATIONS if fault is fail else CHANGES:
        for number in range(1, calls.get(operation, 0) + 1):
            restore()
            code, said, _ = child(work, operation, number, fault)
            expected = (0, 1, 2) if fault is fail else (0, -signal.SIGKILL)
            assert code in expected, (operation, number)
            assert "Traceback" not in said, said
            left = state()
            check(code, again=left not in seen)
            if left not in seen:  # what the next run has removed
                assert not [*place.rglob(".*")], (operation, number)
            faults, seen = faults + 1, seen | {left}
    with capfd.disabled():
        print(f"\n{name}: {faults} times {fault.__name__}, {len(seen)} states; {dict(calls)}")
    assert faults > 3

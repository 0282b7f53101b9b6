"""The command line as a shell sees it: a process of its own, its streams, its time, and Ctrl-C at any moment."""

import json
import os
import random
import resource
import shlex
import signal
import subprocess
import sys
import time

import pytest
import torch

from advect.cli.app import COMMANDS, main
from advect.data.store import read_tensors

A, B = "toy:gaussians?n=80", "toy:gaussians?n=80&shift=6,0&seed=1"
STEPS = 150
FLOW = ["flow", A, B, "--n-steps", str(STEPS)]
FLOW += shlex.split("--integrator adam --integrator.step-size 0.03 --dynamics jd-fl --no-report")
FLOW += shlex.split("--record-every 50 --checkpoint-every 20")
HELPS = [[], *([command.name] for command in COMMANDS)]
HELPS += [[c.name, name] for c in COMMANDS if c.has_subcommands for name in c.functions]


def start(words, directory, **options):
    environment = {**os.environ, "COLUMNS": "100", "TERM": "dumb", "ADVECT_DATA": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "advect", *words],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # also under nohup
        **options,
    )


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.slow
def test_streams_and_codes(tmp_path):
    words = ["distance", A, B, "--solver.max-iter", "2", "--json", "--strict"]
    code, out, err = ended(start(words, tmp_path))
    assert code == 3 and json.loads(out)["converged"] is False and "\n" not in out.strip()
    assert "warning: " in err and "not converged" in err


def test_help_does_not_load_torch():
    code = (
        "import sys; from advect.cli.app import main\n"
        f"for words in {HELPS!r}:\n"
        "    assert main([*words, '--help']) == 0\n"
        "heavy = {'torch', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'ot', 'pandas'} & "
        "set(sys.modules)\n"
        "sys.exit(f'loaded for help: {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def user_time(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


@pytest.mark.slow
def test_help_is_quick():
    """Half a second or, on a slow machine, a third of the time that importing torch takes there."""
    taken = min(user_time("-m", "advect", "flow", "--help") for _ in range(3))
    assert taken < 0.5 or taken < user_time("-c", "import torch") / 3


@pytest.mark.slow
def test_a_closed_pipe_ends_quietly(tmp_path):
    line = f"{sys.executable} -m advect data list | head -1"
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.count("\n") == 1 and done.stderr == ""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole")
    code, _, err = ended(start([*FLOW, "-o", "run", "-q"], directory))
    assert code == 0, err
    return directory / "run"


def interrupt(directory, seed, number):
    """Send a signal at a random step; how far the flow had come, or None if it was too late."""
    moment = random.Random(seed)
    after = moment.randrange(1, STEPS - 40)
    process = start([*FLOW, "-o", "run", "-q"], directory)
    log = directory / "run" / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= after):
        time.sleep(0.002)
    time.sleep(moment.uniform(0, 0.01))
    process.send_signal(number)
    code, out, err = ended(process)
    if code == 0:
        return None
    assert code == 130, err
    assert "interrupted" in out and "advect resume run" in err and "Traceback" not in err
    done = json.loads((directory / "run" / "result.json").read_text())["n_steps"]
    assert done >= after - 1
    return done


def same_run(one, other):
    assert (one / "frames.jsonl").read_bytes() == (other / "frames.jsonl").read_bytes()
    for index in (0, 50, 100, STEPS):
        a, b = (read_tensors(run / "frames" / f"{index:06d}.safetensors") for run in (one, other))
        assert a[1] == b[1] and a[0].keys() == b[0].keys()
        assert all(torch.equal(a[0][name], b[0][name]) for name in a[0])
    assert curves(one) == curves(other)


def curves(run):
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [(row["index"], row["value"], row["terms"]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "number"), [(1, signal.SIGINT), (3, signal.SIGTERM), (4, signal.SIGHUP)]
)
def test_resumed_after_ctrl_c_is_uninterrupted(seed, number, uninterrupted, tmp_path, capsys):
    for other in range(seed, 30, 10):  # another moment, should one come too late
        place = tmp_path / str(other)
        place.mkdir()
        done = interrupt(place, other, number)
        if done is not None:
            break
    assert done is not None and 0 <= done < STEPS, "no signal came in time"
    capsys.readouterr()
    assert main(["resume", str(place / "run"), "--no-report", "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "completed"
    same_run(uninterrupted, place / "run")


SLOW = """
import sys, time
import advect as ad
from advect.cli.app import main
class Slow(ad.Functional):
    def __init__(self, source):
        self.source = source
    def __call__(self, rho):
        print("evaluating", flush=True)
        time.sleep(20)
        return (rho.weights * (rho.x - self.source.x).square().sum(1)).sum()
ad.register("functional", "slow", Slow)
sys.exit(main())
"""


@pytest.mark.slow
def test_a_script_registers_a_functional_and_ctrl_c_does_not_wait_for_it(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    words = [sys.executable, "slow.py", "flow", A, "-f", "slow", "-o", "run"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=tmp_path, **streams)
    assert process.stdout is not None and process.stdout.readline() == "evaluating\n"
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130 and time.monotonic() - begun < 10
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.2, 0.6])  # some of the libraries are being loaded
def test_ctrl_c_before_the_flow_writes_nothing(moment, tmp_path):
    process = start([*FLOW, "-o", "run"], tmp_path)
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    code, out, _ = ended(process)
    assert code in (130, -signal.SIGINT) and (out == "" or out.startswith("interrupted"))

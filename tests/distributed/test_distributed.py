"""One flow on several processes: the same trajectory as on one, and what happens when a rank is lost."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import distributed_worker as worker
import pytest
import torch
from covering import first_of_each
from safetensors.torch import load_file

import advect as ad
from advect.flows.snapshots import load_snapshot

SCRIPT = str(Path(worker.__file__))
with ad.distributed.group() as ALONE:  # a group of one
    assert ALONE.size == 1


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def environment(**more):
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return os.environ | threads | {"GLOO_SOCKET_IFNAME": "lo"} | more


def start(size, task, folder, come=None, **more):
    """Ranks as torchrun starts them, without its agent, which ends all ranks when one dies."""
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return [
        subprocess.Popen(
            [sys.executable, SCRIPT, task, str(folder)],
            env=environment(**shared, RANK=str(rank), LOCAL_RANK=str(rank), **more),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size if come is None else come)
    ]


def finish(ranks, patience=400):
    """Exit codes and what was written to stderr."""
    try:
        errors = [rank.communicate(timeout=patience)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.returncode for rank in ranks], errors


def seconds_to_notice(folder, rank):
    """From the death of a rank to the error of another."""
    return float(Path(folder, f"lost-{rank}").read_text()) - float(Path(folder, "died").read_text())


def together(size, task, folder):
    codes, errors = finish(start(size, task, folder))
    assert codes == [0] * size, errors


def assert_close(found, name):
    """The numbers of one process without a group, to 1e-5 and better."""
    tolerance = 1e-5 if name == "float32" else 1e-7
    source, functional, walk = worker.problem(name)
    for key, wanted in worker.outcome(ad.flow(source, functional, **walk)).items():
        close = {"rtol": tolerance, "atol": tolerance, "msg": f"{name}: {key}"}
        torch.testing.assert_close(found[key], wanted, **close)


def assert_same_as_alone(folder, size, names):
    """Every rank has the same bits, and those of one process."""
    ranks = [load_file(Path(folder, f"rank-{rank}.safetensors")) for rank in range(size)]
    for other in ranks[1:]:
        assert all(torch.equal(tensor, other[key]) for key, tensor in ranks[0].items())
    for name in names:
        keys = [key for key in ranks[0] if key.startswith(f"{name}/")]
        assert_close({key.split("/")[1]: ranks[0][key] for key in keys}, name)


@pytest.mark.parametrize(
    "name", first_of_each({name: name for name in worker.CASES}, lambda name: name.split()[0])
)
def test_one_rank_is_a_plain_flow(name):
    source, functional, walk = worker.problem(name, ALONE)
    assert_close(worker.outcome(ad.distributed.flow(source, functional, group=ALONE, **walk)), name)


def forked(rank, size, port, folder):
    """A rank that is a fork of this process, which takes no time to start."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update(environment(**shared, RANK=str(rank)))
    with ad.distributed.group(timeout=20) as group:
        worker.quick(folder, group)


def test_forked_ranks(tmp_path):
    options = {"nprocs": 2, "start_method": "fork"}
    torch.multiprocessing.start_processes(forked, (2, free_port(), str(tmp_path)), **options)
    assert_same_as_alone(tmp_path, 2, worker.QUICK)


@pytest.mark.slow
def test_two_ranks_under_torchrun(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    command += [SCRIPT, "most", str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert_same_as_alone(tmp_path, 2, worker.MOST)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_stops_the_others(victim, tmp_path):
    codes, errors = finish(start(2, "die", tmp_path, VICTIM=str(victim)))
    other = 1 - victim
    assert codes[victim] == -signal.SIGKILL and codes[other] == 1
    assert seconds_to_notice(tmp_path, other) < 10
    assert f"LostRankError: rank {other} of 2" in errors[other] and "resume" in errors[other]
    # what was committed can be read
    assert ad.Trajectory.open(tmp_path / "run").indices == [0, 1, 2]


@pytest.mark.slow
def test_two_ranks_then_four_then_one(tmp_path):
    wanted = worker.walk(tmp_path / "whole", ALONE)
    finish(start(2, "die", tmp_path))
    together(4, "go_on", tmp_path)
    assert_same_as_alone(tmp_path, 4, worker.FEW)
    result = worker.walk(tmp_path, ALONE, resume=tmp_path / "run")
    assert torch.allclose(torch.tensor(result.values), torch.tensor(wanted.values), rtol=1e-7)
    frames = ad.Trajectory.open(tmp_path / "run")
    assert frames.indices == list(range(wanted.n_steps + 1))
    for frame, other in zip(frames, wanted.trajectory, strict=True):
        assert torch.allclose(frame.dataset.x, other.dataset.x, rtol=1e-7, atol=1e-7)
        for part in ("y", "weights"):
            assert torch.equal(getattr(frame.dataset, part), getattr(other.dataset, part))


@pytest.mark.slow
def test_all_cases_on_three_ranks(tmp_path):
    together(3, "compare", tmp_path)
    assert_same_as_alone(tmp_path, 3, worker.CASES)


@pytest.mark.slow
def test_resume_on_as_many_ranks_is_bit_for_bit(tmp_path):
    together(2, "walk", tmp_path / "whole")
    finish(start(2, "die", tmp_path))
    together(2, "resume", tmp_path)
    runs = tmp_path / "run", tmp_path / "whole" / "run"
    frames, wanted = (ad.Trajectory.open(run) for run in runs)
    assert frames.indices == wanted.indices == list(range(9))
    for frame, other in zip(frames, wanted, strict=True):
        assert frame.value == other.value and torch.equal(frame.dataset.x, other.dataset.x)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["all", "one"])
def test_an_interruption_stops_every_rank(ranks, tmp_path):
    victim = {"VICTIM": "1"} if ranks == "one" else {}
    codes, errors = finish(start(2, "interrupt", tmp_path, **victim))
    assert codes == ([1, 0] if ranks == "one" else [0, 0]), errors
    if ranks == "one":
        assert "LostRankError" in errors[0]
    else:
        assert load_snapshot(tmp_path / "run").index == 2


@pytest.mark.slow
def test_a_rank_that_hangs_is_given_up_after_the_timeout(tmp_path):
    ranks = start(2, "hang", tmp_path, TIMEOUT="4")
    _, error = ranks[0].communicate(timeout=60)
    ranks[1].kill()  # SIGKILL reaches a stopped process
    ranks[1].communicate()
    assert ranks[0].returncode == 1
    assert 3 < seconds_to_notice(tmp_path, 0) < 14
    assert "LostRankError" in error and re.search(r"did not answer for [34]\.\d s", error)


@pytest.mark.slow
def test_a_rank_that_never_comes_is_an_error(tmp_path):
    _, errors = finish(start(2, "walk", tmp_path, come=1, TIMEOUT="5"))
    assert "the ranks could not connect" in errors[0]


def test_a_checkpoint_of_one_functional_is_one_of_the_other(tmp_path):
    source, target = worker.pair()
    options = {"cost": worker.EXACT_LAWS, "solver": worker.CLOSE}
    plain, sharded = ad.OTDD(target, **options), ad.OTDD(target, group=ALONE, **options)
    walk = {"integrator": ad.Euler(0.3)}
    ad.flow(source, plain, n_steps=2, callbacks=[ad.Checkpoint(tmp_path)], **walk)
    resumed = ad.flow(source, sharded, n_steps=4, resume=tmp_path, **walk)
    whole = ad.flow(source, plain, n_steps=4, **walk)
    assert torch.allclose(resumed.dataset.x, whole.dataset.x, atol=1e-8)
    assert resumed.terms.keys() == {"OTDD"}

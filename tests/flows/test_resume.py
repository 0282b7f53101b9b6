"""Stopping and going on: a resumed flow is bit for bit the uninterrupted one, however the first part ended."""

import json
import os
import pickle
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from flow_cases import interrupt_at
from safetensors.torch import save_file
from sklearn.cluster import DBSCAN

import advect as ad
from advect.data.store import read_tensors, write_tensors
from advect.flows.snapshots import CHECKPOINTS, load_snapshot

N_STEPS = 7
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])

DYNAMICS = {
    "fd": ad.FeatureDriven(),
    "fd-detached": ad.FeatureDriven(through_laws=False),
    "fl-euclidean": ad.JointFixedLabels("euclidean"),
    "fl-bures": ad.JointFixedLabels("bures"),
    "fl-factored": ad.JointFixedLabels("factored"),
    "fl-diagonal": ad.JointFixedLabels("diagonal"),
    "vl-kmeans": ad.JointVariableLabels(),
    "vl-dbscan": ad.JointVariableLabels(DBSCAN(eps=1.5, min_samples=2), every=2),
}
INTEGRATORS = {
    "euler": ad.Euler(0.3),
    "decay": ad.Euler(ad.Decay(0.4, half_life=3)),
    "momentum": ad.Momentum(0.1),
    "adam": ad.Adam(0.1),
    "maruyama": ad.EulerMaruyama(0.1, temperature=0.05),
}


ENERGIES = {
    "exact": lambda target: ad.OTDD(target, solver=ad.ExactOT()),
    "sum": lambda target: (
        ad.OTDD(target) + 0.1 * ad.Potential(ad.norm()) + 0.5 * ad.Interaction(ad.repulsion())
    ),
    "two targets": lambda target: (
        0.5 * ad.OTDD(target)
        + 0.5 * ad.OTDD(target.replace(x=target.x - 2), solver=ad.Sinkhorn(0.5))
    ),
    "diffusing": lambda target: ad.OTDD(target) + 0.1 * ad.Internal(),
}


def pair(dtype=torch.float32, n=11):
    generator = torch.Generator().manual_seed(5)
    source = ad.datasets.gaussians(n, generator=generator)
    source = source.replace(weights=torch.linspace(1, 2, n).tolist())
    target = ad.datasets.gaussians(n + 2, shift=(3.0, 1.0), rotation=0.4, generator=generator)
    return source.to(dtype=dtype), target.to(dtype=dtype)


@dataclass
class Setting:
    """A flow that can be run again from scratch: its functional and its generator are made anew each time."""

    source: ad.LabeledDataset
    target: ad.LabeledDataset
    energy: object = ad.OTDD
    dynamics: object = None
    integrator: object = None

    def run(self, callbacks=(), n_steps=N_STEPS, resume=None):
        options = {"dynamics": self.dynamics, "integrator": self.integrator, "resume": resume}
        options |= {"callbacks": callbacks, "generator": torch.Generator().manual_seed(3)}
        return ad.flow(self.source, self.energy(self.target), n_steps=n_steps, **options)


def setting(dynamics="fd", integrator="momentum", dtype=torch.float32, energy=ad.OTDD):
    return Setting(*pair(dtype), energy, DYNAMICS[dynamics], INTEGRATORS[integrator])


def same_data(a, b):
    assert torch.equal(a.x, b.x) and a.x.dtype == b.x.dtype
    assert torch.equal(a.y, b.y) and torch.equal(a.weights, b.weights)
    assert a.classes == b.classes and a.sample_shape == b.sample_shape
    assert (a.law is None) == (b.law is None) and (a.law_index is None) == (b.law_index is None)
    if a.law is not None:
        assert type(a.law.covariance) is type(b.law.covariance)
        assert torch.equal(a.law.means, b.law.means)
        assert torch.equal(a.law.covariances(), b.law.covariances())
        held, other = a.law.covariance.tensors(), b.law.covariance.tensors()
        assert held.keys() == other.keys()
        assert all(torch.equal(held[name], other[name]) for name in held)
    if a.law_index is not None:
        assert torch.equal(a.law_index, b.law_index)


def same_frames(a, b):
    assert a.indices == b.indices
    for one, other in zip(a, b, strict=True):
        assert (one.index, one.value) == (other.index, other.value)
        same_data(one.dataset, other.dataset)


def same_result(a, b):
    assert a.values == b.values and a.terms == b.terms
    assert a.speeds == b.speeds and a.n_steps == b.n_steps
    assert len(a.seconds) == len(b.seconds) == len(a.values)
    assert b.seconds == sorted(b.seconds) and b.seconds[0] > 0
    same_data(a.dataset, b.dataset)


class Crash:
    """Keeps what a run directory holds at a step, as if the process had died right there."""

    def __init__(self, directory, copies):
        self.directory, self.copies = directory, copies  # {step: where to}

    def __call__(self, step):
        if step.index in self.copies:
            shutil.copytree(self.directory, self.copies[step.index])


@pytest.fixture
def unsynced(monkeypatch):
    """Hundreds of small files: what the disk has is not the question here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def crash_and_resume(case, tmp_path):
    """Crash at step 3 with checkpoints at every second, so go on from 2; and at step 4, so go on from there."""
    run, copies = tmp_path / "run", {3: tmp_path / "three", 4: tmp_path / "four"}
    callbacks = [ad.Recorder(directory=run), ad.Checkpoint(run, every=2), Crash(run, copies)]
    whole = case.run(callbacks, n_steps=5)
    assert whole.status in ("completed", "rose") and whole.trajectory.indices == list(range(6))
    for directory, index in ((copies[3], 2), (copies[4], 4)):
        assert load_snapshot(directory).index == index
        callbacks = [ad.Recorder(directory=directory), ad.Checkpoint(directory, every=2)]
        resumed = case.run(callbacks, n_steps=5, resume=directory)
        same_result(whole, resumed)
        same_frames(whole.trajectory, resumed.trajectory)
    return whole


@DTYPES
@pytest.mark.parametrize("integrator", INTEGRATORS)
@pytest.mark.parametrize("dynamics", DYNAMICS)
def test_resumed_is_uninterrupted(dynamics, integrator, dtype, tmp_path, unsynced):
    crash_and_resume(setting(dynamics, integrator, dtype), tmp_path)


@pytest.mark.slow
@DTYPES
@pytest.mark.parametrize("dynamics", ["fd", "fl-bures", "fl-factored", "fl-diagonal"])
def test_flows_with_rejected_steps_resume(dynamics, dtype, tmp_path, unsynced):
    case = setting(dynamics, "euler", dtype)
    case.integrator = ad.Euler(2.5)
    whole = crash_and_resume(case, tmp_path)
    assert load_snapshot(tmp_path / "run").control["scale"] < 1 and whole.status == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("energy", ENERGIES.values(), ids=ENERGIES)
@pytest.mark.parametrize("dynamics", ["fd", "fl-bures", "vl-kmeans"])
def test_sums_and_solvers_resume(dynamics, energy, tmp_path, unsynced):
    crash_and_resume(setting(dynamics, "adam", energy=energy), tmp_path)


def test_resume_from_a_file_of_the_middle(tmp_path, unsynced):
    case = setting()
    whole = case.run([ad.Checkpoint(tmp_path, every=6)])
    indices = {name: load_snapshot(tmp_path / name).index for name in CHECKPOINTS}
    assert sorted(indices.values()) == [6, 7]
    middle = next(name for name, index in indices.items() if index == 6)
    same_result(whole, case.run(resume=tmp_path / middle))
    same_result(whole, case.run(resume=str(tmp_path / middle)))


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_the_file_that_a_flow_came_from_is_not_the_first_to_go(damaged, tmp_path, unsynced):
    """Which is older is read off the file, not off the clock; a damaged one is written over."""
    case = setting()
    case.run([ad.Checkpoint(tmp_path, every=1)], n_steps=4)
    indices = {name: load_snapshot(tmp_path / name).index for name in CHECKPOINTS}
    newest, oldest = max(indices, key=indices.get), min(indices, key=indices.get)
    if damaged:
        (tmp_path / newest).write_bytes(b"damaged")
    else:  # copied with other times, as by a version control system or an archive
        os.utime(tmp_path / newest, ns=(1, 1))
    stop = [interrupt_at(4)] if damaged else []
    case.run([ad.Checkpoint(tmp_path, every=1), *stop], n_steps=5, resume=tmp_path)
    left = [load_snapshot(tmp_path / name).index for name in (newest, oldest)]
    assert left == ([4, 3] if damaged else [4, 5])


def test_interrupt_while_evaluating(tmp_path, unsynced):
    """Ctrl-C in the middle of a step: the state of the step before is what is kept."""

    class Once(ad.OTDD):
        calls = 0

        def terms(self, rho, state):
            Once.calls += 1
            found = super().terms(rho, state)
            if Once.calls == 4:
                raise KeyboardInterrupt
            return found

    case = setting(energy=Once)
    first = case.run([ad.Checkpoint(tmp_path, every=100)])
    assert first.status == "interrupted" and first.n_steps == 2 and len(first.values) == 3
    same_result(case.run(), case.run(resume=tmp_path))


DAMAGE = {
    "empty": lambda content: b"",
    "header": lambda content: content[:60],
    "last-byte": lambda content: content[:-1],
    "longer": lambda content: content + b"more",
    "noise": lambda content: random.Random(0).randbytes(len(content)),
    # Once: numbers that went bad in place (a lost block reads as zeros) are taken for good: there is no checksum.
    "lost-block": lambda content: content[:-64] + bytes(64),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoints(damage, tmp_path, unsynced):
    case = setting("fd", "adam")
    whole = case.run([ad.Checkpoint(tmp_path, every=1)])
    assert sorted(load_snapshot(tmp_path / name).index for name in CHECKPOINTS) == [6, 7]
    good = {name: (tmp_path / name).read_bytes() for name in CHECKPOINTS}
    for name in CHECKPOINTS:
        (tmp_path / name).write_bytes(DAMAGE[damage](good[name]))
        same_result(whole, case.run(resume=tmp_path))
        with pytest.raises(ad.InputError):
            case.run(resume=tmp_path / name)
        (tmp_path / name).write_bytes(good[name])
    for name in CHECKPOINTS:
        (tmp_path / name).write_bytes(DAMAGE[damage](good[name]))
    with pytest.raises(ad.InputError, match="no usable checkpoint"):
        case.run(resume=tmp_path)


def test_what_is_no_checkpoint(tmp_path):
    case = setting()
    bare, other = tmp_path / "bare.safetensors", tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(3)}, bare)
    save_file({"x": torch.zeros(3)}, other, metadata={"facts": json.dumps({"kind": "other"})})
    case.run([ad.Recorder(directory=tmp_path)], n_steps=1)
    for path, message in {
        bare: "not a file of advect",
        other: "not a (checkpoint|file of advect)",
        tmp_path / "frames" / "000001.safetensors": "not a checkpoint",
        tmp_path: "no usable checkpoint.*no such file",
        tmp_path / "nowhere": "no such file",
    }.items():
        with pytest.raises(ad.InputError, match=message):
            case.run(resume=path)


@pytest.mark.parametrize(
    "change", [lambda facts: facts["history"]["values"].pop(), lambda facts: facts["history"].update(speeds=["fast"]),
    lambda facts: facts.update(index=-1)],
)  # fmt: skip
def test_facts_that_do_not_belong_together(change, tmp_path):
    case = setting()
    case.run([ad.Checkpoint(tmp_path, every=1)], n_steps=2)
    path = tmp_path / CHECKPOINTS[0]
    tensors, facts = read_tensors(path)
    change(facts)
    write_tensors(path, tensors, facts)
    with pytest.raises(ad.InputError):
        case.run(resume=path)


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_pickles_are_never_opened(form, tmp_path):
    mark = tmp_path / "executed"
    content = pickle.dumps(Bomb(mark))
    pickle.loads(content)
    assert mark.exists()  # it would go off
    mark.unlink()
    for path in (tmp_path / CHECKPOINTS[0], tmp_path / CHECKPOINTS[1]):
        path.write_bytes(content) if form == "pickle" else torch.save(Bomb(mark), path)
    for path in (tmp_path / CHECKPOINTS[0], tmp_path):
        with pytest.raises(ad.InputError):
            setting().run(resume=path)
    with pytest.raises(ad.InputError):
        ad.maps.load(tmp_path / CHECKPOINTS[0])
    frames = tmp_path / "frames"
    frames.mkdir()
    shutil.copy(tmp_path / CHECKPOINTS[0], frames / "000000.safetensors")
    (tmp_path / "frames.jsonl").write_text('{"index": 0, "value": 1.0}\n')
    with pytest.raises(ad.InputError):
        ad.Trajectory.open(tmp_path)[0]
    assert not mark.exists()

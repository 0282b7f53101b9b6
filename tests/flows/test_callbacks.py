"""What watches a flow: recorders, checkpoints, stops, metrics, progress; how a flow ends; what is on disk meanwhile."""

import gc
import io
import json
import math
import os
import tracemalloc
from types import SimpleNamespace

import pytest
import torch
from covering import examples
from flow_cases import Terminal, interrupt_at
from hypothesis import given, strategies as st

import advect as ad
from advect.flows.snapshots import CHECKPOINTS, load_snapshot
from advect.io.logs import append_line, read_lines

UNIT = ad.Euler(1.0)


def data():
    """Under the norm and unit steps the value falls by one at each step: 6, 5, 4 …"""
    return ad.LabeledDataset([[54.0], [58.0]], ["a", "b"])


def run(*callbacks, n_steps=5, functional=None, **options):
    options = {"integrator": UNIT, "n_steps": n_steps, "callbacks": callbacks, **options}
    return ad.flow(data(), functional or ad.Potential(ad.norm()), **options)


class FailsAt(ad.Functional):
    """Zero until the k-th call, and then a number or gradient that is none."""

    def __init__(self, call, value=math.nan, gradient=False):
        self.call, self.value, self.gradient, self.calls = call, value, gradient, 0

    def __call__(self, rho):
        self.calls += 1
        if self.calls <= self.call:
            return 0 * rho.x.sum()
        return (0 * rho.x).sqrt().sum() if self.gradient else self.value + 0 * rho.x.sum()


@pytest.mark.parametrize(
    ("every", "n_steps", "kept"),
    [(1, 3, [0, 1, 2, 3]), (2, 5, [0, 2, 4, 5]), (2, 4, [0, 2, 4]), (10, 3, [0, 3]), (7, 0, [0])],
)
def test_recorder_keeps_every_kth_and_the_last(every, n_steps, kept, tmp_path):
    memory = run(ad.Recorder(every), n_steps=n_steps).trajectory
    disk = run(ad.Recorder(every, tmp_path / "run"), n_steps=n_steps).trajectory
    opened = ad.Trajectory.open(str(tmp_path / "run"))
    assert memory.directory is None and disk.directory == tmp_path / "run"
    for trajectory in (memory, disk, opened):
        assert trajectory.indices == kept and len(trajectory) == len(kept)
        assert [frame.index for frame in trajectory] == kept and trajectory[-1].index == kept[-1]
        for frame, other in zip(trajectory, memory, strict=True):
            assert frame.value == other.value == 56 - frame.index
            assert torch.equal(frame.dataset.x, other.dataset.x)
            assert frame.dataset.classes == ("a", "b")


def test_recorder_overwrite(tmp_path):
    run(ad.Recorder(1, tmp_path), n_steps=5)
    with pytest.raises(ad.InputError, match="another flow"):
        run(ad.Recorder(1, tmp_path), n_steps=2)
    assert ad.Trajectory.open(tmp_path).indices == [0, 1, 2, 3, 4, 5]
    result = run(ad.Recorder(1, tmp_path, overwrite=True), n_steps=2, integrator=ad.Euler(2.0))
    assert result.trajectory.indices == ad.Trajectory.open(tmp_path).indices == [0, 1, 2]
    assert ad.Trajectory.open(tmp_path)[2].dataset.x.flatten().tolist() == [50.0, 54.0]
    # Once: files of the frames that were overwritten stay behind.
    names = sorted(path.name for path in (tmp_path / "frames").iterdir())
    assert names == [f"{k:06d}.safetensors" for k in range(3)]


BAD = [
    *((lambda every=every: ad.Recorder(every), "every") for every in (0, -1, 1.5, "two")),
    (lambda: ad.Checkpoint("run", 0), "every"),
    (lambda: ad.Metric("m", len, 0), "every"),
    (lambda: ad.Trajectory.open("nowhere"), "no recorded frames"),
    (lambda: ad.StopWhen(), "needs a condition"),
    (lambda: ad.StopWhen(tol=0), "tol"),
    (lambda: ad.StopWhen(seconds=math.inf), "seconds"),
    (lambda: ad.StopWhen(tol=0.1, patience=0), "patience"),
    (lambda: ad.flow(torch.zeros(3, 1), ad.Potential(ad.norm())), "LabeledDataset"),
    (lambda: ad.flow(data(), ad.norm()), "Functional"),
    (lambda: run("no function"), "callback"),
    *((lambda n=n: run(n_steps=n), "n_steps") for n in (-1, 1.5, "many")),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("make", "keyword"), BAD)
def test_bad_input(make, keyword):
    with pytest.raises(ad.InputError, match=keyword):
        make()


def held():
    """Bytes of all tensors that are alive, and of what else Python and numpy have allocated."""
    gc.collect()
    # others, of other tests, have no storage: sparse ones, and those of graphs that are exported
    kinds = (torch.Tensor, torch.nn.Parameter)
    alive = [one for one in gc.get_objects() if type(one) in kinds and one.layout == torch.strided]
    storages = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in alive}
    return sum(storages.values()), tracemalloc.get_traced_memory()[0]


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [True, False])
def test_memory_stays_flat(streamed, tmp_path, monkeypatch):
    """Between two steps no tensor more is held, whatever has been recorded: counted, since what the allocator keeps
    for later is no concern of ours. Frames that are kept in memory are seen."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    source = ad.LabeledDataset(torch.rand(2000, 50), torch.arange(2000) % 5)
    frame, kept, seen = source.x.numel() * 4, 24, {}

    def watch(step):
        if step.index in (40, 40 + 5 * kept):
            seen[step.index] = held()

    recorder = ad.Recorder(5, tmp_path if streamed else None)
    callbacks = [recorder, ad.Checkpoint(tmp_path, every=20), watch]
    tracemalloc.start()
    try:
        options = {"integrator": ad.Adam(0.01), "n_steps": 40 + 5 * kept, "callbacks": callbacks}
        result = ad.flow(source, ad.Potential(ad.norm()), **options)
    finally:
        tracemalloc.stop()
    assert len(result.trajectory) == 9 + kept
    tensors, others = (after - before for before, after in zip(*seen.values(), strict=True))
    # in memory: the features, and one byte a sample for the mask of labeled samples
    assert tensors == (0 if streamed else kept * (frame + len(source)))
    assert others < frame  # curves: some numbers for each step


def test_checkpoints_rotate_and_the_newest_wins(tmp_path):
    seen = []

    def look(step):
        paths = [tmp_path / name for name in CHECKPOINTS if (tmp_path / name).exists()]
        indices = sorted(load_snapshot(path).index for path in paths)
        seen.append((indices, load_snapshot(tmp_path).index))

    run(ad.Checkpoint(tmp_path, every=2), look, n_steps=5)
    assert seen == [([0], 0), ([0], 0), ([0, 2], 2), ([0, 2], 2), ([2, 4], 4), ([2, 4], 4)]
    assert load_snapshot(tmp_path).index == 5  # the end
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(CHECKPOINTS)


def test_checkpoint_of_the_last_good_state(tmp_path):
    result = run(ad.Checkpoint(tmp_path, every=100), functional=FailsAt(3), n_steps=9)
    assert result.status == "diverged" and load_snapshot(tmp_path).index == 2
    assert torch.equal(load_snapshot(tmp_path).dataset.x, result.dataset.x)


@pytest.mark.parametrize(
    ("condition", "index", "message"), [({"below": 53.5}, 3, "the value 53 is below 53.5"),
    ({"below": 56.5}, 0, "the value 56 is below 56.5"), ({"seconds": 1e-9}, 0, "0 s have passed"),
    ({"tol": 0.5, "patience": 2}, 4, "the value has settled at 52"),
    ({"tol": 1.0, "patience": 1}, 1, "the value has settled at 55")],
)  # fmt: skip
def test_each_condition_stops(condition, index, message):
    result = run(ad.StopWhen(**condition), n_steps=20)
    assert (result.status, result.n_steps, result.message) == ("stopped", index, message)
    assert len(result.values) == index + 1


def mean(rho):
    return rho.x.mean()


def test_metrics(tmp_path):
    first, second = ad.Metric("mean", mean, every=2, directory=tmp_path), ad.Metric("n", len)
    result = run(first, second, n_steps=3)
    assert result.metrics == {"mean": [(0, 56.0), (2, 54.0)], "n": [(k, 2.0) for k in range(4)]}
    assert all(type(value) is float for entries in result.metrics.values() for _, value in entries)
    expected = [{"name": "mean", "index": k, "value": 56.0 - k} for k in (0, 2)]
    assert read_lines(tmp_path / "metrics.jsonl") == expected


def test_a_resume_keeps_earlier_figures_once(tmp_path):
    def metrics(**options):
        return ad.Metric("mean", mean, **options), ad.Metric("n", len, every=2, **options)

    run(*metrics(directory=tmp_path), ad.Checkpoint(tmp_path), n_steps=3)
    resumed = run(*metrics(directory=tmp_path), n_steps=6, resume=tmp_path)
    assert resumed.metrics == run(*metrics(), n_steps=6).metrics
    lines = [(line["name"], line["index"]) for line in read_lines(tmp_path / "metrics.jsonl")]
    # Once: the state that a flow resumes from is logged twice.
    assert sorted(lines) == ([("mean", k) for k in range(7)] + [("n", k) for k in (0, 2, 4, 6)])


def test_progress(monkeypatch):
    out = io.StringIO()
    progress = ad.Progress(3, "walk", stream=out, interval=0.0)
    run(progress, n_steps=3)
    lines = out.getvalue().splitlines()
    assert len(lines) == 4 and lines[3].startswith("walk: 3/3, value 53, ")
    progress.n_steps = 93
    progress(SimpleNamespace(index=30, seconds=10.0, value=53.0))
    assert out.getvalue().endswith("walk: 30/93, value 53, 0:00:21 left, 3.0 steps/s\n")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    out = Terminal()
    progress = ad.Progress(3, "walk", stream=out)
    for n_steps in (3, 2):  # and once more
        out.truncate(0)
        run(progress, n_steps=n_steps)
        text = out.getvalue()
        assert f"{n_steps}/3" in text and f"value {56 - n_steps}" in text
        assert text.count("\x1b[?25l") == text.count("\x1b[?25h") > 0  # the cursor is back


@pytest.mark.parametrize(
    ("answer", "n_steps"), [(lambda step: None, 5), (lambda step: step.index == 2, 2),
    (lambda step: torch.tensor(step.index == 1), 1), (lambda step: "yes", 0), (lambda step: 0, 5)],
)  # fmt: skip
def test_plain_functions_and_truth(answer, n_steps):
    result = run(answer)
    assert (result.status, result.n_steps) == ("stopped" if n_steps < 5 else "completed", n_steps)


class Witness:
    """Writes down what it is called with."""

    def __init__(self, name, log, stop=None):
        self.name, self.log, self.stop = name, log, stop

    def begin(self, source, start):
        assert isinstance(source, ad.LabeledDataset)
        self.log.append((self.name, "begin", None if start is None else start.index))

    def __call__(self, step):
        self.log.append((self.name, "step", step.index))
        return step.index == self.stop

    def end(self, step, status):
        self.log.append((self.name, "end", step.index, status))

    def reason(self):
        return f"{self.name} had enough"


def test_hooks_and_their_order(tmp_path):
    log = []
    result = run(Witness("a", log), Witness("b", log, stop=1), Witness("c", log, stop=1))
    # all see the step that one stops at
    events = [("begin", None), ("step", 0), ("step", 1), ("end", 1, "stopped")]
    assert log == [(name, *event) for event in events for name in "abc"]
    assert result.message == "b had enough"
    log.clear()
    run(ad.Checkpoint(tmp_path), n_steps=1)
    run(Witness("a", log), n_steps=2, resume=tmp_path)
    end = ("a", "end", 2, "completed")
    assert log == [("a", "begin", 1), ("a", "step", 1), ("a", "step", 2), end]


@pytest.mark.parametrize(
    ("options", "status"), [({}, "completed"), ({"n_steps": 0}, "completed"),
    ({"ending": lambda step: step.index == 3}, "stopped"), ({"ending": interrupt_at(3)}, "interrupted")],
)  # fmt: skip
def test_status_and_lengths(options, status):
    log, ending = [], options.pop("ending", None)
    result = run(Witness("a", log), *([ending] if ending else []), **options)
    assert result.status == status and result.message and status in repr(result)
    assert log[-1] == ("a", "end", result.n_steps, status)
    curves = (result.values, result.speeds, result.seconds, *result.terms.values())
    assert {len(curve) for curve in curves} == {result.n_steps + 1}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("good", [1, 3])
def test_a_value_that_is_not_finite(value, good):
    log = []
    result = run(Witness("a", log), functional=ad.Potential(ad.norm()) + 2.0 * FailsAt(good, value))
    assert (result.status, result.n_steps) == ("diverged", good - 1)
    assert log[-1] == ("a", "end", good - 1, "diverged")
    assert "FailsAt" in result.message and "Potential" not in result.message
    assert result.dataset.x.flatten().tolist() == [55.0 - good, 59.0 - good]
    assert result.values == [56.0 - k for k in range(good)]


def test_a_gradient_that_is_not_finite():
    result = run(functional=ad.Potential(ad.norm()) + FailsAt(2, gradient=True))
    assert result.status == "diverged" and result.n_steps == 1
    assert "gradient in 'x'" in result.message and "Potential + FailsAt" in result.message
    assert result.dataset.x.flatten().tolist() == [53.0, 57.0]


@pytest.mark.parametrize("gradient", [False, True])
def test_not_finite_on_the_source(gradient):
    with pytest.raises(ad.InputError, match="not finite on the source.*FailsAt"):
        run(functional=FailsAt(0, gradient=gradient))


def test_a_frame_that_fails_is_not_committed(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no space left")

    def later(step):
        if step.index == 2:
            monkeypatch.setattr(os, "replace", fail)

    with pytest.raises(OSError, match="no space"):
        run(ad.Checkpoint(tmp_path, every=1), ad.Recorder(directory=tmp_path), later)
    monkeypatch.undo()
    assert ad.Trajectory.open(tmp_path).indices == [0, 1, 2] and load_snapshot(tmp_path).index == 2
    assert not list(tmp_path.rglob("*.tmp"))
    resumed = run(ad.Recorder(directory=tmp_path), resume=tmp_path)
    assert resumed.trajectory.indices == [0, 1, 2, 3, 4, 5] and resumed.values == run().values


@given(
    records=st.lists(
        st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3)), max_size=5
    ),
    cut=st.integers(0, 40),
)
@examples(40)
def test_logs_survive_a_torn_line(records, cut, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    for record in records:
        append_line(path, record)
    assert read_lines(path) == records
    torn = json.dumps({"key": "x" * 50}).encode()[:cut]
    with open(path, "ab") as file:
        file.write(torn)
    assert read_lines(path) == records
    append_line(path, {"last": 1})
    assert read_lines(path) == [*records, {"last": 1}]

"""All pairs of datasets: the numbers of a plain double loop, on every backend, through crashes, errors and changes."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import combinations

import joblib
import numpy as np
import pytest
import torch
from covering import first_of_each

import advect as ad
from advect.apps.pairwise import pairwise
from advect.errors import InputError

QUICK = ad.GroundCost(label=ad.Bures(diagonal=True))


def several(k=5, n=24, dim=3):
    """Datasets of different sizes, classes, weights and dtypes."""
    sets = {}
    for seed in range(k):
        generator = torch.Generator().manual_seed(seed)
        size, classes = n + seed, 2 + seed % 2
        y = torch.arange(size) % classes
        x = torch.randn(size, dim, generator=generator, dtype=torch.float64)
        x += y[:, None] * (1 + seed)
        weights = None if seed % 2 else torch.rand(size, generator=generator) + 0.1
        sets[f"set {seed}"] = ad.LabeledDataset(x if seed % 3 else x.float(), y, weights)
    return sets


def double_loop(sets, **options):
    names = list(sets)
    values = np.zeros((len(names), len(names)))
    for i, j in combinations(range(len(names)), 2):
        values[i, j] = values[j, i] = ad.otdd(sets[names[i]], sets[names[j]], **options).value
    return values


def files(store):
    return {path.name: path.stat().st_mtime_ns for path in store.iterdir()}


OPTIONS = {
    "default": {},
    "exact": {"solver": ad.ExactOT()},
    "fixed": {"solver": ad.Sinkhorn(epsilon=0.5), "cost": QUICK},
    "embedding": {
        "cost": ad.GroundCost(feature=ad.Embedding(lambda x: x[:, :2] * 2), label=ad.MeansOnly())
    },
    "inner transport": {"cost": ad.GroundCost(label=ad.ExactLabelOT())},
}


@pytest.mark.parametrize("options", first_of_each(OPTIONS, lambda name: "solver" in OPTIONS[name]))
def test_values_are_those_of_a_double_loop(options):
    sets = several(k=6)
    found = pairwise(sets, progress=False, **options)
    assert np.array_equal(found.values, double_loop(sets, **options))
    assert found.names == tuple(sets) and found.converged.all() and not found.errors
    assert (found.seconds + np.eye(6) > 0).all() and not found.seconds.diagonal().any()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sequential", "threading", "loky", "multiprocessing"])
def test_backends_agree_to_the_last_bit(backend, tmp_path):
    sets = several()
    with joblib.parallel_config(backend, n_jobs=1 if backend == "sequential" else 2):
        found = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    assert np.array_equal(found.values, double_loop(sets, cost=QUICK))
    assert len(files(tmp_path)) == 10


@pytest.mark.slow
def test_a_restart_takes_what_is_there(tmp_path):
    sets, seen = several(), []
    first = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    before = files(tmp_path)
    assert all(name.endswith(".json") for name in before)
    options = {"cost": QUICK, "store": tmp_path}
    again = pairwise(sets, progress=lambda done, total: seen.append((done, total)), **options)
    assert files(tmp_path) == before and seen == [(10, 10)]
    for name in ("values", "seconds", "converged", "standard_errors"):
        assert np.array_equal(getattr(again, name), getattr(first, name))
    more = pairwise(sets | {"new": several(7)["set 6"]}, progress=False, **options)
    assert files(tmp_path).items() > before.items()
    assert np.array_equal(more.values[:5, :5], first.values)
    renamed = {f"other {name}": data for name, data in sets.items()}
    assert np.array_equal(pairwise(renamed, progress=False, **options).values, first.values)
    assert len(files(tmp_path)) == 15


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", "null", "torn", "other", "\x00" * 50])
def test_a_damaged_file_is_made_again(damage, tmp_path):
    sets = several(3)
    first = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    victim, *others = sorted(tmp_path.iterdir())
    untouched = {path: path.stat().st_mtime_ns for path in others}
    text = victim.read_text()
    other = json.dumps(json.loads(text) | {"key": "another"})
    victim.write_text({"torn": text[: len(text) // 2], "other": other}.get(damage, damage))
    with pytest.warns(UserWarning, match="damaged"):
        again = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    assert np.array_equal(again.values, first.values)
    assert json.loads(victim.read_text())["result"]["value"] == json.loads(text)["result"]["value"]
    assert {path: path.stat().st_mtime_ns for path in others} == untouched


def test_pairs_that_do_not_converge_are_marked():
    sets = several(3)
    with pytest.warns(ad.errors.ConvergenceWarning), joblib.parallel_config("sequential"):
        found = pairwise(sets, solver=ad.Sinkhorn(epsilon=0.01, max_iter=2), progress=False)
    assert found.converged.tolist() == np.eye(3, dtype=bool).tolist()
    assert math.isnan(found.standard_errors[0, 1])
    assert found._summary()["pairs that did not converge"] == 3


CHILD = """
import os, sys, time
import advect as ad
from advect.apps.pairwise import pairwise

calls = 0

class Halting(ad.Sinkhorn):
    def solve(self, *arguments, **options):
        global calls
        calls += 1
        if "HALT" in os.environ and calls == 4:
            time.sleep(600)
        return super().solve(*arguments, **options)

if __name__ == "__main__":
    sets = {str(seed): f"toy:gaussians?n=20&seed={seed}" for seed in range(6)}
    found = pairwise(sets, solver=Halting(), n_jobs=int(sys.argv[2]), store=sys.argv[1], progress=False)
    print(found.values.tolist())
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_killed_halfway_and_started_again(n_jobs, tmp_path):
    script, store = tmp_path / "child.py", tmp_path / "store"
    script.write_text(CHILD)
    command = [sys.executable, str(script), str(store), str(n_jobs)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, env=environment | {"HALT": "1"}, start_new_session=True)
    deadline = time.monotonic() + 300
    while len([*store.glob("*.json")]) < 3 * n_jobs and time.monotonic() < deadline:
        assert child.poll() is None
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)  # its workers too
    child.wait()
    before = {path.name: path.stat().st_mtime_ns for path in store.glob("*.json")}
    assert len(before) == 3 * n_jobs
    done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=300)
    after = {path.name: path.stat().st_mtime_ns for path in store.glob("*.json")}
    assert len(after) == 15 and before.items() <= after.items()
    sets = {str(seed): ad.datasets.load(f"toy:gaussians?n=20&seed={seed}") for seed in range(6)}
    assert np.array_equal(json.loads(done.stdout), double_loop(sets))


def test_distances_say_how_much_they_would_vary(tmp_path):
    draw, shifts = torch.Generator().manual_seed(0), (0.0, 6.0, 6.1, 20.0)
    sets = {f"at {s}": ad.datasets.gaussians(60, shift=(s, 0.0), generator=draw) for s in shifts}
    found = ad.pairwise(sets, progress=False)
    one = ad.otdd(sets["at 0.0"], sets["at 6.0"])
    assert found.standard_errors[0, 1] == found.standard_errors[1, 0] == one.standard_error()
    assert (np.diag(found.standard_errors) == 0).all()
    assert found.interval("at 0.0", "at 6.0") == pytest.approx(one.interval(), rel=1e-3)
    half = 1.96 * one.standard_error()
    page = found.report(tmp_path / "page.html").read_text(encoding="utf-8")
    for text in (str(found), page, found._repr_html_()):
        assert f"{one.value:.4g} ± {half:.2g}" in text
    bare = ad.pairwise(sets, progress=False, standard_errors=False)
    assert np.isnan(bare.standard_errors[0, 1]) and "±" not in str(bare)


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_failed_pair_does_not_lose_the_others(n_jobs, tmp_path):
    sets = several(4)
    given = {"narrow": ad.LabeledDataset([[0.0], [1.0]], ["a", "b"]), **sets}
    found = pairwise(given, cost=QUICK, n_jobs=n_jobs, store=tmp_path, progress=False)
    assert np.array_equal(found.values[1:, 1:], double_loop(sets, cost=QUICK))
    assert np.isnan(found.values[0, 1:]).all() and found.values[0, 0] == 0
    assert found.errors.keys() == {("narrow", name) for name in sets}
    assert "dimensions 1 and 3" in found.errors["narrow", "set 2"]
    assert len(files(tmp_path)) == 6 and found._summary()["failed pairs"] == 4
    assert math.isnan(found["narrow", "set 0"]) and len(found.nearest("set 0")) == 3
    assert json.loads(json.dumps(found.to_dict()))["values"][0][1] is None
    assert found.to_pandas().loc["set 1", "set 2"] == found["set 2", "set 1"]


@pytest.mark.slow
def test_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    sets, options = several(), {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        found = pairwise(sets, store=tmp_path, progress=False)
    assert np.array_equal(found.values, double_loop(sets)) and len(files(tmp_path)) == 10


@dataclass(frozen=True)
class Scaled:
    by: float

    def __call__(self, x):
        return self.by * x


@pytest.mark.slow
def test_changed_inputs_are_computed_anew(tmp_path):
    sets = several(3)
    pairwise(sets, store=tmp_path, progress=False)
    data, n_files = sets["set 1"], 3
    x, swapped = data.x.clone(), data.y.clone()
    x[3, 1] += 1e-9
    swapped[:2] = swapped[:2].flip(0)
    heavier = data.weights * torch.linspace(1, 2, len(data), dtype=torch.float64)
    weights = heavier / heavier.sum()
    changes = [{"x": x}, {"y": swapped}, {"weights": weights}, {"law": data.laws().diagonal()}]
    settings = [
        {"solver": ad.Sinkhorn(epsilon=0.7)},
        {"cost": ad.GroundCost(label_weight=2.0)},
        {"cost": ad.GroundCost(feature=ad.Embedding(Scaled(2.0)))},
        {"cost": ad.GroundCost(feature=ad.Embedding(Scaled(3.0)))},
        {"cost": ad.GroundCost(feature=ad.Embedding(torch.nn.LeakyReLU(0.5)))},
        {"cost": ad.GroundCost(feature=ad.Embedding(torch.nn.LeakyReLU(0.7)))},
    ]
    changed = [(sets | {"set 1": data.replace(**change)}, {}, 2) for change in changes]
    for given, options, n_new in [*changed, *((sets, options, 3) for options in settings)]:
        found = pairwise(given, store=tmp_path, progress=False, **options)
        assert np.array_equal(found.values, double_loop(given, **options))
        n_files += n_new
        assert len(files(tmp_path)) == n_files


@pytest.mark.slow
def test_references_are_read(tmp_path, monkeypatch):
    sets = several(3)
    loaded = {n: ad.datasets.load(data.save(tmp_path / f"{n}.npz")) for n, data in sets.items()}
    monkeypatch.chdir(tmp_path)  # workers of an earlier call are elsewhere
    mixed = {"set 0": "npz:set 0.npz", "set 1": tmp_path / "set 1.npz"}
    mixed["set 2"] = "set 2.npz?max_samples=100"
    for n_jobs in (1, 2):
        values = pairwise(mixed, n_jobs=n_jobs, progress=False).values
        assert np.array_equal(values, double_loop(loaded))
    names = ("toy:moons?n=20", "toy:rings?n=20")
    assert pairwise(names, progress=False).names == names


def test_errors(tmp_path):
    data = several(1)["set 0"]
    (tmp_path / "file").write_text("")
    own = ad.GroundCost(feature=ad.Embedding(lambda x: 2 * x))
    for call, keyword in [
        (lambda: pairwise({"a": data}), "two or more"),
        (lambda: pairwise({"a": data, "b": [1.0]}), "reference"),
        (lambda: pairwise("mnist"), "mapping"),
        (lambda: pairwise({1: data, "1": data}), "names"),
        (lambda: pairwise([data, data], n_jobs=0), "n_jobs"),
        (lambda: pairwise([data, data], store=tmp_path / "file"), "store"),
        (lambda: pairwise([data, data])["0", "2"], "no such pair"),
        (lambda: pairwise([data, data], cost=own, store=tmp_path / "store"), "digest"),
    ]:
        with pytest.raises(InputError, match=keyword):
            call()


@pytest.mark.slow
def test_ray_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes a token to the home directory
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.util.joblib import register_ray

    sets = several()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config("ray"):
            found = pairwise(sets, store=tmp_path, progress=False)
    finally:
        ray.shutdown()
    assert np.array_equal(found.values, double_loop(sets)) and len(files(tmp_path)) == 10

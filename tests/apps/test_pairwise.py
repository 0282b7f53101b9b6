"""All pairs of datasets: the numbers of a plain double loop, on every backend, through crashes,
errors and changes.
"""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from itertools import combinations

import joblib
import numpy as np
import pytest
import torch
from covering import first_of_each

import advect as ad
from advect.apps.pairwise import Pairwise, pairwise
from advect.data.digest import digest
from advect.errors import InputError

QUICK = ad.GroundCost(label=ad.Bures(diagonal=True))


def several(k=5, n=24, dim=3):
    """Datasets of different sizes, classes, weights and dtypes."""
    sets = {}
    for seed in range(k):
        generator = torch.Generator().manual_seed(seed)
        size, classes = n + seed, 2 + seed % 2
        y = torch.arange(size) % classes
        x = torch.randn(size, dim, generator=generator, dtype=torch.float64) + y[:, None] * (
            1 + seed
        )
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
    "own cost": {
        "cost": ad.GroundCost(
            feature=lambda x, y: torch.cdist(x.double(), y.double()), label_weight=0.5
        )
    },
    "inner transport": {"cost": ad.GroundCost(label=ad.ExactLabelOT())},
}


@pytest.mark.parametrize("options", first_of_each(OPTIONS, lambda name: "solver" in OPTIONS[name]))
def test_values_are_those_of_a_double_loop(options):
    sets = several(k=6)  # more than a tile
    found = pairwise(sets, progress=False, **options)
    assert np.array_equal(found.values, double_loop(sets, **options))
    assert found.names == tuple(sets)
    assert found.converged.all()
    assert not found.errors
    assert (found.seconds + np.eye(6) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    ["sequential", "threading", "loky", pytest.param("multiprocessing", marks=pytest.mark.slow)],
)
def test_backends_agree_to_the_last_bit(backend, tmp_path):
    sets = several()
    with joblib.parallel_config(backend, n_jobs=1 if backend == "sequential" else 2):
        found = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    assert np.array_equal(found.values, double_loop(sets, cost=QUICK))
    assert len(files(tmp_path)) == 10


@pytest.mark.slow
def test_n_jobs_leaves_threads_as_they_were():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        pairwise(several(3), n_jobs=2, progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_references_are_read_by_the_workers(tmp_path, monkeypatch):
    sets = {
        name: ad.datasets.load(data.save(tmp_path / f"{name}.npz"))
        for name, data in several(3).items()
    }
    monkeypatch.chdir(tmp_path)  # workers of an earlier call are elsewhere
    mixed = {
        "set 0": "npz:set 0.npz",
        "set 1": tmp_path / "set 1.npz",
        "set 2": "set 2.npz?max_samples=100",
    }
    for n_jobs in (1, 2):
        assert np.array_equal(
            pairwise(mixed, n_jobs=n_jobs, progress=False).values, double_loop(sets)
        )
    assert pairwise(["toy:moons?n=20", "toy:rings?n=20"], progress=False).names == (
        "toy:moons?n=20",
        "toy:rings?n=20",
    )
    assert pairwise([sets["set 0"], "toy:rings?n=20&classes=2"], progress=False).names == ("0", "1")


@pytest.mark.slow
def test_a_restart_takes_what_is_there(tmp_path):
    sets, seen = several(), []
    first = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    before = files(tmp_path)
    assert all(name.endswith(".json") for name in before)
    again = pairwise(
        sets, cost=QUICK, store=tmp_path, progress=lambda done, total: seen.append((done, total))
    )
    assert files(tmp_path) == before
    assert seen == [(10, 10)]
    assert np.array_equal(again.values, first.values) and np.array_equal(
        again.seconds, first.seconds
    )
    more = pairwise(sets | {"new": several(7)["set 6"]}, cost=QUICK, store=tmp_path, progress=False)
    assert files(tmp_path).items() > before.items()
    assert len(files(tmp_path)) == 15
    assert np.array_equal(more.values[:5, :5], first.values)
    renamed = {f"other {name}": data for name, data in sets.items()}
    assert np.array_equal(
        pairwise(renamed, cost=QUICK, store=tmp_path, progress=False).values, first.values
    )
    assert len(files(tmp_path)) == 15


@pytest.mark.slow
def test_changed_inputs_are_computed_anew(tmp_path):
    sets = several(3)
    pairwise(sets, store=tmp_path, progress=False)
    data = sets["set 1"]
    x = data.x.clone()
    x[3, 1] += 1e-9
    swapped = data.y.clone()
    swapped[:2] = swapped[:2].flip(0)
    heavier = data.weights * torch.linspace(1, 2, len(data), dtype=torch.float64)
    changes = [
        {"x": x},
        {"y": swapped},
        {"weights": heavier / heavier.sum()},
        {"law": data.moments().diagonal()},
    ]
    for count, change in enumerate(changes, start=1):
        changed = sets | {"set 1": data.replace(**change)}
        assert np.array_equal(
            pairwise(changed, store=tmp_path, progress=False).values, double_loop(changed)
        )
        assert len(files(tmp_path)) == 3 + 2 * count  # the two pairs of the changed set
    settings = [
        {"solver": ad.Sinkhorn(epsilon=0.7)},
        {"solver": ad.ExactOT()},
        {"cost": ad.GroundCost(label_weight=2.0)},
        {"cost": ad.GroundCost(feature=ad.Embedding(lambda x: x * 2))},
        {"cost": ad.GroundCost(feature=ad.Embedding(lambda x: x * 3))},
    ]
    for count, options in enumerate(settings, start=1):
        assert np.array_equal(
            pairwise(sets, store=tmp_path, progress=False, **options).values,
            double_loop(sets, **options),
        )
        assert len(files(tmp_path)) == 11 + 3 * count


def test_a_file_behind_a_reference_may_change(tmp_path):
    sets = several(3)
    path = sets["set 0"].save(tmp_path / "data.npz")
    other = sets["set 1"]
    for data in (sets["set 0"], sets["set 2"]):
        data.save(path, overwrite=True)
        found = pairwise(
            {"a": str(path), "b": other}, n_jobs=2, store=tmp_path / "store", progress=False
        )
        assert found["a", "b"] == ad.otdd(data, other).value
    assert len(files(tmp_path / "store")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", "null", "torn", "digit", "\x00" * 50])
def test_a_damaged_file_is_made_again(damage, tmp_path):
    sets = several(3)
    first = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    victim, *others = sorted(tmp_path.iterdir())
    untouched = {path: path.stat().st_mtime_ns for path in others}
    text = victim.read_text()
    record = json.loads(text)
    record["result"]["value"] += 1
    victim.write_text(
        {"torn": text[: len(text) // 2], "digit": json.dumps(record)}.get(damage, damage)
    )
    with pytest.warns(UserWarning, match="damaged and made again"):
        again = pairwise(sets, cost=QUICK, store=tmp_path, progress=False)
    assert np.array_equal(again.values, first.values)
    assert json.loads(victim.read_text())["result"]["value"] == json.loads(text)["result"]["value"]
    assert {path: path.stat().st_mtime_ns for path in others} == untouched


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_one_pair_does_not_lose_the_others(n_jobs, tmp_path):
    sets = several(4)
    narrow = ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])  # another dimension
    given = {"narrow": narrow, **sets, "nowhere": f"npz:{tmp_path}/nowhere.npz"}
    found = pairwise(given, cost=QUICK, n_jobs=n_jobs, store=tmp_path / "store", progress=False)
    assert np.array_equal(found.values[1:5, 1:5], double_loop(sets, cost=QUICK))
    assert np.isnan(found.values[0, 1:]).all() and found.values[0, 0] == 0
    assert np.isnan(found.values[5]).all()
    assert found.errors.keys() == {("narrow", name) for name in (*sets, "nowhere")} | {
        (name, "nowhere") for name in sets
    }
    assert "dimensions 1 and 3" in found.errors["narrow", "set 2"]
    assert "no such file" in found.errors["set 0", "nowhere"]
    assert repr(found) == "Pairwise(6 datasets, 15 pairs, 9 failed)"
    assert len(files(tmp_path / "store")) == 6
    sets["set 3"].save(tmp_path / "nowhere.npz")  # what failed is tried again
    again = pairwise(given, cost=QUICK, n_jobs=n_jobs, store=tmp_path / "store", progress=False)
    assert again["set 3", "nowhere"] == 0.0
    assert len(again.errors) == 5


def test_pairs_that_do_not_converge_are_marked():
    sets = several(3)
    with pytest.warns(ad.ConvergenceWarning), joblib.parallel_config("sequential"):
        found = pairwise(sets, solver=ad.Sinkhorn(epsilon=0.01, max_iter=2), progress=False)
    assert found.converged.tolist() == np.eye(3, dtype=bool).tolist()
    assert repr(found) == "Pairwise(3 datasets, 3 pairs, 3 not converged)"


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
    while (
        len(list(store.glob("*.json"))) < 3 * n_jobs
        and child.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)  # its workers too
    child.wait()
    before = {path.name: path.stat().st_mtime_ns for path in store.glob("*.json")}
    assert len(before) == 3 * n_jobs
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    after = {path.name: path.stat().st_mtime_ns for path in store.glob("*.json")}
    assert len(after) == 15
    assert before.items() <= after.items()
    sets = {str(seed): ad.datasets.load(f"toy:gaussians?n=20&seed={seed}") for seed in range(6)}
    assert np.array_equal(json.loads(done.stdout), double_loop(sets))


@pytest.mark.slow
def test_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    sets = several()
    path = sets["set 4"].save(tmp_path / "four.npz")
    sets["set 4"] = ad.datasets.load(path)  # weights are scaled once more
    given = sets | {"set 4": path}
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        found = pairwise(given, store=tmp_path / "store", progress=False)
    assert np.array_equal(found.values, double_loop(sets))
    assert len(files(tmp_path / "store")) == 10


@pytest.mark.slow
def test_ray_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes a token to the home directory
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.util.joblib import register_ray

    sets = several()
    path = sets["set 4"].save(tmp_path / "four.npz")
    sets["set 4"] = ad.datasets.load(path)  # weights are scaled once more
    given = sets | {"set 4": path}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config("ray"):
            found = pairwise(given, store=tmp_path / "store", progress=False)
    finally:
        ray.shutdown()
    assert np.array_equal(found.values, double_loop(sets))
    assert len(files(tmp_path / "store")) == 10


def test_results_are_kept_and_shown(tmp_path):
    sets = several(4) | {"narrow": ad.LabeledDataset([[0.0], [1.0]], ["a", "b"])}
    found = pairwise(sets, cost=QUICK, progress=False)
    again = Pairwise.load(found.save(tmp_path / "distances.json"))
    assert np.array_equal(again.values, found.values, equal_nan=True)
    assert np.array_equal(again.converged, found.converged) and np.array_equal(
        again.seconds, found.seconds
    )
    assert (again.names, again.errors, repr(again)) == (found.names, found.errors, repr(found))
    assert "NaN" not in (tmp_path / "distances.json").read_text()  # which is not JSON
    near = found.nearest("set 0")
    assert [name for name, _ in near] == sorted(
        ["set 1", "set 2", "set 3"], key=lambda name: found["set 0", name]
    )
    assert math.isnan(found["narrow", "set 0"])
    assert "set 3" in str(found.table)
    frame = found.to_pandas()
    assert frame.loc["set 1", "set 2"] == found["set 2", "set 1"]
    for text in (
        "",
        "[]",
        "{}",
        '{"format": "advect.apps.pairwise/1", "names": ["a"], "values": []}',
    ):
        (tmp_path / "wrong.json").write_text(text)
        with pytest.raises(InputError, match="damaged"):
            Pairwise.load(tmp_path / "wrong.json")


def test_misuse_says_what_to_do(tmp_path):
    data = several(1)["set 0"]
    (tmp_path / "file").write_text("")
    for wrong, words in [
        (lambda: pairwise({"a": data}), "two or more"),
        (lambda: pairwise({"a": data, "b": [1.0]}), "LabeledDataset or a reference"),
        (lambda: pairwise("mnist"), "by name or in order"),
        (lambda: pairwise({1: data, "1": data}), "different names"),
        (lambda: pairwise(["no-such-set", "digits"]), "unknown dataset"),
        (lambda: pairwise([data, data], n_jobs=0), "n_jobs"),
        (lambda: pairwise([data, data], n_jobs=1.5), "n_jobs"),
        (lambda: pairwise([data, data], progress="yes"), "progress"),
        (lambda: pairwise([data, data], store=tmp_path / "file"), "cannot keep results"),
        (lambda: pairwise([data, data])["0", "2"], "no such pair"),
    ]:
        with pytest.raises(InputError, match=words):
            wrong()


def scale_by(factor):
    return lambda x: x * factor


CONSTANT = 2.0


def uses_constant(x):
    return x * CONSTANT


def test_digests_tell_contents_apart(monkeypatch):
    data = several(1)["set 0"]
    assert digest(data) == digest(data.replace(x=data.x.clone()))
    assert digest(data) == (data.moments(), digest(data))[1]  # what is cached does not count
    different = [
        data,
        data.replace(classes=("p", "q")),
        ad.Sinkhorn(),
        ad.ExactOT(),
        ad.Sinkhorn(max_iter=9),
        scale_by(2),
        scale_by(3),
        lambda x: x + 1,
        lambda x: x + 2,
        lambda x, y=1: x + 2,
        lambda x: [x + 2 for _ in range(3)],
        lambda x: [x + 3 for _ in range(3)],
        uses_constant,
        torch.nn.Linear(2, 2),
        torch.nn.Linear(2, 2),
        (1, 2),
        [1, 2],
        (1, (2,)),
        ("1", 2),
        (1.0, 2),
        (True, 2),
        {"a": 1, "b": 2},
        {"a": 2, "b": 1},
        np.zeros(2),
        np.zeros((2, 1)),
        np.zeros(2, np.float32),
        "a",
        b"a",
        None,
    ]
    assert len({digest(value) for value in different}) == len(different)
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(scale_by(2)) == digest(scale_by(2))
    before = digest(uses_constant)
    monkeypatch.setitem(globals(), "CONSTANT", 3.0)
    assert digest(uses_constant) != before
    loop: list = [1]
    loop.append(loop)
    assert digest(loop) == digest(loop)
    with pytest.raises(InputError, match="recognise"):
        digest(torch.Generator())


SIZES = (1, 2)


def uses_sizes():
    return SIZES


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2), (10, 20)),
        ([1, [2]], [1, [3]]),
        ({"a": [1]}, {"a": [2]}),
        ({1, 2}, {1, 3}),
        (frozenset("ab"), frozenset("ac")),
        (np.zeros(2), np.ones(2)),
        (torch.zeros(2), torch.ones(2)),
        (ad.Sinkhorn(epsilon=1.0), ad.Sinkhorn(epsilon=2.0)),
        (ad.LabeledDataset([[0.0]], ["a"]), ad.LabeledDataset([[1.0]], ["a"])),
        (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
    ],
)
def test_constants_of_a_function_count(one, other, monkeypatch):
    monkeypatch.setitem(globals(), "SIZES", one)
    before = digest(uses_sizes)
    assert digest(uses_sizes) == before
    monkeypatch.setitem(globals(), "SIZES", other)
    assert digest(uses_sizes) != before


class Scaled(torch.nn.Module):
    """A network whose result hangs on an attribute that is neither a parameter nor a buffer."""

    def __init__(self, by, inside=None):
        super().__init__()
        self.by = by
        if inside is not None:
            self.inside = inside

    def forward(self, x):
        return x * self.by if not hasattr(self, "inside") else self.inside(x) * self.by


def with_buffer(value):
    module = torch.nn.Module()
    module.register_buffer("table", torch.full((2,), value), persistent=False)
    return module


def test_networks_differ_by_all_they_compute_with():
    frozen = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.ReLU())
    frozen[0].eval()
    layers = [("a", torch.nn.ReLU()), ("b", torch.nn.Tanh())]
    different = [
        Scaled(1.0),
        Scaled(2.0),
        Scaled([1.0, {"k": torch.zeros(2)}]),
        Scaled([1.0, {"k": torch.ones(2)}]),
        Scaled(1.0, Scaled(1.0)),
        Scaled(1.0, Scaled(2.0)),
        Scaled(1.0, torch.nn.Softplus(beta=1.0)),
        Scaled(1.0, torch.nn.Softplus(beta=2.0)),
        torch.nn.Sequential(torch.nn.Dropout(), torch.nn.ReLU()),
        frozen,
        torch.nn.Sequential(OrderedDict(layers)),
        torch.nn.Sequential(OrderedDict(layers[::-1])),
        with_buffer(1.0),
        with_buffer(2.0),
        torch.jit.script(Scaled(1.0)),
        torch.jit.script(Scaled(2.0)),
        torch.fx.symbolic_trace(Scaled(1.0)),
        torch.fx.symbolic_trace(Scaled(2.0)),
    ]
    assert len({digest(module) for module in different}) == len(different)
    equal = [Scaled([1.0, {"k": torch.zeros(2)}], Scaled(len)) for _ in range(2)]
    assert digest(equal[0]) == digest(equal[1])
    hooked, plain = torch.nn.ReLU(), torch.nn.ReLU()
    hooked.register_forward_hook(lambda *_: None)
    assert digest(hooked) == digest(plain)
    assert digest(torch.jit.script(Scaled(2.0))) == digest(torch.jit.script(Scaled(2.0)))
    assert digest(torch.fx.symbolic_trace(Scaled(2.0))) == digest(
        torch.fx.symbolic_trace(Scaled(2.0))
    )
    with pytest.raises(InputError, match="recognise"):
        digest(Scaled(torch.Generator()))


def test_a_store_does_not_give_the_result_of_another_network(tmp_path):
    sets = several(2)
    for by in (1.0, 3.0):
        cost = ad.GroundCost(feature=ad.Embedding(Scaled(by)), label=ad.MeansOnly())
        found = pairwise(sets, cost=cost, store=tmp_path, progress=False)
        assert np.array_equal(found.values, pairwise(sets, cost=cost, progress=False).values)
    assert len(files(tmp_path)) == 2


class Node:
    def __init__(self, value):
        self.value = value
        self.other: object = self


def test_what_holds_itself_has_a_digest():
    def pair(value):
        first, second = Node(1), Node(value)
        first.other, second.other = second, first
        return first

    loop: dict = {"a": 1}
    loop["self"] = loop
    assert digest(loop) == digest(loop) != digest({"a": 1, "self": None})
    assert digest(Node(1)) == digest(Node(1)) != digest(Node(2))
    assert digest(pair(2)) == digest(pair(2)) != digest(pair(3))


def test_names_of_arguments_count():
    """A sweep passes them by name."""
    told = [eval(text, {"__name__": "m"}) for text in ("lambda a, b: a - b", "lambda b, a: b - a")]
    assert digest(told[0]) != digest(told[1])


@pytest.mark.slow
def test_digests_are_the_same_in_every_process():
    parts = "{'a': ad.GroundCost(), 'b': {3, 'x', 2.5}}, ad.otdd, ad.datasets.load('toy:moons?n=9')"
    parts += ", torch.nn.TransformerEncoderLayer(2, 1, 1).apply(lambda m: [p.data.zero_() for p in m.parameters()])"
    code = (
        f"import torch, advect as ad; from advect.data.digest import digest; print(digest({parts}))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == eval(f"digest({parts})")


@pytest.mark.slow
def test_images_of_several_sizes_are_brought_together(tmp_path):
    """As advect matrix does; by reference or at hand, and with the values of otdd."""
    sets = {
        "small": ad.datasets.load("digits", n=20),
        "large": "mnist?n=20",
        "other": ad.datasets.load("mnist", n=20, seed=1),
    }
    with pytest.warns(UserWarning, match=r"2 shapes are brought to \(28, 28\)"):
        found = ad.pairwise(sets, progress=False)
    loaded = [sets["small"], ad.datasets.load("mnist", n=20), sets["other"]]
    small, large, other = ad.harmonize(*loaded)
    assert small.sample_shape == large.sample_shape == other.sample_shape == (28, 28)
    assert found["small", "large"] == ad.otdd(small, large).value
    assert found["large", "other"] == ad.otdd(large, other).value
    assert not found.errors


def test_several_datasets_in_one_space():
    digits, mnist = ad.datasets.load("digits", n=5), ad.datasets.load("mnist", n=5)
    made = ad.harmonize(digits, mnist, digits, size=12, channels="rgb")
    assert [data.sample_shape for data in made] == [(12, 12, 3)] * 3
    assert ad.harmonize(digits, digits, digits)[0] is digits
    with pytest.raises(ad.InputError, match="two by two"):
        ad.harmonize(digits, mnist, digits, scale="standardize")
    with pytest.raises(ad.InputError):
        ad.harmonize(digits, mnist, ad.datasets.gaussians(5))


def test_what_was_found_is_a_picture():
    from advect import viz

    sets = {str(k): ad.datasets.gaussians(20, shift=(float(k), 0.0)) for k in range(3)}
    assert viz.pairwise(ad.pairwise(sets, progress=False)).axes
    with pytest.raises(ad.InputError, match="needs names"):
        viz.pairwise(np.zeros((3, 3)))


def _shifted(*shifts: float) -> dict[str, ad.LabeledDataset]:
    draw = torch.Generator().manual_seed(0)
    return {
        f"at {shift}": ad.datasets.gaussians(60, shift=(shift, 0.0), generator=draw)
        for shift in shifts
    }


def test_distances_say_how_much_they_would_vary(tmp_path):
    sets = _shifted(0.0, 6.0, 6.1, 20.0)
    found = ad.pairwise(sets, progress=False)
    one = ad.otdd(sets["at 0.0"], sets["at 6.0"])
    assert found.standard_errors[0, 1] == found.standard_errors[1, 0] == one.standard_error()
    assert (np.diag(found.standard_errors) == 0).all()
    assert found.interval("at 0.0", "at 6.0") == pytest.approx(one.interval(), rel=1e-3)
    assert sorted(found.ties("at 0.0")) == ["at 6.0", "at 6.1"]
    assert found.ties("at 6.0") == ["at 6.1"]
    assert "nearest to at 0.0 is" in str(found.notes[0]) and "More samples" in str(found)
    half = 1.96 * one.standard_error()
    assert f"{one.value:.4g} ± {half:.2g}" in str(found) and "±" in found._repr_html_()
    again = ad.Pairwise.load(found.save(tmp_path / "found.json"))
    assert (again.standard_errors == found.standard_errors).all() and str(again) == str(found)


def test_without_errors_nothing_is_claimed(tmp_path):
    found = ad.pairwise(_shifted(0.0, 6.0, 6.1), progress=False, standard_errors=False)
    assert np.isnan(found.standard_errors[0, 1]) and found.notes == ()
    assert found.ties("at 0.0") == [] and "±" not in str(found)
    path = found.save(tmp_path / "found.json")
    record = json.loads(path.read_text())
    record["format"] = "advect.pairwise/1"  # as files were before
    del record["standard_errors"]
    path.write_text(json.dumps(record))
    assert np.isnan(ad.Pairwise.load(path).standard_errors[0, 1])


def test_a_long_run_says_so_when_it_has_begun(monkeypatch):
    from advect.apps import pairwise as module

    monkeypatch.setattr(module, "_LONG", 0.0)
    sets = _shifted(0.0, 1.0, 2.0)
    with pytest.warns(ad.ScaleWarning, match=r"1 more pairs take about .* n_jobs=-1"):
        ad.pairwise(sets, progress=False)


def _known_distances(errors):
    values = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
    sure = np.ones((3, 3), dtype=bool)
    return Pairwise(("a", "b", "c"), values, sure, 0 * values, {}, np.array(errors, dtype=float))


def test_where_nothing_is_known_there_is_no_interval_and_no_tie():
    found = _known_distances(math.nan)
    assert all(map(math.isnan, found.interval("a", "b")))
    assert found.ties("a") == [] and not found.notes
    partly = _known_distances([[0, 0.01, math.nan], [0.01, 0, 0.01], [math.nan, 0.01, 0]])
    assert partly.ties("a") == ["b", "c"] and partly.ties("b") == ["a"]
    for level in ("a", None, 1, math.nan):
        with pytest.raises(InputError, match="level"):
            partly.ties("a", level)


def test_the_interval_of_a_pair_is_that_of_its_distance():
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 2, generator=draw), torch.arange(20) % 2
    sets = {f"{s}": ad.LabeledDataset(x + s, y) for s in (0.0, 0.01, 4.0)}
    found = pairwise(sets, progress=False)
    for one, other in combinations(sets, 2):
        distance = ad.otdd(sets[one], sets[other])
        stated = np.array(distance.interval())
        assert np.allclose(found.interval(one, other), stated, atol=0.01 * stated[1])


def test_a_pair_that_did_not_converge_has_no_standard_error():
    x, y = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    sets = {f"{s}": ad.LabeledDataset(x + s, y) for s in (0, 4)}
    with pytest.warns(ad.ConvergenceWarning):
        found = pairwise(sets, solver=ad.Sinkhorn(1e-4, max_iter=1), progress=False)
    assert not found.converged[0, 1] and math.isnan(found.standard_errors[0, 1])


@pytest.mark.parametrize("wrong", [{"standard_errors": [[-1.0] * 3] * 3}, {"names": ["a"] * 3}])
def test_files_with_negative_errors_or_names_twice_are_damaged(wrong, tmp_path):
    place = _known_distances(0.1).save(tmp_path / "d.json")
    place.write_text(json.dumps(json.loads(place.read_text()) | wrong))
    with pytest.raises(InputError, match="damaged"):
        Pairwise.load(place)

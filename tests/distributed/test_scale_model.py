"""The model of time and traffic of benchmarks/: counts against runs, closed forms and laws. No time is judged here."""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import advect as ad

ROOT = Path(__file__).parents[2]


@pytest.fixture
def module(monkeypatch):
    """A module of benchmarks/, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def some_rates(model, slope=0.0):
    """Rates that a measurement could have had, with passes that cost n^slope by the entry."""
    curve = lambda y: model.Curve(((4e4, y), (1e8, y * (1e8 / 4e4) ** slope)))
    entry = {name: curve(1e-9 * (1 + i)) for i, name in enumerate((*model.ENTRYWISE, "anew"))}
    flop = {name: curve(1e-11 * (1 + i)) for i, name in enumerate(model.MULTIPLIED)}
    pair = model.Curve(((8, 1e-5), (64, 4e-3)), beyond=3.0)
    single = (1e-8, 2e-10, 3e-10, 1e-4, 5e-8, 2e-8, 6e-6, 1e-3, 9e-9, 6e-9)
    return model.Rates(entry, flop, pair, *single)


def test_messages_of_a_step_by_hand(module):
    model = module("cost_model")
    shape = model.Shape(n=10, m=7, d=5, classes=3, ranks=4)
    calls = {"cross": (model.Calls(2, 3, 4, 1),), "source": (model.Calls(times=6, fill=2, item=8),)}
    said = model.messages(shape, model.Evaluation(calls))
    small = 8 + 8 * 4 + 2 * (9 * 4 + 4 * 8) + (1 + 2) * 8  # limits, marks, labels, scalars, fills
    cross = 2 * 12 * 4 + 3 * 7 * 4 + 4 * 17 * 4  # 10 rows on 4 ranks are gathered as 4 × 3
    assert model.payload(said) == small + cross + 6 * 12 * 8 + 10 * 5 * 4
    assert model.messages(model.Shape(10, 7, 5), model.Evaluation(calls)) == []


def test_calls_are_the_iterations_that_a_solver_reports(module):
    model, probe = module("cost_model"), module("scale_probe")
    shape = model.Shape(60, 50, 4, classes=2)
    seen = []
    inner = ad.OTDD.terms

    class Watched(ad.OTDD):
        def terms(self, rho, state):
            terms, after = inner(self, rho, state)
            seen.append(after)
            return terms, after

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ad, "OTDD", Watched)
        records = probe.walk(shape, 2, ad.distributed.Group(), parts=True)
    assert [record["first"] for record in records] == [True, False, False]
    for record, state in zip(records, seen, strict=True):
        evaluation = model.Evaluation.read(json.loads(json.dumps(record)))
        assert evaluation.iterations("source") == int(state["self_iterations"])
        assert set(evaluation.calls) == set(shape.sides(evaluation.first))
        assert all(record["traffic"][kind] == [0, 0] for kind in record["traffic"])
        assert sum(record["parts"].values()) > 0 and min(record["parts"].values()) >= 0


@pytest.mark.slow
def test_matrices_are_made_anew_where_that_is_asked_for(module, monkeypatch):
    model, probe = module("cost_model"), module("scale_probe")
    monkeypatch.setattr(ad.PairCost, "matrix", lambda *_: pytest.fail("a matrix was made"))
    shape = model.Shape(300, 300, 3, classes=2, kept=False)
    (record,) = probe.walk(shape, 0, ad.distributed.Group())
    assert record["calls"]["cross"][0]["transposed"] == 0  # products are made in pairs then
    with pytest.raises(ValueError, match="would be kept"):
        probe.limit(model.Shape(80, 80, 64, kept=False))


def test_rates_are_found_again_in_times_that_they_made(module):
    """An oracle: times by known rates, which only differ in sizes, dimensions and calls."""
    model, fitting = module("cost_model"), module("scale_rates")
    rates = some_rates(model, slope=0.1)
    cells = []
    for n, d, kept in ((200, 8, True), (200, 40, True), (900, 8, True), (900, 40, True)):
        for across in (3, 11):
            cells.append(made(model, rates, n, d, across, kept))
    cells += [made(model, rates, n, d, 7, False) for n in (200, 900) for d in (8, 40)]
    merged = {}
    for cell in cells:
        known = merged.setdefault((cell["n"], cell["d"], cell["kept"]), cell | {"records": []})
        known["records"] += cell["records"]
    laws = [{"size": s, "d": d, "pair": rates.pair(min(s, d))} for s, d in LAWS]
    for law in laws:
        s, d = law["size"], law["d"]
        law["law"] = s * d * rates.law
        law["law"] += (s * d**2 * rates.squeeze + d**3 * rates.root) * (s > d)
    found = fitting.fit(list(merged.values()), laws, rates.mark, rates.sort)
    for name in fitting.SINGLE:
        assert getattr(found, name) == pytest.approx(getattr(rates, name), rel=1e-6), name
    for shape in (model.Shape(500, 500, 20), model.Shape(600, 600, 60, ranks=2, kept=False)):
        steady = model.Evaluation.steady(9, 5)
        expected, got = (model.predict(shape, steady, each, None).parts for each in (rates, found))
        assert got == pytest.approx(expected, rel=1e-6)
    again = fitting.restored(json.loads(json.dumps(fitting.told(found))))
    assert model.work(shape, steady, again) == model.work(shape, steady, found)


LAWS = ((8, 64), (30, 64), (64, 64), (100, 20), (400, 20), (400, 64))


def made(model, rates, n, d, across, kept):
    """A cell as the probe would write it."""
    shape = model.Shape(n, n, d, kept=kept)
    one = model.Calls(times=2, transposed=across, sweep=across, fill=2, softmins=1)
    calls = {"cross": (one,), "source": (model.Calls(times=across, fill=1, softmins=1),)}
    evaluation = model.Evaluation(calls)
    parts = dict.fromkeys(model.ENTRYWISE, 0.0)
    for side in calls:
        # a pass that makes its rows anew is timed as the product that asks for it
        counts = (
            model.passes(shape, evaluation, side) if kept else {"anew": evaluation.iterations(side)}
        )
        for name, count in counts.items():
            each = rates.entry[name](4 * n * n)
            if name in model.MULTIPLIED:
                each += 2 * d * rates.flop[name](4 * n * n)
            parts["times" if name == "anew" else name] += count * shape.entries(side) * each
    found = model.work(shape, evaluation, rates)
    parts |= {"vectors": found["vectors"], "rest": found["rest"]}
    return {"n": n, "d": d, "kept": kept, "records": [evaluation.stored() | {"parts": parts}]}


def test_ranks_share_cores_and_rows(module):
    model = module("cost_model")
    rates, steady = some_rates(model), model.Evaluation.steady(20, 10)
    one, four = (
        model.predict(model.Shape(4000, 4000, 64, ranks=p), steady, rates, None, cores=2)
        for p in (1, 4)
    )
    for part in ("costs", "plans", "kernels"):
        assert four.parts[part] == pytest.approx(one.parts[part] / 4)
    assert four.parts["vectors"] == one.parts["vectors"]  # vectors are whole on every rank
    assert (one.seconds, four.seconds) == (one.work, 2 * four.work)


@pytest.mark.parametrize("machines", [1, 2, 8, 64])
@pytest.mark.parametrize("kind", ["sum", "gather"])
def test_an_exchange_takes_what_the_formula_says(kind, machines, module):
    model, simulation = module("cost_model"), module("scale_simulation")
    wires, message = model.Wires(3e-5, 1e9), model.Message(kind, 1_000_000)
    done = simulation.exchange(np.zeros(machines), message, wires)
    assert done == pytest.approx(wires.hypercube(message, machines) * np.ones(machines))
    late = np.zeros(machines)
    late[-1] = 5.0  # far later than all else: everybody waits for it
    assert simulation.exchange(late, message, wires) == pytest.approx(5 + done)
    with pytest.raises(ValueError, match="2\\^k machines; got 3"):
        simulation.exchange(np.zeros(3), message, wires)


def test_a_schedule_without_noise_is_the_closed_form(module):
    model, simulation = module("cost_model"), module("scale_simulation")
    rates, wires = some_rates(model), model.Wires(2e-5, 3e9)
    shape = model.Shape(10**5, 10**5, 50, ranks=16, kept=False)
    step = model.predict(shape, model.Evaluation.steady(12, 6), rates, wires)
    assert simulation.simulate(step, 16, wires) == pytest.approx(step.seconds, rel=1e-12)
    assert simulation.simulate(step, 16, wires, once=True) == pytest.approx(step.seconds)
    for noise in (simulation.jitter, simulation.pauses, simulation.old):
        often, again = (simulation.simulate(step, 16, wires, noise, seed=3) for _ in range(2))
        assert often == again
        assert simulation.simulate(step, 16, wires, noise, seed=3, once=True) <= often * (1 + 1e-12)
    slow = lambda generator, machines, seconds: seconds * (1 + (np.arange(machines) == 5))
    late = simulation.simulate(step, 16, wires, slow)
    assert late == pytest.approx(step.seconds + step.work, rel=1e-6)


def test_routes_follow_their_laws(module):
    model, far = module("cost_model"), module("scale_routes")
    machines = {p: far.Machines(some_rates(model), p, 20, 10, 40.0) for p in (100, 400)}
    rows = [machines[100].rows(n) for n in (10**9, 2 * 10**9)]
    assert rows[1].work / rows[0].work == pytest.approx(4, rel=0.02)  # every pair of samples
    assert rows[1].payload / rows[0].payload == pytest.approx(2, rel=1e-3)
    assert rows[0].memory == machines[400].rows(10**9).memory  # features are on all
    grids = [machines[p].grid(10**9) for p in (100, 400)]
    assert grids[0].memory / grids[1].memory == pytest.approx(2)
    assert grids[0].payload / grids[1].payload == pytest.approx(2)
    for way in (far.Machines.batches, far.Machines.condensed, far.Machines.low_rank):
        one, ten = way(machines[100], 10**8), way(machines[100], 10**9)
        assert 7 < ten.work / one.work < 10.5  # linear in samples
        assert ten.payload == one.payload
    limits = far.broken(machines[100])
    n = limits["a step takes an hour"]
    assert machines[100].rows(int(n)).seconds > far.HOUR
    assert machines[100].rows(int(0.98 * n)).seconds <= far.HOUR
    assert limits["features fit no more"] * far.DIM * 40 == far.MEMORY
    table = far.routes(some_rates(model), 20, 10, 40.0)["table"]
    assert len(table) == len(far.WAYS) * len(far.SAMPLES) * len(far.MACHINES)
    assert all(math.isfinite(row["seconds"]) and row["seconds"] > 0 for row in table)


def test_a_network_is_found_again_in_times_that_it_made(module):
    """An oracle: messages of known latency and bandwidth, and ranks that are late by a share of their work."""
    model, fitting = module("cost_model"), module("scale_rates")
    sizes, latency, late, cores = (8, 4096, 1 << 15, 1 << 20), 2e-3, 0.2, 2
    probes = [
        {"kind": kind, "size": size, "seconds": 5e-4 + (size - 8) / 1e9, "work": 1e-4}
        for kind in ("sum", "gather")
        for size in sizes
    ]
    rates = some_rates(model)
    curve = model.Curve(tuple((each["size"], each["seconds"]) for each in probes[:4]), beyond=1.0)
    same = dict.fromkeys(("sum", "gather", "max"), curve)
    flat = dict.fromkeys(same, model.Curve(((8.0, 1e-4), (1 << 20, 1e-4)), beyond=1.0))
    true = model.Measured(same, flat, latency, late)
    walks = []
    for shape in (model.Shape(n, n, 8, ranks=4) for n in (200, 900, 3000)):
        steps = [model.Evaluation.steady(across, 4) for across in (5, 12)]
        told = [model.predict(shape, each, rates, true, cores) for each in steps]
        records = [
            each.stored() | {"seconds": one.seconds, "work": one.work}
            for each, one in zip(steps, told, strict=True)
        ]
        walks.append({"shape": shape, "ranks": [records] * 4})
    found = fitting.network(probes, walks, cores)
    assert (found.latency, found.late) == pytest.approx((latency, late))
    one = model.Message("gather", 1 << 20)
    assert found.seconds(one, 4) == pytest.approx(latency + ((1 << 20) - 8) / 1e9)
    assert found.seconds(model.Message("max", 8), 4) == pytest.approx(latency)
    step = told[0]
    parts, count = sum(step.parts.values()), sum(each.count for each in step.said)
    assert step.work == pytest.approx(parts + 1e-4 * count)
    waiting = sum(each.count * true.seconds(each, 4) for each in step.said)
    assert step.seconds == pytest.approx(2 * step.work * (1 + late) + waiting)


@pytest.mark.slow
def test_bytes_are_those_that_ranks_count(tmp_path):
    """On 1, 2 and 4 ranks, with matrices that are kept and not; that they run, and never how fast."""
    script, kept = ROOT / "benchmarks" / "scale_model.py", tmp_path / "model.json"
    command = [sys.executable, str(script), "--quick", "--json", str(kept)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    rows = json.loads(kept.read_text())["rows"]
    assert [(row["ranks"], row["kept"]) for row in rows] == [
        (ranks, kept) for kept in (True, False) for ranks in (1, 2, 4)
    ]
    for row in rows:
        assert row["bytes"]["counted"] == row["bytes"]["model"]
        assert (max(row["bytes"]["counted"]) > 0) == (row["ranks"] > 1)

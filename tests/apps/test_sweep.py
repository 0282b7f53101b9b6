"""Sweeps over parameters: every combination once, results kept one by one, errors where they
belong.
"""

import json
import math
import warnings

import joblib
import numpy as np
import pytest
import torch

import advect as ad
from advect.apps.sweep import sweep
from advect.errors import InputError


def product_of(a, b, seed=0):
    if b == 0:
        raise ValueError("b is zero")
    return {"product": a * b, "seed used": seed, "pair": (a, b)}


def test_a_grid_is_every_combination_in_order():
    found = sweep(product_of, {"a": [1, 2], "b": (3, 4, 5)}, progress=False)
    assert [run.parameters for run in found.runs] == [
        {"a": a, "b": b} for a in (1, 2) for b in (3, 4, 5)
    ]
    assert [run.result["product"] for run in found.runs] == [3, 4, 5, 6, 8, 10]
    assert len(found) == 6 and found[5].parameters == {"a": 2, "b": 5} and not found.errors


def test_combinations_and_seeds():
    given = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    found = sweep(product_of, given, seeds=2, progress=False)
    assert [(run.parameters["a"], run.result["seed used"]) for run in found.runs] == [
        (1, 0),
        (1, 1),
        (3, 0),
        (3, 1),
    ]
    assert [
        run.result["seed used"]
        for run in sweep(product_of, given[:1], seeds=[7, 9], progress=False).runs
    ] == [7, 9]
    assert given[0] == {"a": 1, "b": 2}


def test_errors_are_kept_and_others_go_on():
    found = sweep(product_of, {"a": [1, 2], "b": [0, 3]}, progress=False)
    assert found.errors == {0: "ValueError: b is zero", 2: "ValueError: b is zero"}
    assert [run.result and run.result["product"] for run in found.runs] == [None, 3, None, 6]
    assert repr(found) == "Sweep(4 runs, 2 failed)"
    assert found.best("product").parameters == {"a": 1, "b": 3}
    assert found.best("product", largest=True).parameters == {"a": 2, "b": 3}


@pytest.mark.parametrize("backend", ["sequential", "threading", "loky"])
def test_backends_agree_also_for_a_lambda(backend):
    with joblib.parallel_config(backend, n_jobs=1 if backend == "sequential" else 2):
        found = sweep(lambda a: {"square": a**2}, {"a": range(7)}, progress=False)
    assert [run.result["square"] for run in found.runs] == [0, 1, 4, 9, 16, 25, 36]


def test_results_are_plain_whether_fresh_or_stored(tmp_path):
    def measure(n):
        return {
            "tensor": torch.arange(n),
            "scalar": np.float32(0.5),
            "nested": {"t": (1, torch.tensor(2.5))},
            3: math.nan,
        }

    fresh = sweep(measure, {"n": [2]}, store=tmp_path, progress=False)[0].result
    stored = sweep(measure, {"n": [2]}, store=tmp_path, progress=False)[0].result
    assert json.dumps(fresh) == json.dumps(stored)
    assert (
        fresh["tensor"] == [0, 1] and fresh["scalar"] == 0.5 and fresh["nested"] == {"t": [1, 2.5]}
    )
    assert math.isnan(stored["3"])
    assert sweep(lambda n: n / 2, {"n": [3]}, progress=False)[0].result == {"value": 1.5}
    assert "JSON" in sweep(lambda n: {"object": object()}, {"n": [3]}, progress=False).errors[0]


SIZES: tuple = (1, 2)


def total(n):
    return sum(SIZES) * n


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


def even(n):
    return 1 if n == 0 else odd(n - 1)


def odd(n):
    return STEP if n == 0 else even(n - 1)


STEP = 0


def test_a_store_sees_constants(tmp_path, monkeypatch):
    for sizes in ((1, 2), (10, 20), (1, 2)):
        monkeypatch.setitem(globals(), "SIZES", sizes)
        assert sweep(total, {"n": [2]}, store=tmp_path, progress=False)[0].result == {
            "value": 2 * sum(sizes)
        }
    assert len(list(tmp_path.iterdir())) == 2


def test_functions_that_call_themselves_can_be_stored(tmp_path, monkeypatch):
    for _ in range(2):
        assert sweep(factorial, {"n": [3]}, store=tmp_path, progress=False)[0].result == {
            "value": 6
        }
    assert len(list(tmp_path.iterdir())) == 1
    for step in (0, 7):  # a constant of the other of two that call each other
        monkeypatch.setitem(globals(), "STEP", step)
        assert sweep(even, {"n": [3]}, store=tmp_path, progress=False)[0].result == {"value": step}


def test_a_store_keeps_what_is_done(tmp_path):
    def count(a):
        record(a)
        if a == 2 and fail_now:
            raise RuntimeError("not yet")
        return {"a": a}

    record, fail_now = calls_to(tmp_path / "calls"), True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = sweep(count, {"a": [1, 2, 3]}, store=tmp_path / "store", progress=False)
    assert list(first.errors) == [1]
    assert made(tmp_path / "calls") == [1, 2, 3]
    sweep(count, {"a": [1, 2, 3, 4]}, store=tmp_path / "store", progress=False)
    assert made(tmp_path / "calls") == [1, 2, 3, 2, 4]  # the failed one again, and the new one
    fail_now = False  # the function is another one now
    again = sweep(count, {"a": [1, 2, 3]}, store=tmp_path / "store", progress=False)
    assert not again.errors
    assert made(tmp_path / "calls") == [1, 2, 3, 2, 4, 1, 2, 3]


def calls_to(path):
    def record(a):
        with open(path, "a") as file:
            file.write(f"{a}\n")

    return record


def made(path):
    return [int(line) for line in path.read_text().split()]


@pytest.mark.slow
def test_objects_as_parameters(tmp_path):
    a, b = (ad.datasets.load(f"toy:gaussians?n=20&seed={seed}") for seed in (0, 1))

    def distance(solver, data):
        return {"value": ad.otdd(data, b, solver=solver).value, "name": type(solver).__name__}

    grid = {"solver": [ad.ExactOT(), ad.Sinkhorn(1.0)], "data": [a, b]}
    found = sweep(distance, grid, store=tmp_path, n_jobs=2, progress=False)
    assert found[0].result["value"] == ad.otdd(a, b, solver=ad.ExactOT()).value
    assert [run.result["name"] for run in found.runs] == [
        "ExactOT",
        "ExactOT",
        "Sinkhorn",
        "Sinkhorn",
    ]
    assert len(list(tmp_path.iterdir())) == 4


def test_frames():
    pandas = pytest.importorskip("pandas")
    frame = sweep(product_of, {"a": [1], "b": [0, 3], "seed": [5]}, progress=False).to_pandas()
    assert list(frame.columns[:3]) == ["a", "b", "seed"]
    assert frame["product"].tolist()[1] == 3 and pandas.isna(frame["product"][0])
    assert frame["error"][0] == "ValueError: b is zero"
    clash = sweep(lambda a: {"a": -a, "error": 1}, {"a": [4]}, progress=False).to_pandas()
    assert (clash["a"][0], clash["result.a"][0], clash["result.error"][0]) == (4, -4, 1)


def test_best_passes_over_what_is_no_number():
    found = sweep(
        lambda a: {"loss": [math.nan, "none", 2.0, 1.0, None][a]}, {"a": range(5)}, progress=False
    )
    assert found.best("loss").parameters == {"a": 3}
    with pytest.raises(InputError, match="loss"):
        found.best("accuracy")


def test_misuse_says_what_to_do():
    for wrong, words in [
        (lambda: sweep(3, {"a": [1]}), "function"),
        (lambda: sweep(product_of, {"a": 1}), r"Write \[1\]"),
        (lambda: sweep(product_of, {"a": "xy"}), "list of values"),
        (lambda: sweep(product_of, {"a": []}), "at least one"),
        (lambda: sweep(product_of, []), "at least one"),
        (lambda: sweep(product_of, [1, 2]), "list of dictionaries"),
        (lambda: sweep(product_of, [{1: 2}]), "names"),
        (lambda: sweep(product_of, {"a": [1], "seed": [1]}, seeds=2), "twice"),
        (lambda: sweep(product_of, {"a": [1]}, seeds=0), "seeds"),
        (lambda: sweep(product_of, {"a": [torch.Generator()]}, store="unused"), "recognise"),
    ]:
        with pytest.raises(InputError, match=words):
            wrong()

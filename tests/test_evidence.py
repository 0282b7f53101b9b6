"""Experiments as cells: they run in processes of their own, are stored one by one, and are not mixed
with those of other settings."""

import doctest
import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "experiments"
TOY = """
NAME = "toy"
UPDATES = 5
COLUMNS = ("one", "two")

def cells():
    return {f"{k} shots, draw {seed}": {"k": k, "seed": seed} for k in (10, 5) for seed in (0, 1)}

def run(k, seed):
    if k == 10 and seed == 1:
        raise ValueError("not this one")
    return {"accuracies": {"one": 1 / (k + seed), "two": 0.5, "three": None}}
"""


@pytest.fixture
def toy(tmp_path, monkeypatch, capsys):
    """Call the runner: the exit code, what it printed, what it complained of."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it changes within a second
    runner, threads = importlib.import_module("run"), torch.get_num_threads()
    (tmp_path / "toy_experiment.py").write_text(TOY)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.delitem(sys.modules, "toy_experiment", raising=False)
        importlib.invalidate_caches()
        places = ["--folder", str(tmp_path), "--results", str(tmp_path / "results")]
        code = runner.main(["toy", *places, *words])
        return code, *capsys.readouterr()

    yield call
    torch.set_num_threads(threads)


def stored(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "results" / "toy.json").read_text())


def test_what_cannot_be_done_is_said_and_changes_nothing(toy, tmp_path):
    assert toy("--jobs", "0")[0] == toy("--limit", "-1")[0] == 2
    assert not (tmp_path / "results").exists()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "toy.json").write_text('{"settings":')
    code, _, complaint = toy("--limit", "1")
    assert code == 2 and "toy.json is no file of results" in complaint
    assert (tmp_path / "results" / "toy.json").read_text() == '{"settings":'
    assert toy("--limit", "1", "--again")[0] == 0 and len(stored(tmp_path)["cells"]) == 1


def test_cells_are_stored_one_by_one_and_a_failing_one_hinders_nobody(toy, tmp_path):
    assert toy("--limit", "1")[0] == 0
    assert list(stored(tmp_path)["cells"]) == ["10 shots, draw 0"]
    code, _, complaint = toy()
    assert code == 1 and "not this one" in complaint
    kept = stored(tmp_path)
    assert list(kept["cells"]) == ["5 shots, draw 0", "5 shots, draw 1", "10 shots, draw 0"]
    assert kept["settings"] == {"UPDATES": 5, "COLUMNS": ["one", "two"]}
    cell = kept["cells"]["5 shots, draw 1"]
    assert cell["arguments"] == {"k": 5, "seed": 1}
    assert cell["accuracies"] == {"one": 0.166667, "two": 0.5, "three": None}
    assert cell["seconds"] >= 0 and cell["processor seconds"] >= 0
    before = (tmp_path / "results" / "toy.json").read_bytes()
    assert toy("--match", "5 shots")[0] == 0  # nothing is computed again
    assert (tmp_path / "results" / "toy.json").read_bytes() == before
    assert list((tmp_path / "results").iterdir()) == [tmp_path / "results" / "toy.json"]


def test_cells_of_other_settings_are_not_mixed(toy, tmp_path):
    assert toy("--match", "5 shots")[0] == 0
    module = tmp_path / "toy_experiment.py"
    module.write_text(TOY.replace("UPDATES = 5", "UPDATES = 6"))
    code, _, complaint = toy("--match", "5 shots")
    assert code == 2
    assert "UPDATES is 5 there and 6 now" in complaint and "--again" in complaint
    module.write_text(TOY.replace("UPDATES = 5", "UPDATES = 5\nDRAWS = 7"))  # only more of them
    assert toy("--match", "5 shots")[0] == 0
    module.write_text(TOY.replace("UPDATES = 5", "UPDATES = 6"))
    assert toy("--match", "draw 0", "--again")[0] == 0
    kept = stored(tmp_path)
    assert kept["settings"]["UPDATES"] == 6
    assert list(kept["cells"]) == ["5 shots, draw 0", "10 shots, draw 0"]


def test_examples_of_the_helpers(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("evidence", "tables"):
        outcome = doctest.testmod(importlib.import_module(name))
        assert outcome.attempted and not outcome.failed

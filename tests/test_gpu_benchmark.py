"""The script that a user with a GPU runs, in its quickest form, and the arithmetic beside it."""

import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu

    return gpu


@pytest.mark.slow
def test_it_runs_without_a_gpu_and_says_so(script, tmp_path, monkeypatch, capsys):
    path = tmp_path / "gpu.json"
    words = ["gpu.py", "--device", "cpu", "--quick", "--cases", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", words)
    script.main()
    assert "no GPU" in capsys.readouterr().out
    found = json.loads(path.read_text())
    (row,) = found["rows"]
    assert found["kind"] == "cpu" and row["waits"] <= 10
    assert row["step"] > 0 and row["ratio"] == pytest.approx(row["step"] / row["products"])
    assert 0 < row["roofline"] < 1


def test_the_roofline_on_file_is_that_of_the_script(script):
    stored = json.loads((FOLDER / "results" / "roofline.json").read_text())
    assert stored["rows"] == json.loads(json.dumps(script.roofline.rows()))
    parts = script.roofline.work(1000, 784)
    assert parts["products"] == 4 * 2 * 1000**2 * 784

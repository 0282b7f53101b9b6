"""The examples run as they stand, and end in a figure that makes sense and a picture."""

import re
import runpy
import warnings
from pathlib import Path

import pytest

# what each prints at its end, and what must hold of the numbers in it
FIGURES = {
    "custom_functional": (
        r"value ([\d.]+) to ([\d.]+), second column moved by ([\d.]+)",
        lambda first, last, moved: last < first / 2 and moved == 0,
    ),
    "daily_drift": (r"(\d) false alarms, (\d) of 3 found", lambda a, b: a == 0 and b == 3),
    "flipped_labels": (r"average precision ([\d.]+)", lambda value: value > 0.95),
    "generated": (r"Classes without synthetic samples: (\d)", lambda name: name == 8),
    "hospitals": (r"as they are ([\d.]+)\nmoved ([\d.]+)", lambda a, b: b > max(a + 0.02, 0.9)),
    "huggingface": (r"(\d+)% of the labels are right", lambda share: share > 85),
    "image_folders": (
        r"(\d+) images, distance ([\d.]+)\n[^\d]*([\d.]+)",
        lambda n, before, after: n == 62 and after < before / 2,
    ),
    "interrupt_resume": (r"(\d+) steps, bit for bit the same: True", lambda n: n == 20),
    "parquet_rows": (
        r"(\d+) rows\ndistance ([\d.]+), between ([\d.]+) and ([\d.]+)",
        lambda n, value, low, high: n == 2_000_000 and low < value < high,
    ),
    "sklearn_grid": (
        r"accuracy ([\d.]+) without, ([\d.]+) with",
        lambda without, moved: moved > without + 0.1,
    ),
}
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capsys):
    if path.stem == "huggingface":
        pytest.importorskip("datasets", reason="the package datasets is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(path), run_name="__main__")
    pattern, holds = FIGURES[path.stem]
    found = re.search(pattern, printed := capsys.readouterr().out)
    assert found and holds(*map(float, found.groups())), printed

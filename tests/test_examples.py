"""The examples run as they stand, and end in a figure that makes sense and a picture."""

from __future__ import annotations

import re
import runpy
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

# what each prints at its end, and what must hold of the numbers in it
FIGURES: dict[str, tuple[str, Callable[..., bool]]] = {
    "csv_to_csv": (r"distance ([\d.]+) → ([\d.]+)", lambda before, after: after < before / 2),
    "embedding": (r"([\d.]+)% as they are, ([\d.]+)% carried", lambda a, b: b > max(a, 60)),
    "five_datasets": (
        r"the other half at ([\d.]+), between ([\d.]+) and ([\d.]+)",
        lambda value, low, high: 0 <= low < value < high,
    ),
    "five_shots": (r"([\d.]+)% by the few, ([\d.]+)% by", lambda a, b: 30 < a < 95 and b > a - 5),
    "frozen_cnn": (r"([\d.]+)% as they are, ([\d.]+)% carried", lambda a, b: b > max(a, 60)),
    "image_folders": (
        r"\): ([\d.]+)\nafter the flow: ([\d.]+)",
        lambda before, after: after < before / 2,
    ),
    "pandas_categories": (
        r"ours: alcohol ([\d.]+)[^$]*moved: alcohol ([\d.]+)[^$]*theirs: alcohol ([\d.]+)",
        lambda ours, moved, theirs: abs(moved - theirs) < abs(ours - theirs) / 4,
    ),
    "text": (r"value +([\d.]+)", lambda value: 0.1 < value < 2),
}
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
    assert path.read_text(encoding="utf-8").startswith('"""')


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_DATA", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(path), run_name="__main__")
    pattern, holds = FIGURES[path.stem]
    found = re.search(pattern, printed := capsys.readouterr().out)
    assert found and holds(*map(float, found.groups())), printed
    assert (tmp_path / "out" / "examples" / f"{path.stem}.png").stat().st_size > 5000

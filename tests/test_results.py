"""Every measured number of the documentation comes from a file of results, and pages are as the files say."""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_as_the_files_say_and_every_number_has_a_source(page, module):
    assert module("report").rebuilt(page) == page.read_text(encoding="utf-8"), "run make results"
    found = module("sources").unsourced(page)
    assert not found, f"write these from a file of results (experiments/report.py): {found}"


def test_phrases_of_constants_are_in_use(module):
    sources = module("sources")
    assert sources.unused() == []
    assert sum(map(len, sources.constants().values())) < 40  # an exception is one
    assert all(reason for page in sources.constants().values() for reason in page.values())


TYPED_IN = """USPS reaches 93.1 ± 0.4 with five shots.
It is ahead in 10 of 12 pairs.
A step is 3 times as fast, and takes 20 s or 300 MB.
Up to fifty times as long, or one in twenty.
Off by 3e-4, time n^1.86.
It is twice as fast, and takes a third less.
Equal to POT to 1e-23 (`tests/ot/test_ot.py`).
It rises to {{ "94" }} %.
{% set best = 94 %}
| USPS | 67 | 78 |
Faster by an order of magnitude.""".splitlines()


@pytest.mark.parametrize("line", TYPED_IN)
@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/missing-labels.md"])
def test_a_number_that_is_typed_in_is_found(line, name, module):
    page, sources = ROOT / name, module("sources")
    source = sources.TEMPLATE if page == sources.RESULTS else page
    text = source.read_text(encoding="utf-8")
    assert sources.unsourced(source, text) == []
    assert sources.unsourced(source, f"{text}\n\n{line}\n")
    assert sources.unsourced(source, f"{text}\n\n<!-- from {line} -->\n<!-- end -->\n")
    number = re.search(r"\d+\.\d+", line)
    if number:
        assert sources.unsourced(source, f"{text}\n\n{{{{ {number[0]} }}}} %\n")


@pytest.mark.parametrize(
    "line",
    [
        "Section 5.3 of the paper, §6.2, Python 3.11, 2000 samples, 28 × 28 pixels.",
        "`advect flow --step 0.25` takes `1.5`.",
        "```python\nx = 0.25\n```",
        "Equal to POT to 1e-9 (`tests/ot/test_ot.py`).",
        "Epsilon is 1 % of the mean cost.",
        "| exit | meaning |\n| --- | --- |\n| 130 | interrupted |",
        "{# a remark of 94 % #}{{ read('labels').draws }}",
    ],
)
def test_settings_code_and_what_tests_hold_are_no_measurements(line, module):
    page = ROOT / "docs" / "missing-labels.md"
    text = page.read_text(encoding="utf-8")
    assert module("sources").unsourced(page, f"{text}\n\n{line}\n") == []


def test_tables_are_paired_and_honest(module, tmp_path):
    """Against scipy's paired t interval, with cells that are not run and columns that are not everywhere."""
    from scipy import stats

    one, other = [0.5, 0.6, 0.74, 0.7], [0.45, 0.58, 0.7, 0.67]
    cells = {
        f"usps, 5 shots, draw {i}": {"accuracies": {"b": b, "a": a}, "processor seconds": 60}
        for i, (a, b) in enumerate(zip(one, other, strict=True))
    }
    cells["usps, 10 shots, draw 0"] = {"accuracies": {"b": 0.5}, "processor seconds": 60}
    settings = {"COLUMNS": ["a", "b"], "RECOMMENDED": "a", "BASELINE": "b"}
    planned = {"usps, 5 shots": 4, "usps, 10 shots": 2, "kmnist, 5 shots": 2}
    stored = {"settings": settings, "planned": planned, "cells": cells}
    (tmp_path / "toy.json").write_text(json.dumps(stored))
    toy = module("tables").Experiment.read("toy", tmp_path)
    gain = toy.gain("usps, 5 shots", "a", "b")
    test = stats.ttest_rel(one, other)
    interval = test.confidence_interval(0.95)
    assert gain.mean == pytest.approx(50 * (interval.low + interval.high))
    assert gain.half == pytest.approx(50 * (interval.high - interval.low))
    assert (gain.sign > 0) == (test.pvalue < 0.05 and gain.mean > 0)
    assert toy.gain("usps, 10 shots", "a", "b") is None
    lines = toy.table(head="data").splitlines()
    assert lines[0] == "| data | **a** | b |"
    assert lines[2].startswith("| usps, 5 shots | **63.5 (+3.5 ± ")
    assert lines[3] == "| usps, 10 shots | not run | 50.0 |"
    assert lines[4] == "| kmnist, 5 shots | not run | not run |"
    assert "3 of 8 cells not run" in toy.draws and toy.minutes == "5 processor minutes"
    assert gain.sign == 1 and "significantly above *b* in 1 of 1 settings" in toy.verdict()
    assert "(2 settings are not run)" in toy.verdict()
    # draws without both columns do not count: the mean of b over all draws is not compared with
    assert toy.beside_best(["b"], "a").count(f"{gain.mean:+.1f} (b)") == 1
    uneven = {**cells, "usps, 5 shots, draw 9": {"accuracies": {"b": 0.0}}}
    uneven = module("tables").Experiment("toy", settings, uneven, planned)
    assert uneven.beside_best(["b"], "a") == toy.beside_best(["b"], "a")
    assert "draws)" not in toy.table() and "; 4 draws)" in uneven.table().splitlines()[2]
    nothing = module("tables").Experiment.read("nothing", tmp_path)
    assert "not run" in nothing.table() and "not run" in nothing.draws


def test_figures_are_current(module):
    assert module("figures").stale() == [], "run make results"


# Results of version 0.2 that the documentation still cites, after their scripts changed or went.
FROZEN = {"condense", "regression", "sliced"}


def test_stored_cells_and_settings_are_those_of_the_scripts(module):
    """A file of results without its script cannot be rerun; what the page says was run is what its command runs now."""
    evidence = module("evidence")
    known = evidence.known()
    for path in evidence.RESULTS.glob("*.json"):
        if path.stem in FROZEN:
            continue
        assert path.stem in known and path.stat().st_size < 1_000_000, path.name
        script = evidence.load(path.stem)
        stored = evidence.Store(path, evidence.settings(script), {}).cells()  # others are refused
        planned = script.cells()
        other = [name for name, cell in stored.items() if planned.get(name) != cell["arguments"]]
        assert not other, f"{path.name}: {other[:3]} are of no cell of the script"

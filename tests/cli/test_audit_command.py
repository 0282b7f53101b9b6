"""``advect audit``: a table, a page, cleaned data; what is refused leaves everything as it was."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import advect as ad
from advect.cli.app import main

DATA = "toy:gaussians?n=90&classes=3&spread=0.5"


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def flipped():
    """A table whose rows 4 and 7 have another's label."""
    rng = np.random.default_rng(0)
    names = [*"abc" * 30]
    lines = [f"{10 * 'abc'.index(c) + rng.normal():.4f},{rng.normal():.4f}" for c in names]
    names[4], names[7] = "c", "a"
    rows = [f"{line},{name}" for line, name in zip(lines, names, strict=True)]
    Path("data.csv").write_text("\n".join(["wide,high,kind", *rows]) + "\n")
    return "csv:data.csv?label=kind"


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_a_table_a_page_and_cleaned_data(flipped, capsys):
    words = ["audit", flipped, "-o", "t.csv", "--report", "p.html", "--cleaned", "c.csv", "--json"]
    assert main([*words, "-q"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert sorted(facts["wrong"]) == [4, 7] and facts["missing"] is None
    rows = list(csv.DictReader(Path("t.csv").read_text().splitlines()))
    assert len(rows) == 90 and "wrong" in rows[4]["suspect"] and rows[4]["proposed"] == "b"
    assert "Labels in doubt" in Path("p.html").read_text()
    kept = ad.datasets.load("csv:c.csv?label=kind")
    assert len(kept) == 90 - len(facts["suspects"])
    before = content()
    assert main(words) == 2 and content() == before
    assert main([*words, "--overwrite", "-q"]) == 0


def test_a_reference_and_words(flipped, capsys):
    assert main(["audit", flipped, flipped, "-q"]) == 0
    out = capsys.readouterr().out
    assert "labels in doubt" in out and "4 (c → b)" in out and not Path("t.csv").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([DATA, "-o", "x.txt"], ".csv"),
        ([DATA, "--report", "x.txt"], ".html"),
        ([DATA, "--cleaned", "x.png"], ".npz"),
        ([DATA, "-o", "there.csv"], "--overwrite"),
        ([DATA, "-o", "x.csv", "--cleaned", "x.csv"], "one file"),
        ([DATA, "-o", "x.csv", "--embedding", "nothing"], "gradients"),
        ([DATA, "-o", "x.csv", "--embedding", "gradients"], "images"),
        ([DATA, "no-such-data", "-o", "x.csv"], "no-such-data"),
        (["csv:bare.csv?label=none", "-o", "x.csv"], "label"),
        ([DATA, "digits", "-o", "x.csv"], "feature"),
        ([DATA, "-o", "x.csv", "--memory-limit", "many"], "--memory-limit"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else value,
)
def test_bad_input_ends_with_two_and_touches_nothing(words, said, capsys):
    Path("there.csv").write_text("mine")
    Path("bare.csv").write_text("a,b\n1,2\n3,4\n")
    before = content()
    assert main(["audit", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and content() == before

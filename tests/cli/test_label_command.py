"""``advect label``: tables, directories, pages; what is refused leaves everything as it was."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import advect as ad
from advect.cli.app import main

POOL, FEW = "toy:gaussians?n=60&classes=3", "toy:gaussians?n=12&classes=3&seed=5"
BASE = ("label", POOL, FEW, "--relabel", "-q")


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_a_table_and_a_page(capsys):
    assert main([*BASE, "-o", "labels.csv", "--report", "page.html", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    rows = list(csv.DictReader(Path("labels.csv").read_text().splitlines()))
    assert len(rows) == 60 and [int(row["row"]) for row in rows] == list(range(60))
    truth = [str(name) for name in ad.datasets.load(POOL).labels]
    agree = np.mean([row["label"] == name for row, name in zip(rows, truth, strict=True)])
    assert facts["agree"] == pytest.approx(agree) and agree > 0.8
    assert facts["held_out"] == 12 and facts["interval"][0] <= facts["accuracy"]
    assert len(facts["unsure"]) == 20
    assert all(float(row["confidence"]) >= float(row["second_confidence"]) for row in rows)
    assert "Worth knowing" in Path("page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_other_tables(suffix):
    assert main([*BASE, "-o", f"labels.{suffix}", "--confidence", "0.5"]) == 0
    if suffix == "npz":
        table = np.load(f"labels.{suffix}", allow_pickle=False)
        assert table["probabilities"].shape == (60, 3) and table["classes"].tolist() == list("012")
        left_out = table["label"] == ""
    else:
        pandas = pytest.importorskip("pandas")
        table = pandas.read_parquet(f"labels.{suffix}")
        left_out = table["label"].isna().to_numpy()
    assert (left_out == (np.asarray(table["confidence"]) < 0.5)).all()


@pytest.mark.slow
def test_a_directory_is_replaced_only_if_it_is_ours(capsys):
    words = [*BASE, "-o", "out", "--report", "out/page.html", "--format", "csv"]
    assert main(words) == 0
    assert {path.name for path in Path("out").iterdir()} == {
        "labels.csv",
        "pool.csv",
        "page.html",
        "result.json",
    }
    assert len(ad.datasets.load("out/pool.csv")) == 60
    before = content()
    assert main(words) == 2 and content() == before
    assert main([*words, "--overwrite"]) == 0
    Path("out/notes.txt").write_text("mine")
    before = content()
    assert main([*words, "--overwrite"]) == 2 and content() == before
    assert "notes.txt" in capsys.readouterr().err


@pytest.mark.slow
def test_some_labels_of_the_pool_are_enough():
    table = ad.datasets.load(POOL)
    known = [str(name) if row < 15 else "" for row, name in enumerate(table.labels)]
    lines = [f"{a},{b},{name}" for (a, b), name in zip(table.x.tolist(), known, strict=True)]
    Path("pool.csv").write_text("\n".join(["wide,high,kind", *lines]) + "\n")
    assert main(["label", "csv:pool.csv?label=kind", "-o", "labels.csv", "-q"]) == 0
    rows = list(csv.DictReader(Path("labels.csv").read_text().splitlines()))
    assert [row["known"] for row in rows] == ["1"] * 15 + ["0"] * 45
    assert [row["label"] for row in rows[:15]] == known[:15]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["label", POOL, FEW, "-o", "x.csv"], "--relabel"),
        ([*BASE, "-o", "x.txt"], ".csv"),
        ([*BASE, "-o", "x.csv", "--report", "page.txt"], ".html"),
        ([*BASE, "-o", "there.csv"], "--overwrite"),
        ([*BASE, "-o", "x.csv", "--report", "there.html"], "--overwrite"),
        ([*BASE, "-o", "x.csv", "--embedding", "nothing"], "gradients"),
        ([*BASE, "-o", "x.csv", "--embedding", "gradients"], "images"),
        ([*BASE, "-o", "x.csv", "--embedding", "missing.onnx"], "missing.onnx"),
        ([*BASE, "-o", "x.csv", "--embedding", "body.pt"], "ONNX"),
        ([*BASE, "-o", "x.csv", "--embedding", "mine.py:broken"], "KeyError: 'oh'"),
        ([*BASE, "-o", "x.csv", "--embedding", "mine.py:nothing"], "at least one"),
        ([*BASE, "-o", "there.csv/x.csv"], "there.csv"),
        ([*BASE, "-o", "there.csv/sets/x"], "there.csv"),
        ([*BASE, "-o", "x.csv", "--report", "there.csv/x.html"], "there.csv"),
        ([*BASE, "-o", "x.csv", "--confidence", "1.5"], "confidence"),
        ([*BASE, "-o", "x.csv", "--alpha", "1"], "alpha"),
        (["label", POOL, "--relabel", "-o", "x.csv"], "two classes"),
        (["label", POOL, "no-such-data", "-o", "x.csv"], "no-such-data"),
    ],
    ids=lambda value: " ".join(value[-3:]) if isinstance(value, list) else value,
)
def test_bad_input_ends_with_two_and_touches_nothing(words, said, capsys):
    Path("there.csv").write_text("mine")
    Path("there.html").write_text("mine")
    Path("mine.py").write_text(
        "def broken(x): raise KeyError('oh')\ndef nothing(x): return x[:, :0]\n"
    )
    before = content()
    assert main(words) == 2
    err = capsys.readouterr().err
    assert said in err and content() == before


@pytest.mark.slow
def test_an_embedding_of_ones_own_is_run_only_when_it_is_typed(capsys):
    Path("mine.py").write_text("def first(samples):\n    return samples[:, :1]\n")
    assert main([*BASE, "-o", "x.csv", "--embedding", "mine.py:first"]) == 0
    Path("settings.toml").write_text('embedding = "mine.py:first"\n')
    assert main([*BASE, "-o", "y.csv", "-c", "settings.toml"]) == 2
    assert "--run-code" in capsys.readouterr().err and not Path("y.csv").exists()
    assert main([*BASE, "-o", "y.csv", "-c", "settings.toml", "--run-code"]) == 0

"""Labels with doubt from the command line: read from tables, flowed, shown, written again."""

from __future__ import annotations

import json

import pytest

import advect as ad
from advect.cli.app import main


@pytest.fixture
def votes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 5},{i % 3},{i % 4 / 4},{1 - i % 4 / 4}" for i in range(20)]
    (tmp_path / "votes.csv").write_text("\n".join(["u,v,p_cat,p_dog", *rows]) + "\n")
    return "votes.csv?probabilities=p_"


def test_a_table_is_compared_flowed_and_written_again(votes, tmp_path, capsys):
    assert main(["data", "info", votes, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["counts"] == {"cat": 10, "dog": 10} and said["confidence"] == pytest.approx(0.75)
    assert main(["data", "info", votes]) == 0
    assert "labels are probabilities, of 0.75 for the likeliest" in capsys.readouterr().out
    target = "toy:gaussians?n=30"
    assert main(["distance", votes, target, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)["value"]
    assert value == pytest.approx(ad.otdd(*map(ad.datasets.load, (votes, target))).value, rel=1e-6)
    assert main(["flow", votes, target, "-o", "run", "--steps", "2"]) == 0
    assert "mean confidence 0.75" in (tmp_path / "run" / "report.html").read_text()
    assert main(["data", "convert", "run:run", "-o", "end.parquet"]) == 0
    end = ad.datasets.load("end.parquet")
    assert end.probabilities.tolist() == ad.datasets.load(votes).probabilities.tolist()


def test_what_cannot_be_ends_with_2_and_writes_nothing(votes, tmp_path, capsys):
    target = "toy:gaussians?n=30"
    assert main(["flow", votes, target, "-o", "run", "--steps", "2", "--dynamics", "jd-vl"]) == 2
    assert "?probabilities=false" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert main(["distance", "votes.csv?probabilities=u,v", target]) == 2
    assert "must sum to one" in capsys.readouterr().err


def test_labels_that_are_given_keep_their_doubt(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pool = ad.datasets.load("toy:gaussians?n=60")
    kept = [name if row % 10 == 0 else None for row, name in enumerate(pool.labels)]
    ad.LabeledDataset(pool.x, kept).save("pool.npz")
    options = ["--method", "propagate", "--neighbors", "5", "--alpha", "0.9"]
    for out, more in (("soft", ["--doubt"]), ("hard", [])):
        assert main(["label", "pool.npz", "-o", out, *options, *more]) == 0
    soft, hard = (ad.datasets.load(f"{out}/pool.npz") for out in ("soft", "hard"))
    assert soft.has_doubt and not hard.has_doubt and soft.labels == hard.labels

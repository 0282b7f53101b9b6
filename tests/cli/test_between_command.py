"""``advect interpolate`` and ``advect barycenter``: files, soft labels, pages, JSON; what is refused leaves
everything as it was."""

import csv
import json
from pathlib import Path

import pytest
import torch

import advect as ad
from advect.cli.app import main

A, B, C = (f"toy:gaussians?n=30&shift={at},0&seed={at}" for at in (0, 6, 12))


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_dataset_on_the_way_is_that_of_python(capsys):
    words = ["interpolate", A, B, "--t", "0.25", "-o", "way.npz", "--probabilities", "soft.csv"]
    words += ["--report", "way.html", "-q", "--json"]
    assert main(words) == 0
    facts = json.loads(capsys.readouterr().out)
    a, b = ad.datasets.load(A), ad.datasets.load(B)
    wanted, found = ad.interpolate(a, b, 0.25), ad.datasets.load("way.npz")
    assert torch.allclose(found.x, wanted.dataset.x) and found.labels == wanted.dataset.labels
    assert torch.allclose(found.weights, wanted.dataset.weights)
    assert facts["n"] == len(found) and facts["distance"] == pytest.approx(wanted.distance.value)
    rows = list(csv.DictReader(Path("soft.csv").read_text().splitlines()))
    assert [float(row["0"]) for row in rows] == wanted.probabilities[:, 0].tolist()
    assert {row["t"] for row in rows} == {"0.25"} and "A path" in Path("way.html").read_text()
    before = content()
    assert main(words) == 2 and content() == before
    assert main([*words, "--overwrite"]) == 0


def test_several_times_have_files_of_their_own():
    times = [word for t in ("0", "0.5", "1") for word in ("--t", t)]
    assert (
        main(["interpolate", A, B, *times, "-o", "way.csv", "--joined", "--size", "20", "-q"]) == 0
    )
    assert {path.name for path in Path().glob("*.csv")} == {"way-0.csv", "way-0.5.csv", "way-1.csv"}
    half = ad.datasets.load("csv:way-0.5.csv?label=label")
    assert len(half) == 20 and all(" → " in label for label in half.labels)
    Path("way-1.csv").unlink()
    before = content()
    assert main(["interpolate", A, B, *times, "-o", "way.csv", "-q"]) == 2 and content() == before


def test_what_is_written_is_in_the_units_of_the_source(capsys):
    words = ["interpolate", A, B, "--t", "0", "--space.scale", "standardize", "-q"]
    assert main([*words, "-o", "own.npz"]) == 0
    assert main([*words, "--units", "common", "-o", "common.npz"]) == 0
    own, common = ad.datasets.load("own.npz"), ad.datasets.load("common.npz")
    mean = ad.datasets.load(A).x.mean(dim=0)
    assert torch.allclose(own.weights.float() @ own.x, mean, atol=1e-4)
    assert not torch.allclose(common.weights.float() @ common.x, mean, atol=1e-1)


@pytest.mark.slow
def test_images_of_other_sizes_and_a_folder():
    sets = ["digits?n=40", "toy:gaussians?n=30"]
    assert main(["interpolate", *sets, "-o", "way.npz", "-q"]) == 2
    words = ["interpolate", "digits?n=40", "digits?n=30&seed=1", "-o", "folder", "-q"]
    assert main(words) == 2 and content() == {}  # a folder keeps no weights
    assert main([*words, "--size", "12"]) == 0
    assert len(ad.datasets.load("folder")) == 12


def test_a_barycenter_is_that_of_python(capsys):
    words = ["barycenter", A, B, C, "--weights", "1", "--weights", "1", "--weights", "2"]
    words += ["-o", "middle.npz", "--probabilities", "soft.csv", "--report", "middle.html"]
    assert main([*words, "-q", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    wanted = ad.barycenter([ad.datasets.load(one) for one in (A, B, C)], [1, 1, 2])
    found = ad.datasets.load("middle.npz")
    assert torch.allclose(found.x, wanted.dataset.x, atol=1e-6)
    assert facts["value"] == pytest.approx(wanted.value) and facts["converged"]
    assert facts["weights"] == [0.25, 0.25, 0.5]
    rows = list(csv.reader(Path("soft.csv").read_text().splitlines()))
    assert rows[0] == ["row", "0", "1", "2"] and len(rows) == len(found) + 1
    assert "&#34;" not in Path("middle.html").read_text()
    before = content()
    assert main([*words, "-q"]) == 2 and content() == before


def test_strict_tells_what_has_not_converged():
    words = ["barycenter", A, B, C, "--max-iterations", "0", "-q"]
    assert main([*words, "-o", "one.npz"]) == 0
    assert main([*words, "-o", "two.npz", "--strict"]) == 3

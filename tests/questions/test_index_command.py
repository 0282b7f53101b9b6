"""``advect index``: a catalogue that is added to, asked, listed and drawn; what is refused leaves
everything as it was.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import advect as ad
from advect.cli.app import main

MOONS, RINGS, BLOBS = "toy:moons?n=60", "toy:rings?n=60&classes=2", "toy:gaussians?n=60&classes=2"


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def catalogue(capsys):
    assert main(["index", "add", "all", MOONS, RINGS, BLOBS, "--directions", "8", "-q"]) == 0
    capsys.readouterr()


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def said(capsys, *words):
    assert main(["index", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_add_near_list_remove(catalogue, capsys):
    rows = said(capsys, "list", "all")["datasets"]
    assert [row["name"] for row in rows] == ["gaussians", "moons", "rings"]
    assert all(row["n"] == row["kept"] == 60 and row["classes"] == 2 for row in rows)
    found = said(capsys, "near", "all", f"{MOONS}&seed=5", "-k", "2")["nearest"]
    assert found[0]["name"] == "moons" and len(found) == 2 and found[0]["otdd"] is not None
    query, kept = (
        ad.datasets.load(f"{MOONS}&seed=5"),
        ad.DatasetIndex("all").entry("moons").sample(),
    )
    assert kept is not None
    assert found[0]["otdd"] == pytest.approx(ad.otdd(query, kept, solver=ad.ExactOT()).value)
    by_name = said(capsys, "near", "all", "moons", "--rerank", "0")["nearest"]
    assert {row["name"] for row in by_name} == {"rings", "gaussians"}
    assert by_name[0]["otdd"] is None
    assert said(capsys, "remove", "all", "moons")["datasets"] == 2
    assert "moons" not in ad.DatasetIndex("all")


def test_a_table_for_people(catalogue, capsys):
    assert main(["index", "near", "all", "moons", "-k", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "sliced", "distance", "otdd", "samples", "classes"]
    assert len(lines) == 2
    assert main(["index", "list", "all"]) == 0
    assert "3 datasets" in capsys.readouterr().out


def test_a_space_for_images(capsys):
    words = ["--space.size", "6", "--max-samples", "80", "-q"]
    assert main(["index", "add", "images", "digits", *words]) == 0
    assert main(["index", "add", "images", "mnist", "--max-samples", "80", "-q"]) == 0
    assert ad.DatasetIndex("images").space.sample_shape == (6, 6)
    capsys.readouterr()
    found = said(capsys, "near", "images", "mnist?n=80&seed=3", "-k", "1")["nearest"]
    assert found[0]["name"] == "mnist"


def test_data_in_parts(catalogue, capsys):
    ad.datasets.load("toy:moons?n=500&seed=2").save("large.npz")
    assert said(capsys, "add", "all", "large.npz", "--stream")["added"]["large"]["kept"] == 0
    found = said(capsys, "near", "all", "moons", "-k", "1", "--rerank", "0")["nearest"]
    assert found[0]["name"] == "large"


def test_vectors_and_maps_are_written(catalogue, capsys):
    assert main(["index", "export", "all", "-o", "vectors.npz", "-q"]) == 0
    assert main(["index", "export", "all", "-o", "vectors.csv", "-q"]) == 0
    vectors, names = ad.DatasetIndex("all").vectors()
    with np.load("vectors.npz", allow_pickle=False) as held:
        assert held["names"].tolist() == list(names) and (held["vectors"] == vectors).all()
    rows = [line.split(",") for line in Path("vectors.csv").read_text().splitlines()[1:]]
    assert [row[0] for row in rows] == list(names)
    assert (np.array([row[1:] for row in rows], dtype=float) == vectors).all()
    assert main(["index", "map", "all", "-o", "map.png", "-q"]) == 0
    assert main(["index", "map", "all", "-o", "map.html", "-q"]) == 0
    assert Path("map.png").read_bytes().startswith(b"\x89PNG")
    assert "Nearest to each" in Path("map.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "all"], "nothing to add"),
        (["add", "all", MOONS], "of this name"),
        (["add", "all", "no-such-set"], "no-such-set"),
        (["add", "all", "toy:swiss_roll?n=50"], "shape"),
        (["add", "all", BLOBS, RINGS, "--name", "x"], "one dataset"),
        (["add", "all", BLOBS, "--name", "x", "--keep", "3"], "made with"),
        (["add", "all", BLOBS, "--name", "x", "--space.scale", "unit"], "made with"),
        (["add", "new", "toy:swiss_roll?n=50", "no-such-set"], "no-such-set"),
        (["add", "new", MOONS, "--stream"], "first dataset"),
        (["add", "new", "unlabeled.npz"], "label for each sample"),
        (["add", "file", MOONS], "in the way"),
        (["near", "all", "no-such-set"], "no-such-set"),
        (["near", "all", "moons", "-k", "0"], "k must be"),
        (["near", "nowhere", "moons"], "no index here"),
        (["list", "nowhere"], "no index here"),
        (["remove", "all", "moons", "nobody"], "nobody"),
        (["map", "all", "-o", "file"], "already"),
        (["map", "all", "-o", "map.doc"], "suffix"),
        (["export", "all", "-o", "vectors.doc"], ".npz"),
    ],
)
def test_what_is_refused_leaves_everything_as_it_was(catalogue, capsys, words, message):
    Path("file").write_text("mine")
    ad.LabeledDataset(np.zeros((4, 2))).save("unlabeled.npz")
    before = content()
    assert main(["index", *words]) == 2
    assert message in capsys.readouterr().err
    if words[:2] == ["add", "new"] and "no-such-set" in words:  # what came before it stays
        assert ad.DatasetIndex("new").names == ("swiss_roll",)
        return
    assert content() == before

"""``advect map match``: a map from two datasets, without a run; what is refused leaves everything as it
was."""

import json
from pathlib import Path

import pytest
import torch

import advect as ad
from advect.cli.app import main

A, B = "toy:gaussians?n=60", "toy:gaussians?n=80&seed=1&shift=5,1"
QUICK = ("--velocity.updates", "15", "--velocity.width", "16")
BASE = ("map", "match", A, B, *QUICK, "-q")


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADVECT_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setattr("os.fsync", lambda _: None)


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.slow
def test_as_the_library(capsys):
    assert main([*BASE, "-o", "map", "--report", "page.html", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["pairs_of_other_classes"] == 0 and facts["n"] == [60, 80]
    assert {path.name for path in Path("map").iterdir()} == {"map.safetensors", "space.json"}
    assert "toy:gaussians?n=60 to" in Path("page.html").read_text()
    source, target = ad.harmonize(ad.datasets.load(A), ad.datasets.load(B))
    library = ad.maps.FlowMatchingMap(updates=15, width=16, progress=False)
    library.fit(ad.PairSampler(source, target))
    fresh = "toy:gaussians?n=20&seed=5"
    assert main(["map", "apply", "map", fresh, "-o", "carried.npz", "-q"]) == 0
    expected = library.transform(ad.datasets.load(fresh)).x
    assert torch.allclose(ad.datasets.load("carried.npz").x, expected, atol=1e-6)
    assert main(["map", "export", "map", "-o", "map.pt2", "-q"]) == 0
    moved = torch.export.load("map.pt2").module()(torch.zeros(1, 2), torch.tensor([-1]))
    assert torch.allclose(moved, library.transform(torch.zeros(1, 2)), atol=1e-5)


@pytest.mark.slow
def test_label_weights(capsys):
    shares = {}
    for weight in ("0", "2", "inf"):
        words = [*BASE, "-o", f"map-{weight}", "--label-weight", weight, "--json"]
        assert main(words) == 0
        shares[weight] = json.loads(capsys.readouterr().out)["pairs_of_other_classes"]
    assert shares["0"] >= shares["2"] > shares["inf"] == 0 or shares["2"] == 0


def test_a_map_of_a_run():
    assert main(["flow", A, B, "--steps", "2", "--no-report", "-o", "run", "-q"]) == 0
    words = ["map", "fit", "run", "-o", "map", "--name", "flow-matching", "--updates", "5", "-q"]
    assert main(words) == 0
    assert ad.maps.load("map/map.safetensors").updates == 5


@pytest.mark.slow
def test_a_map_is_replaced_only_if_it_is_ours(capsys):
    assert main([*BASE, "-o", "map"]) == 0
    before = content()
    assert main([*BASE, "-o", "map"]) == 2 and content() == before
    assert main([*BASE, "-o", "map", "--overwrite"]) == 0
    Path("map/notes.txt").write_text("mine")
    before = content()
    assert main([*BASE, "-o", "map", "--overwrite"]) == 2 and content() == before
    assert "notes.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--label-weight", "-1"], "label"),
        (["--match", "name"], "names"),
        (["--velocity.updates", "-3"], "updates"),
        (["--velocity.hidden-labels", "2"], "--velocity.hidden-labels"),
        (["--report", "page.txt"], ".html"),
        (["--report", "map/page.html"], "beside the map"),
        (["--report", "there.html"], "--overwrite"),
        (["--seed", "x"], "seed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_bad_input_ends_with_two_and_touches_nothing(more, said, capsys):
    Path("there.html").write_text("mine")
    assert main([*BASE, "-o", "map", *more]) == 2
    assert said in capsys.readouterr().err
    assert list(content()) == [Path("there.html")]


def test_bad_datasets(capsys):
    for refs, said in (
        ((A, "toy:swiss_roll?n=20"), "harmonize"),
        ((A, "no-such-data"), "no-such-data"),
    ):
        assert main(["map", "match", *refs, *QUICK, "-q", "-o", "map"]) == 2
        err = capsys.readouterr().err
        assert said in err or "shape" in err
    assert content() == {}

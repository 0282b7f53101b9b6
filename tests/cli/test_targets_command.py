"""Tables with continuous targets from a shell: distances, flows, pages, units, errors."""

import json

import numpy as np
import pandas as pd
import pytest

import advect as ad
from advect import viz
from advect.cli.app import main


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, shift in (("a", 0.0), ("b", 2.0)):
        x = rng.normal(size=(30, 2)) + shift
        frame = pd.DataFrame(x, columns=["u", "v"]).assign(price=10 * x[:, 0] + 5)
        frame.to_csv(f"{name}.csv", index=False)
    return "a.csv?target=price", "b.csv?target=price"


def test_a_flow_carries_both_and_is_resumed(tables, tmp_path):
    a, b = tables
    assert main(["flow", a, b, "-o", "run", "--dynamics", "jd-y", "--steps", "4", "-q"]) == 0
    assert main(["resume", "run", "--steps", "30", "-q"]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "upward the target price" in page and "price of b" in page
    assert main(["data", "convert", "run:run@-1", "-o", "moved.csv", "-q"]) == 0
    moved, there = pd.read_csv("moved.csv"), pd.read_csv("b.csv")
    assert list(moved.columns) == ["u", "v", "price"]
    assert abs(moved.price.mean() - there.price.mean()) < 0.2 * there.price.std()
    figure = viz.regression(ad.Trajectory.open("run"), ad.datasets.load(b), feature="u", columns=2)
    assert [axes.get_xlabel() for axes in figure.axes] == ["u", "u"]
    with pytest.raises(ad.InputError, match="unknown feature"):
        viz.regression([ad.datasets.load(a)], feature="w")


def test_distances_by_values_and_by_laws(tables, capsys):
    a, b = tables
    found = []
    for label in (
        [],
        ["--cost.label", "values"],
        ["--cost.label", "laws", "--cost.bandwidth", "0.2"],
    ):
        assert main(["distance", a, b, "--json", *label]) == 0
        found.append(json.loads(capsys.readouterr().out)["value"])
    assert found[0] == found[1] != found[2]
    data = [ad.datasets.load(ref) for ref in tables]
    assert found[0] == pytest.approx(ad.otdd(*data).value, rel=1e-6)


@pytest.mark.slow
def test_bad_input_ends_with_2_and_writes_nothing(tables, tmp_path, capsys):
    a, b = tables
    for words in (
        [a, b, "--cost.label", "bures"],
        [a, b, "--dynamics", "jd-fl"],
        [a, b, "--dynamics", "jd-y", "--cost.label", "laws"],
        ["a.csv?target=prise", b],
        [a, "b.csv?columns=u,v"],
    ):
        assert main(["flow", *words, "-o", "none", "--steps", "2"]) == 2, words
        assert not (tmp_path / "none").exists()
        assert "error:" in capsys.readouterr().err

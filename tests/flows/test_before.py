"""What an earlier version has written opens, and goes on as it did there (``before/cases.py``)."""

import gzip
import json
import shutil

import pytest
import torch
from flows.before import cases

import advect as ad
from advect.cli.app import main

EXPECTED = json.loads((cases.HERE / "expected.json").read_text())
CASES = cases.cases()
# The default solver of a flow stops at a marginal error of 1e-3, which other iterations meet elsewhere.
LOOSE = ("fd", "fd, smaller steps", "jd-fl", "on ranks")


def agrees(found, name):
    """The same steps, as far as the tolerance of the solver goes."""
    expected, tol = EXPECTED[name], 1e-3 if name in LOOSE else 1e-7
    assert found["values"] == pytest.approx(expected["values"], rel=tol)
    x, wanted = (torch.tensor(each["x"], dtype=torch.float64) for each in (found, expected))
    torch.testing.assert_close(x, wanted, rtol=0, atol=10 * tol)


@pytest.mark.parametrize("name", CASES)
def test_checkpoints(name):
    source, functional, options = CASES[name]
    path = cases.file_of(name)
    agrees(cases.numbers(ad.flow(source, functional, n_steps=6, resume=path, **options)), name)


def test_a_checkpoint_of_ranks_goes_on_alone():
    source, functional, _ = CASES["fd"]
    result = ad.flow(source, functional, n_steps=6, resume=cases.file_of("on ranks"))
    agrees(cases.numbers(result), "on ranks")


@pytest.mark.parametrize("name", ["nearest", "entropic", "neural"])
def test_maps(name, tmp_path):
    path = tmp_path / "map.safetensors"
    path.write_bytes(gzip.decompress((cases.HERE / f"map-{name}.gz").read_bytes()))
    carried = ad.maps.load(path).transform(CASES["fd"][0].x[:4] + 0.1)
    wanted = torch.tensor(EXPECTED[f"map {name}"], dtype=carried.dtype)
    torch.testing.assert_close(carried, wanted, rtol=1e-6, atol=1e-6)


def test_a_run_directory(tmp_path, monkeypatch, capsys):
    run = shutil.copytree(cases.HERE / "run", tmp_path / "run")
    assert ad.Trajectory.open(run).indices == [0, 1, 2, 3]
    for words in (["resume", str(run), "--n-steps", "6"], ["show", str(run)], ["report", str(run)]):
        assert main(words) == 2
        assert "advect 0.2" in capsys.readouterr().err

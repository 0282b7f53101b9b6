"""``--space.encoder``: every command in the features of an encoder, which is opened again by itself and refused when
it is another one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import torch
from small_networks import Layer

import advect as ad
from advect.cli.app import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Two small sets of images, and a network with its inverse in ONNX files."""
    monkeypatch.chdir(tmp_path)
    draws = torch.Generator().manual_seed(0)
    for name, n, shift in (("a", 24, 0.0), ("b", 18, 0.3)):
        x = torch.rand(n, 6, 6, generator=draws) * 0.5 + shift
        ad.LabeledDataset(x, [row % 3 for row in range(n)]).save(f"{name}.npz")
    Layer().export(Path("net.onnx"))
    Layer(1, inputs=4, out=36).export(Path("back.onnx"), (4,))
    return tmp_path


def cli(capsys, *words, code=0):
    assert main([*words]) == code, capsys.readouterr().err
    return capsys.readouterr()


RUN = ("flow", "a.npz", "b.npz", "-o", "run", "--n-steps", "2", "--record-every", "1")
ONNX = ("--space.encoder", "net.onnx", "--space.scale", "standardize")


def embedded(scale=None):
    a, b = ad.datasets.load("a.npz"), ad.datasets.load("b.npz")
    return ad.FeatureSpace.fit(a, b, encoder=Layer(), scale=scale), a, b


def test_a_flow_its_page_map_and_frames(here, capsys):
    cli(capsys, *RUN, *ONNX, "-q")
    space, a, _ = embedded("standardize")
    first = ad.datasets.load("run:run@0", units="common")
    torch.testing.assert_close(first.x, space.apply(a).x, atol=1e-4, rtol=1e-4)
    settings = tomllib.loads(Path("run/config.toml").read_text())
    assert settings["space"]["encoder"] == str(here / "net.onnx")
    with pytest.warns(UserWarning, match="without a decoder"):
        assert ad.datasets.load("run:run").sample_shape == (4,)
    cli(capsys, "map", "fit", "run", "-o", "map", "--map", "nearest")
    said = cli(capsys, "map", "apply", "map", "a.npz", "-o", "carried.npz").err
    assert "without a decoder" in said and "4 features" in said
    moved = ad.datasets.load("carried.npz")
    last = ad.datasets.load("run:run", units="common")
    torch.testing.assert_close(moved.x, last.x, atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_a_run_goes_on_with_its_encoder_and_no_other(here, capsys):
    cli(capsys, *RUN, *ONNX, "-q", "--no-report")
    cli(capsys, "resume", "run", "--n-steps", "3", "-q")
    said = cli(
        capsys, "flow", "-c", "run/config.toml", "-o", "same", "--n-steps", "3", "-q", "--json"
    )
    wanted = pytest.approx(json.loads(Path("run/result.json").read_text())["value"], rel=1e-6)
    assert json.loads(said.out)["value"] == wanted
    Layer(seed=5).export(Path("net.onnx"))
    said = cli(capsys, "resume", "run", "--n-steps", "4", "-q", code=2).err
    assert "the encoder has changed since the run began" in said


def test_transfer(here, capsys):
    few = ("transfer", "a.npz", "b.npz?n=6", "--n-steps", "2")
    said = cli(capsys, *few, "-o", "sets", *ONNX).err
    assert "without a decoder" in said
    assert ad.datasets.load("sets/final.npz").sample_shape == (4,)
    both = (*ONNX[:2], "--space.decoder", "back.onnx")
    cli(capsys, *few, "-o", "decoded", *both, "-q")
    assert ad.datasets.load("decoded/final.npz").sample_shape == (6, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--space.encoder", "nowhere.onnx"], "no such file for the encoder"),
        (["--space.encoder", "net.pt"], "ONNX"),
        (["--space.encoder", "mine.py:encode"], "ONNX"),
        (["--space.encoder", "net.onnx", "--space.size", "5"], "must take samples like these"),
        (["--space.decoder", "net.onnx"], "Pass both, or neither"),
        (["--space.encoder", "b.npz.onnx"], "not an ONNX model"),
    ],
)
def test_bad_encoders_write_nothing(words, message, here, capsys):
    Path("b.npz.onnx").write_bytes(Path("b.npz").read_bytes())
    said = cli(capsys, *RUN, *words, code=2).err
    assert message in said and "Traceback" not in said and not Path("run").exists()

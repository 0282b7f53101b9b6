"""What a user brought comes back: units, columns, dtypes, categories, names; images stay images."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import advect as ad
from advect.cli.app import main
from advect.errors import InputError

COATS = ["short", "long", "none"]


def pets(n=12, shift=0.0):
    """A table with every kind of column, in no particular units."""
    rng = np.random.default_rng(int(shift) + n)
    return pd.DataFrame(
        {
            "weight": rng.normal(4000 + shift, 500, n),
            "indoors": rng.random(n) < 0.5,
            "age": rng.integers(1, 15, n),
            "coat": pd.Categorical(np.resize(COATS[:2], n), categories=COATS),
            "town": np.resize(["Bern", "Basel", "Chur"], n),
            "kind": np.resize(["cat", "dog"], n),
        }
    )


def same_table(frame, other, *, exact=True):
    assert list(frame.columns) == list(other.columns)
    for name in frame.columns:
        if exact or name != "weight":
            assert frame[name].tolist() == other[name].tolist(), name


def test_a_frame_comes_back_as_it_was():
    frame = pets()
    data = ad.LabeledDataset.from_frame(frame, label="kind", categorical="onehot")
    back = data.to_pandas()
    same_table(frame, back)
    assert back.drop(columns="kind").dtypes.to_dict() == frame.drop(columns="kind").dtypes.to_dict()
    assert list(back.coat.cat.categories) == COATS
    numbers = data.replace(table=None).to_pandas(label=None)
    assert list(numbers.columns) == list(data.columns or ()) and "coat=none" in numbers


def test_an_npz_file_needs_no_options(empty):
    frame = pets()
    data = ad.LabeledDataset.from_frame(frame, label="kind", weights="weight", categorical="onehot")
    again = ad.datasets.load(data.save("a.npz"))
    assert (again.columns, again.labels, again.table) == (data.columns, data.labels, data.table)
    assert torch.equal(again.x, data.x) and torch.allclose(again.weights, data.weights)
    same_table(frame[["indoors", "age", "coat", "town", "kind"]], again.to_pandas())


@pytest.mark.parametrize("name", ["b.csv", "b.csv.gz", "b.tsv", "b.parquet"])
def test_a_table_is_written_as_it_was(name, empty):
    frame = pets()
    frame.to_csv("a.csv", index=False)
    data = ad.datasets.load("csv:a.csv?label=kind&categorical=onehot&dtype=float64")
    data.save(name)
    if name == "b.parquet":
        same_table(frame, pd.read_parquet(name))
    else:
        same_table(frame, pd.read_csv(name, sep="\t" if name.endswith(".tsv") else ","))
    again = ad.datasets.load(name, label="kind", categorical="onehot", dtype="float64")
    assert torch.equal(again.x, data.x) and again.labels == data.labels
    assert name == "b.parquet" or again.table == data.table  # there, text is categories


SOURCE, TARGET = (f"csv:{name}.csv?label=kind&categorical=onehot&dtype=float64" for name in "ab")


def cli(*words):
    assert main([*words, "-q"]) == 0


@pytest.fixture
def run(empty):
    """A flow between tables whose categories differ, scaled."""
    pets(12).to_csv("a.csv", index=False)
    pets(15, 3000.0).replace({"town": {"Chur": "Genf"}}).to_csv("b.csv", index=False)
    space = ["--space.scale", "pooled", "--no-report", "-o", "run"]
    cli("flow", SOURCE, TARGET, *space, "--n-steps", "4", "--integrator.step-size", "0.5")
    return empty / "run"


def test_frames_come_back_in_the_units_of_the_source(run):
    frame = pets(12)
    cli("data", "convert", "run:run@0", "-o", "first.csv")
    first = pd.read_csv("first.csv")
    same_table(frame, first, exact=False)
    np.testing.assert_allclose(first.weight, frame.weight)
    cli("data", "convert", "run:run@-1", "-o", "last.parquet")
    last = pd.read_parquet("last.parquet")
    assert set(last.columns) == set(frame.columns) and last.indoors.dtype == bool
    assert last.age.dtype == np.int64
    assert set(last.town) <= {"Bern", "Basel", "Chur"}
    assert 4500 < last.weight.mean() < 7000  # on the way from 4000 to 7000
    assert ad.datasets.load("run:run@-1").x.dtype == torch.float64


@pytest.mark.slow
def test_scaled_ones_come_when_asked(run):
    scaled = ad.datasets.load("run:run@0?units=common")
    assert torch.equal(scaled.x, ad.Trajectory.open(run)[0].dataset.x)
    assert float(scaled.x.abs().max()) < 10
    target = ad.datasets.load("run:run@-1", units="target")
    assert "town=Genf" in (target.columns or ()) and "town=Chur" not in (target.columns or ())
    with pytest.raises(InputError, match="unknown units; got 'sauce'. Did you mean 'source'"):
        ad.datasets.load("run:run@0?units=sauce")


def test_a_run_without_a_space_is_as_it_is(empty):
    cli("flow", "toy:moons?n=20", "-f", "norm", "--n-steps", "2", "--no-report", "-o", "run")
    assert torch.equal(ad.datasets.load("run:run").x, ad.datasets.load("run:run?units=common").x)
    with pytest.raises(InputError, match="feature space"):
        ad.datasets.load("run:run?units=target")


@pytest.mark.slow
def test_images_stay_images(empty):
    far = ["--integrator.step-size", "3", "--n-steps", "3", "--no-report"]
    cli("flow", "digits?n=30", "mnist?n=30", *far, "-o", "run")
    frames = ad.Trajectory.open("run")
    assert all(frame.dataset.x.min() >= 0 and frame.dataset.x.max() <= 1 for frame in frames)
    for units, side in (("source", 8), ("target", 28), ("common", 28)):
        back = ad.datasets.load("run:run@-1", units=units)
        assert back.sample_shape == (side, side) and back.x.min() >= 0 and back.x.max() <= 1
    cli("flow", "digits?n=30", "mnist?n=30", *far, "--dynamics.bounds=-inf,inf", "-o", "free")
    assert float(ad.Trajectory.open("free")[-1].dataset.x.min()) < 0


def test_only_images_are_bound(empty):
    from advect.spaces.images import brightness_range

    x = torch.rand(5, 4)
    assert brightness_range(((2, 2), x), ((4, 1, 1), x)) == (0, 1)
    assert brightness_range(((2, 2), x), ((4,), x)) is None
    assert brightness_range(((2, 2), (255 * x).round())) == (0, 255)
    assert brightness_range(((2, 2), 255 * x)) is None
    assert brightness_range(((2, 2), x - 0.5)) is None


@pytest.mark.slow
def test_without_its_space_a_run_has_no_units(run, capsys):
    """Scaled numbers are never rounded to the user's whole numbers and truth values."""
    (run / "space.json").unlink()
    assert main(["data", "convert", "run:run@0", "-o", "no.csv", "-q"]) == 2
    told = capsys.readouterr().err
    assert "units=common" in told and "space.json is missing" in told
    (run / "env.json").unlink()  # config.toml says it too
    assert main(["data", "convert", "run:run@0", "-o", "no.csv", "-q"]) == 2
    cli("data", "convert", "run:run@0?units=common", "-o", "scaled.csv")
    scaled = pd.read_csv("scaled.csv")
    assert "kind" in scaled
    assert all(scaled[name].dtype == np.float64 for name in ("age", "indoors", "coat=long"))
    assert not Path("no.csv").exists()

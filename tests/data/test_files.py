"""Files come back as they were written; some rows are those rows of everything."""

import csv
import io
import os
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from covering import examples
from flow_cases import Terminal
from hypothesis import HealthCheck, assume, example, given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

import advect as ad
from advect._util.progress import track
from advect.errors import InputError
from advect.io.formats import Content, open_source, write

QUICK = examples(40, suppress_health_check=list(HealthCheck))


def save_image(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(path)


texts = st.text(max_size=8) | st.sampled_from(
    ["007", "1", "1.0", " a", "a ", "a,b", 'q"', "x\ny", "../..", "", "nan", "\ud800", "é"]
)
parts = st.integers(-5, 5) | st.booleans() | st.text(max_size=3) | st.floats(allow_nan=False)
numbers = [st.integers(-3, 12), st.integers(-(2**70), 2**70), st.floats(allow_nan=False)]
mixed = [st.tuples(parts, parts | st.tuples(parts)), texts | st.integers(2, 9) | st.tuples(parts)]
kinds = st.sampled_from([texts, st.booleans(), *numbers, *mixed])
samples = st.sampled_from([(), (1,), (3,), (2, 3), (2, 1, 2), (4, 4, 3)])


@st.composite
def contents(draw, columns=True):
    n, shape = draw(st.integers(1, 7)), draw(samples)
    dtype = np.dtype(draw(st.sampled_from(["float32", "float64"])))
    numbers = st.floats(allow_nan=False, allow_infinity=False, width=8 * dtype.itemsize)
    size = n * int(np.prod(shape))
    x = np.array(draw(st.lists(numbers, min_size=size, max_size=size)), dtype).reshape(n, *shape)
    labels = classes = names = weights = None
    if draw(st.booleans()):
        classes = tuple(draw(st.lists(draw(kinds), min_size=1, max_size=4, unique=True)))
        labels = [draw(st.sampled_from([None, *classes])) for _ in range(n)]
    if columns and len(shape) <= 1 and draw(st.booleans()):
        letters = st.characters(codec="ascii", categories=["L", "N", "P"])
        plain = st.text(letters, min_size=1, max_size=6)
        width = shape[0] if shape else 1
        named = plain | st.sampled_from(["a.b", "a", "x[0]", "é,;"])
        names = draw(st.lists(named, min_size=width, max_size=width, unique=True).map(tuple))
    if draw(st.booleans()):
        weights = np.array(draw(st.lists(st.floats(0, 1e9), min_size=n, max_size=n)))
    return Content(x, labels, classes, names, weights)


def same(source, content, classes=True):
    x = source.read()
    assert x.dtype == content.x.dtype and x.shape == content.x.shape
    assert_array_equal(x, content.x)
    assert repr(source.labels) == repr(content.labels)  # 1, 1.0 and True differ
    if classes:
        assert repr(source.classes) == repr(content.classes)
    assert (source.weights is None) == (content.weights is None)
    if content.weights is not None:
        assert_array_equal(source.weights, content.weights)


@QUICK
@given(contents())
@example(Content(np.zeros((2, 2)), ["a\0", "b"]))
@example(Content(np.zeros((2, 2)), [1, 0], (1, 0)))
@example(Content(np.zeros((2, 2)), [None, None]))
def test_npz_keeps_everything(tmp_path, content):
    path = tmp_path / "data.npz"
    write(path, content, overwrite=True)
    source = open_source(path)
    same(source, content)
    assert source.columns == content.columns
    with np.load(path, allow_pickle=False) as arrays:  # plain arrays
        assert all(arrays[name].dtype != object for name in arrays)


@QUICK
@given(contents(columns=False), st.sampled_from([".csv", ".csv.gz", ".tsv", ".parquet"]))
@example(Content(np.zeros((2, 1)), [None, None]), ".csv")
@example(Content(np.zeros((2, 1)), [None, None]), ".parquet")
@example(Content(np.zeros((2, 2)), ["a", "b"], columns=("u,v", 'w"')), ".csv")
@example(Content(np.ones((1, 2)), columns=("petal.length", "petal")), ".parquet")
def test_tables_keep_all_but_empty_classes(tmp_path, content, suffix):
    names = [name for name in content.classes or () if name is not None]
    assume(
        all(type(name) is int and abs(name) < 2**63 for name in names)
        or all(type(name) is str and name.isalpha() for name in names)
    )
    write(tmp_path / f"data{suffix}", content, overwrite=True)
    source = open_source(tmp_path / f"data{suffix}", dtype=str(content.x.dtype))
    same(source, content, classes=False)
    assert source.columns == content.columns


def _make(kind, place, n):
    """A file of n rows, and how to open it."""
    rng = np.random.default_rng(1)
    x, y, half = rng.normal(size=(n, 3, 2)), rng.integers(0, 3, n), n // 2
    match kind:
        case "npz stored":
            np.savez(place / "a.npz", x=x, y=y)
        case "npz packed fortran":
            np.savez_compressed(place / "a.npz", x=np.asfortranarray(x).astype(">f4"), y=y)
        case "npz splits":
            parts = {"x_train": x[:half], "y_train": y[:half], "x_test": x[half:]}
            np.savez_compressed(place / "a.npz", **parts, y_test=y[half:], classes=list("abc"))
            return place / "a.npz", {"split": "all"}
        case "npy":
            np.save(place / "a.npy", np.asfortranarray(x))
        case "csv" | "csv.gz" | "parquet":
            write(place / f"a.{kind}", Content(x, y))
        case "csv onehot":
            lines = [f"{a},{'uvw'[a]},{b}" for a, b in zip(y, range(n), strict=True)]
            (place / "a.csv").write_text("\n".join(["p,q,r", *lines]))
            return place / "a.csv", {"categorical": "onehot", "label": "p"}
        case "parquet groups":
            words = pa.array(["u", "v", "w"]).take(pa.array(y))
            table = pa.table({"a": x[:, 0, 0], "q": words, "l": x[:, :, 1].tolist(), "y": y})
            pq.write_table(table, place / "a.parquet", row_group_size=3)
            return place / "a.parquet", {"categorical": "onehot", "label": "y"}
        case "folder":
            for row in range(n):
                pixels = np.full((2, 2), row, np.uint8)
                save_image(place / "f" / str(y[row]) / f"{row:03}.png", pixels)
            return place / "f", {}
    return next(place.glob("a.*")), {}


KINDS = [
    "npz stored", "npz packed fortran", "npz splits", "npy", "csv", "csv.gz", "csv onehot",
    "parquet", "parquet groups", "folder",
]  # fmt: skip


@pytest.mark.parametrize("chunk", [100, 1 << 22])
@pytest.mark.parametrize("kind", KINDS)
def test_some_rows_are_those_rows_of_all(kind, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr("advect.io.formats.content.CHUNK", chunk)
    monkeypatch.setattr("advect.io.formats.arrays._LARGE", chunk)
    path, options = _make(kind, tmp_path, 23)
    source, rng = open_source(path, **options), np.random.default_rng(2)
    everything = source.read()
    mapped = kind == "npy" or (kind, chunk) == ("npz stored", 100)
    assert isinstance(source.x, np.memmap) == mapped
    assert len(source) == len(everything) == 23 and len(np.unique(everything, axis=0)) > 10
    drawn = [np.sort(rng.choice(23, size, replace=False)) for size in (3, 11, 22)]
    for rows in ([0], [22], [0, 22], *drawn):
        done = []
        some = source.read(np.array(rows), done.append)
        assert_array_equal(some, everything[rows])
        assert some.dtype == everything.dtype and sum(done) == len(rows)
    whole = ad.datasets.load(path, **options)
    balanced = kind != "npy"
    for n in (3, 9):
        drawn = ad.datasets.load(path, n=n, balanced=balanced, seed=5, **options)
        wanted = whole.sample(n, balanced=balanced, generator=torch.Generator().manual_seed(5))
        assert torch.equal(drawn.x, wanted.x) and drawn.labels == wanted.labels


def test_photos_are_turned_by_their_exif_orientation(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    (tmp_path / "f" / "a").mkdir(parents=True)
    pixels = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    pixels.save(tmp_path / "f" / "a" / "x.png", exif=exif)
    turned = open_source(tmp_path / "f").read()[0] * 255
    assert_allclose(turned, np.rot90(np.arange(12).reshape(3, 4), -1))


def test_bytes_of_images_are_scaled(tmp_path):
    x = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.savez_compressed(tmp_path / "a.npz", x=x)
    np.save(tmp_path / "a.npy", x)
    kind = pa.schema({"x": pa.list_(pa.list_(pa.uint8()))})
    pq.write_table(pa.table({"x": x.tolist()}, schema=kind), tmp_path / "a.parquet")
    for sample in x:
        save_image(tmp_path / "images" / "a" / f"{sample[0, 0]:02}.png", sample)
    for name in ("a.npz", "a.npy", "a.parquet", "images"):
        assert_array_equal(open_source(tmp_path / name).read(), x.astype(np.float32) / 255)
    np.save(tmp_path / "flat.npy", x.reshape(2, -1))  # not known to be images
    assert_array_equal(open_source(tmp_path / "flat.npy").read(), x.reshape(2, -1))


def test_labels_of_npz(tmp_path):
    def labels(**arrays):
        np.savez(tmp_path / "a.npz", x=np.zeros((3, 2)), **arrays)  # pyright: ignore[reportArgumentType]
        source = open_source(tmp_path / "a.npz")
        return source.labels, source.classes

    assert labels() == (None, None)
    assert labels(y=[5, 3, 5]) == ([5, 3, 5], (3, 5))
    assert labels(y=[[5], [3], [5]]) == ([5, 3, 5], (3, 5))
    assert labels(y=[1.0, np.nan, 0.0]) == ([1, None, 0], (0, 1))
    assert labels(y=[0.5, np.nan, 0.0]) == ([0.5, None, 0.0], (0.0, 0.5))
    assert labels(y=np.array([b"a", "é".encode(), b"a"])) == (["a", "é", "a"], ("a", "é"))
    assert labels(y=[1, -1, 0], classes=["b", "a"]) == (["a", None, "b"], ("b", "a"))
    assert labels(y=["a", "b", "a"], classes=["b", "a"]) == (["a", "b", "a"], ("b", "a"))
    assert labels(y=[7, 9, 7], classes=[9, 8, 7]) == ([7, 9, 7], (9, 8, 7))
    assert labels(y=[2, -1, 1], classes=[9, 8, 7]) == ([7, None, 8], (9, 8, 7))


def test_a_damaged_member_is_noticed_when_all_of_it_is_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((4, 1000)))
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="CRC"):
        open_source(path).read()


def test_labels_of_text(tmp_path):
    def labels(*cells, **options):
        (tmp_path / "a.csv").write_text("u,kind\n" + "".join(f"1,{cell}\n" for cell in cells))
        return open_source(tmp_path / "a.csv", label="kind", **options).labels

    assert labels("3", "-1", "") == [3, -1, None]
    assert labels("3", "x") == ["3", "x"]
    assert labels("007", "1") == ["007", "1"]
    assert labels("1.0", "", "0.0") == [1, None, 0]
    assert labels("1.5", "2") == ["1.5", "2"]
    assert labels("٣") == ["٣"]
    assert labels(" cat", "cat ") == ["cat", "cat"]
    assert labels('"a,b"', '"x\ny"') == ["a,b", "x\ny"]


def test_dialects_of_text(tmp_path):
    path = tmp_path / "a.csv"
    for text, options in [
        ("u,v,label\n1,2,a\n3,4,b\n", {}),
        ("u;v;label\r\n1;2;a\r\n\r\n3;4;b", {}),
        ("\ufeffu\tv\tlabel\n1\t2\ta\n3\t4\tb\n", {}),
        ("u|v|label\n1|2|a\n3|4|b\n", {"delimiter": "|"}),
        ("v,label,u\n2,a,1\n4,b,3\n", {"columns": ["u", "v"]}),
        ("id,label,u,v\nq,a,1,2\nr,b,3,4\n", {"columns": [2, -1]}),
        ('"u","v","label"\n" 1 ",2e0,a\n+3,4.,"b"\n', {}),
        ("u,v,y\n1,2,a\n3,4,b\n", {"label": "y"}),
        ("u,v,y\n1,2,a\n3,4,b\n", {"label": -1}),
    ]:
        path.write_bytes(text.encode())
        source = open_source(path, **options)
        assert (source.labels, source.columns) == (["a", "b"], ("u", "v")), text
        assert source.read().tolist() == [[1, 2], [3, 4]]
    path.write_text("1,2\n3,4\n")
    bare = open_source(path, header=False)
    assert bare.columns is None and bare.read().tolist() == [[1, 2], [3, 4]]
    assert open_source(path, header=True).columns == ("1", "2")
    assert open_source(path, header=False, label=0).labels == [1, 3]
    path.write_bytes("größe,label\n1,ä\n".encode("latin-1"))
    assert open_source(path, encoding="latin-1").labels == ["ä"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_text_and_of_truth(kind, tmp_path):
    columns = {"size": [1.5, 2.0, 3.0], "colour": ["red", "blue", "red"]}
    table = pa.table({**columns, "old": [True, False, True], "label": ["a", "b", None]})
    path = tmp_path / f"a.{kind}"
    if kind == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, table.column_names)
            writer.writeheader()
            writer.writerows(table.to_pylist())
    else:
        pq.write_table(table, path)
    source = open_source(path, categorical="onehot")
    assert source.columns == ("size", "colour=blue", "colour=red", "old")
    assert source.labels == ["a", "b", None]
    assert source.read().tolist() == [[1.5, 0, 1, 1], [2, 1, 0, 0], [3, 0, 1, 1]]
    with pytest.raises(InputError, match="'red' in row 0.*column 'colour'.*categorical='onehot'"):
        open_source(path).read()
    assert open_source(path, columns=["old", "size"]).read().tolist() == [[1, 1.5], [0, 2], [1, 3]]


def test_parquet_of_others(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"u": [1, 2, 3], "v": np.float32([1, 2, 3])}, index=["p", "q", "r"])
    frame["label"] = pd.Categorical(["b", None, "a"])
    frame.to_parquet(path)
    source = open_source(path)
    assert source.columns == ("u", "v") and source.labels == ["b", None, "a"]
    assert source.read().dtype == np.float32
    assert open_source(path, dtype="float64").read().dtype == np.float64
    pq.write_table(pa.table({"image": [[[1.0, 2.0]], [[3.0, 4.0]]], "y": [1.0, None]}), path)
    source = open_source(path, label="y")
    assert source.read().shape == (2, 1, 2) and source.columns is None
    assert source.labels == [1, None]
    codes = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.uint8()), pa.array([4, 5]))
    pq.write_table(pa.table({"a": codes.fill_null(5), "l": [[1, 2]] * 3, "y": codes}), path)
    source = open_source(path, label="y")
    assert source.columns == ("a", "l[0]", "l[1]") and source.labels == [4, None, 5]
    assert source.read().tolist() == [[4, 1, 2], [5, 1, 2], [5, 1, 2]]


def test_images_of_many_kinds(tmp_path):
    colour = np.random.default_rng(0).integers(0, 256, (6, 4, 3)).astype(np.uint8)
    for suffix in (".png", ".bmp", ".tif", ".ppm", ".PNG"):
        save_image(tmp_path / "exact" / "a" / f"{len(suffix)}{suffix[1]}{suffix}", colour)
    (tmp_path / "exact" / ".hidden").mkdir()
    (tmp_path / "exact" / "a" / ".DS_Store").write_bytes(b"?")
    (tmp_path / "exact" / "README.txt").write_text("hello")
    exact = open_source(tmp_path / "exact").read()
    assert_array_equal(exact, [colour.astype(np.float32) / 255] * 5)
    plain = np.full((6, 4, 3), (200, 100, 0), np.uint8)
    for suffix in (".jpg", ".jpeg", ".webp", ".gif"):
        save_image(tmp_path / "close" / "a" / f"x{suffix}", plain)
    close = open_source(tmp_path / "close").read()
    assert close.shape == (4, 6, 4, 3)
    assert np.abs(close - np.array([200, 100, 0]) / 255).max() < 0.02
    assert open_source(tmp_path / "close", channels="gray").read().shape == (4, 6, 4)


def test_images_are_converted_and_resized_on_demand(tmp_path):
    save_image(tmp_path / "f" / "a" / "1.png", np.tile(np.array([0, 255], np.uint8), (8, 4)))
    save_image(tmp_path / "f" / "a" / "2.png", np.full((4, 4, 3), 128, np.uint8))
    save_image(tmp_path / "f" / "b" / "3.png", Image.new("RGBA", (4, 4), (0, 0, 0, 0)))
    source = open_source(tmp_path / "f", size=(2, 3), channels="gray", fit="stretch")
    x = source.read()
    assert x.shape == (3, 2, 3) and source.labels == ["a", "a", "b"]
    assert x[0].min() > 0.3 and x[0].max() < 0.7  # smooth: picked pixels would be 0 or 1
    assert_allclose(x[1], 128 / 255, atol=0.01)
    assert (x[2] == 1).all()
    assert open_source(tmp_path / "f", size=5, channels="rgb").read().shape == (3, 5, 5, 3)
    assert open_source(tmp_path / "f" / "a", labels=False, size=2, channels="rgb").labels is None
    save_image(tmp_path / "opaque" / "a" / "1.png", Image.new("RGBA", (4, 4), (255, 0, 0, 255)))
    assert open_source(tmp_path / "opaque").read()[0, 0, 0].tolist() == [1, 0, 0]


def test_folders_named_by_numbers_sort_as_numbers(tmp_path):
    for name in ("10", "9", "-1"):
        save_image(tmp_path / "n" / name / "x.png", np.zeros((2, 2), np.uint8))
    assert open_source(tmp_path / "n").classes == (-1, 9, 10)
    (tmp_path / "n" / "9").rename(tmp_path / "n" / "009")
    assert open_source(tmp_path / "n").classes == ("-1", "009", "10")


def test_what_exists_is_not_written_over(tmp_path):
    content, other = Content(np.zeros((1, 2, 2)), ["a"]), Content(np.ones((2, 2, 2)), ["b", "c"])
    for name in ("a.npz", "a.csv", "a.tsv.gz", "a.parquet"):
        write(tmp_path / name, content)
        with pytest.raises(InputError, match="overwrite=True"):
            write(tmp_path / name, other)
        assert open_source(tmp_path / name).labels == ["a"]
        write(tmp_path / name, other, overwrite=True)
        assert open_source(tmp_path / name).labels == ["b", "c"]
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.npz", "a.parquet", "a.tsv.gz"]


@pytest.mark.parametrize("name", ["a.npz", "a.csv", "a.parquet"])
@pytest.mark.parametrize("late", [False, True])
def test_a_write_that_fails_leaves_nothing(name, late, tmp_path, monkeypatch):
    broken = "replace" if late else "fsync"

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(InputError, match="No space"):
            write(tmp_path / name, Content(np.zeros((2, 2, 2)), ["a", "b"]))
    assert os.listdir(tmp_path) == []


def test_progress_goes_where_it_is_asked_to():
    said: list[tuple[int, int]] = []
    with track(3, "reading", lambda *now: said.append(now)) as advance:
        advance(1)
        advance(2)
    assert said == [(1, 3), (3, 3)]
    with track(3, "reading", stream=(out := io.StringIO()), interval=0.0) as advance:
        time.sleep(0.01)
        advance(2)
    assert "reading: 2/3, " in out.getvalue()
    with track(3, "reading", False, stream=(silent := Terminal()), patience=0.0) as advance:
        advance(3)
    with track(3, "reading", stream=(late := Terminal()), patience=0.0) as advance:
        advance(3)
    assert silent.getvalue() == "" and "3/3" in late.getvalue()
    with pytest.raises(InputError, match="progress"), track(3, "reading", "yes"):  # pyright: ignore[reportArgumentType]
        pass

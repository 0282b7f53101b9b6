"""Whatever is wrong with a file, an ``InputError`` names it, and nothing is left behind."""

import gzip
import io
import os
import re
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import advect as ad
from advect.errors import InputError
from advect.io.formats import Content, open_source, write


def npz(**arrays):
    return lambda path: np.savez_compressed(path, **arrays)


def raw(content):
    return lambda path: path.write_bytes(content)


def text(content):
    return raw(content.encode())


def table(**columns):
    return lambda path: pq.write_table(pa.table(columns), path)


def cut(make, keep):
    """Only the first part of a file."""

    def torn(path):
        make(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * keep)])

    return torn


def header(shape, descr="<f8"):
    """The start of an .npy array."""
    facts = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    line = facts.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line


def archive(method=zipfile.ZIP_DEFLATED, **members):
    def pack(path):
        with zipfile.ZipFile(path, "w", method) as file:
            for name, content in members.items():
                file.writestr(f"{name}.npy", content)

    return pack


def png(size=(4, 4), mode="L", **options):
    out = io.BytesIO()
    Image.new(mode, size).save(out, "png", **options)
    return out.getvalue()


def tree(**files):
    """A folder; ``a__x`` is the file x.png of class a, None an empty directory."""

    def plant(path):
        path.mkdir()
        for name, content in files.items():
            place = path / name.replace("__", "/")
            if content is None:
                place.mkdir(parents=True)
                continue
            place = place.with_suffix(".png")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    return plant


X, Y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
ROWS = "u,v,label\n1,2,a\n3,4,b\n"
GOOD = {
    "npz": npz(x=X, y=Y),
    "parquet": table(u=[1.0, 2.0], label=["a", "b"]),
    "csv.gz": raw(gzip.compress(ROWS.encode())),
}

# name of the file, how it is made, options, a word of the message
BAD = [
    # paths, kinds and options
    ("data.npz", lambda path: None, {}, "no such file"),
    ("a.npzz", raw(b"?"), {}, "Did you mean '.npz'"),
    ("plain", raw(b"?"), {}, "suffix"),
    ("a.npz", GOOD["npz"], {"kind": "nzp"}, "Did you mean 'npz'"),
    ("a.npz", GOOD["npz"], {"lable": "y"}, "option of npz files"),
    *((f"a.{kind}", lambda path: path.mkdir(), {"kind": kind}, "directory") for kind in ("npz", "npy", "csv", "parquet")),
    ("a.npz", GOOD["npz"], {"kind": "folder"}, "but a file"),
    ("a.npz", GOOD["npz"], {"kind": "csv"}, "a.npz"),
    # npz and npy
    ("a.npz", raw(b""), {}, "damaged"),
    ("a.npz", cut(npz(x=X), 0.5), {}, "damaged"),
    ("a.npz", archive(), {}, "holds nothing"),
    ("a.npz", npz(features=X), {}, "holds features"),
    ("a.npz", npz(x_train=X), {"split": "test"}, "x_test"),
    ("a.npz", npz(x_train=X, x_test=X, y_test=Y), {"split": "all"}, "both splits"),
    ("a.npz", npz(x_train=X, x_test=X[:, :1]), {"split": "all"}, "one shape"),
    ("a.npz", npz(x=np.array([{}, 1])), {}, "pickle"),
    ("a.npz", npz(x=X, y=Y[:5]), {}, "labels must fit"),
    ("a.npz", npz(x=X, y=np.eye(6)), {}, "argmax"),
    ("a.npz", npz(x=X, y=Y + 1, classes=["a", "b"]), {}, "among classes"),
    ("a.npz", npz(x=X, y=np.array([b"\xff"] * 6)), {}, "UTF-8"),
    ("a.npz", npz(x=X, y=Y, names="[[1], [2]]"), {}, "not a class name"),
    ("a.npz", npz(x=X, weights=np.ones(5)), {}, "weights must fit"),
    ("a.npz", npz(x=X, weights=np.array(["a"] * 6)), {}, "weights must be numbers"),
    ("a.npz", npz(x=X, columns=["u"]), {}, "columns must be"),
    ("a.npz", npz(x=X.astype(str)), {}, "must be numbers"),
    ("a.npz", npz(x=X + 1j), {}, "must be real"),
    ("a.npz", npz(x=np.zeros((0, 3))), {}, "at least one sample"),
    ("a.npz", archive(x=header((1000, 1000)) + bytes(80)), {}, "damaged"),
    ("a.npz", archive(zipfile.ZIP_STORED, x=header((10**6,)) + bytes(80)), {}, "damaged"),
    ("a.npz", archive(x=header((-3, 2)) + bytes(80)), {}, "damaged"),
    ("a.npz", archive(x=b"not an array"), {}, "at least one sample"),
    ("a.npz", archive(x=header((3,), "|V8") + bytes(24)), {}, "must be numbers"),
    ("a.npy", raw(header((10,)) + bytes(79)), {}, "damaged"),
    ("a.npy", lambda path: np.save(path, np.array([{}])), {}, "damaged"),
    # CSV
    ("a.csv", raw(b""), {}, "first line"),
    ("a.csv", text("u,v\n"), {}, "at least one row"),
    ("a.csv", text("1,2\n3,4\n"), {}, "header=False"),
    ("a.csv", text("u,v\n1,2\n3\n"), {}, "Row #3: Expected 2 columns"),
    ("a.csv", text("u,v\n1,2\n3,\n"), {}, "empty cell in row 1, column 'v'"),
    ("a.csv", text("u,v\n1,2\n-inf,3\n"), {}, "finite; got -inf in row 1, column 'u'"),
    ("a.csv", text("u,v\n1,2\n3,1e300\n"), {}, "column 'v'.*dtype='float64'"),
    ("a.csv", text("u,v\n1,2\n3,1_000\n"), {}, "'1_000' in row 1, column 'v'"),
    ("a.csv", text("u,v\n1,red\n"), {}, "'red' in row 0, column 'v'.*categorical='onehot'"),
    ("a.csv", text("u,v\n1,red\n2,\n"), {"categorical": "onehot"}, "empty cell in row 1, column 'v'"),
    ("a.csv", text("u\nn" + "\nn".join(map(str, range(1001)))), {"categorical": "onehot"}, "not a category"),
    ("a.csv", text("u,v\n1,2020-01-01\n2,2020-02-01\n"), {}, "date.*column 'v'"),
    ("a.csv", text(ROWS), {"categorical": "dummies"}, "unknown categorical"),
    ("a.csv", text("u,u\n1,2\n"), {}, "different names"),
    ("a.csv", text(",u\n0,2\n"), {}, "index=False"),
    ("a.csv", text("u,lable\n1,a\n"), {"label": "label"}, "Did you mean 'lable'"),
    ("a.csv", text(ROWS), {"label": 3}, "name or a position"),
    ("a.csv", text(ROWS), {"columns": ["u", "label"]}, "different features"),
    ("a.csv", text("u,sample_weight\n1,x\n"), {}, "'x' in row 0, column 'sample_weight'"),
    ("a.csv", text('u,label\n1,"a\n3,b\n'), {}, "quote is not closed"),
    ("a.csv", text(ROWS), {"encoding": "utf-9"}, "unknown encoding"),
    ("a.csv", raw("u,größe\n1,2\n".encode("latin-1")), {}, "damaged.*utf-8"),
    ("a.csv", raw(b"u,v\n" + b"1,2\n" * 9000 + b"\xff,2\n"), {}, "damaged|must be numbers"),
    ("a.csv.gz", text(ROWS), {}, "damaged.*a.csv.gz"),
    ("a.csv.gz", cut(GOOD["csv.gz"], 0.7), {}, "damaged"),
    # Parquet
    ("a.parquet", cut(GOOD["parquet"], 0.6), {}, "damaged"),
    ("a.parquet", table(u=pa.array([], "float64")), {}, "at least one row"),
    ("a.parquet", table(u=[1.0, 2.0], v=[1, None]), {}, "empty cell in row 1, column 'v'"),
    ("a.parquet", table(u=[1.0, 1e300]), {"dtype": "float32"}, "column 'u'.*dtype='float64'"),
    ("a.parquet", table(u=["x", "y"]), {}, "'x' in row 0, column 'u'"),
    ("a.parquet", table(u=[[1, 2], [3]]), {}, "1 in row 1"),
    ("a.parquet", table(u=[[1, 2], [3, None]]), {}, "empty cell in row 1, column 'u'"),
    ("a.parquet", table(u=[{"a": 1}]), {}, "struct"),
    ("a.parquet", table(u=[1.0], label=[[1]]), {}, "labels"),
    # folders
    ("f", tree(), {}, "directory for each class"),
    ("f", tree(x=png()), {}, "labels=False"),
    ("f", tree(a__x=png(), b=None), {}, "at least one image"),
    ("f", tree(a__x=png(), a__deep__y=png()), {}, "deep"),
    ("f", tree(a__x=png((64, 64))[:-40]), {}, "damaged.*x.png"),
    ("f", tree(a__x=png(), b__y=png((5, 4))), {}, "one shape.*y.png.*size"),
    ("f", tree(a__x=png(), b__y=png(mode="RGB")), {}, "one shape.*y.png.*channels"),
    ("f", tree(a__x=png(mode="RGBA")), {}, "transparent"),
    ("f", tree(a__x=png(mode="I;16")), {}, "8 bits"),
]  # fmt: skip


def listing(place):
    return sorted((str(path.relative_to(place)), path.stat().st_size) for path in place.rglob("*"))


def check(error, message):
    assert str(error.what) and str(error.got) and str(error.remedy)
    assert re.search(message, str(error), re.DOTALL), str(error)


@pytest.mark.parametrize(
    ("name", "make", "options", "message"),
    BAD,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_content(name, make, options, message, tmp_path):
    make(tmp_path / name)
    before = listing(tmp_path)
    read = open_source if "kind" in options else ad.datasets.load
    with pytest.raises(InputError) as caught:
        read(tmp_path / name, **options)
    check(caught.value, message)
    assert listing(tmp_path) == before


UNWRITABLE = [
    ("a.txt", lambda: Content(X), "unknown suffix"),
    ("taken.npz/a.npz", lambda: Content(X), "cannot write"),
    ("taken.npz", lambda: Content(X), "overwrite=True"),
    ("dir.csv", lambda: Content(X), "cannot write"),
    ("full", lambda: Content(np.zeros((2, 3, 3)), ["a", "b"]), "unknown suffix"),
    *((name, lambda: Content(X, [b"a"] * 6), "class names must be text") for name in ("a.npz", "a.csv", "a.parquet")),
    *((name, lambda: Content(X, [("a",)] * 6), "class names must be text") for name in ("a.csv", "a.parquet")),
    ("a.parquet", lambda: Content(X, [2**70] * 6), "cannot write"),
    ("a.csv", lambda: Content(X, Y, columns=("u", "label")), "different names"),
    ("a.parquet", lambda: Content(X, columns=("u", "sample_weight"), weights=np.ones(6)), "different names"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), UNWRITABLE)
def test_bad_writes(name, content, message, tmp_path):
    for file in ("taken.npz", "taken"):
        (tmp_path / file).write_bytes(b"mine")
    for directory in ("dir.csv", "full/inner"):
        (tmp_path / directory).mkdir(parents=True)
    before = listing(tmp_path)
    with pytest.raises(InputError) as caught:
        write(tmp_path / name, content())
    check(caught.value, message)
    assert listing(tmp_path) == before


def test_a_missing_file_has_its_neighbours_named(tmp_path):
    (tmp_path / "digits.npz").write_bytes(b"")
    with pytest.raises(InputError, match="no such file.*Did you mean 'digits.npz'"):
        open_source(tmp_path / "digit.npz")
    with pytest.raises(InputError, match=r"There is no directory .*nowhere"):
        open_source(tmp_path / "nowhere" / "a.npz")


READABLE = {f"a.{suffix}": make for suffix, make in GOOD.items()}
READABLE |= {"a.csv": text(ROWS), "a.npy": raw(b""), "f": tree(a__x=png())}


@pytest.mark.parametrize(("name", "make"), READABLE.items())
def test_no_permission(name, make, tmp_path, monkeypatch):
    make(tmp_path / name)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)  # modes mean nothing to root
    monkeypatch.setattr("io.open", refuse)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", refuse)
    with pytest.raises(InputError, match=f"no permission to read; got .*{name}"):
        open_source(tmp_path / name)
    if name == "f":
        monkeypatch.setattr(os, "scandir", refuse)
        with pytest.raises(InputError, match="no permission to read; got .*f"):
            open_source(tmp_path / name)


def test_other_files_in_a_class_are_left_out_with_a_warning(tmp_path):
    tree(a__x=png(), b__y=png())(tmp_path / "f")
    for name in ("Thumbs.db", ".DS_Store", "notes.txt"):
        (tmp_path / "f" / "a" / name).write_bytes(b"hello")
    with pytest.warns(UserWarning, match="2 files in .*a .*Thumbs.db"):
        data = ad.datasets.load(tmp_path / "f")
    assert data.labels == ["a", "b"]


def test_the_bound_of_pixels_is_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)  # as programs that read large scans set it
    monkeypatch.setattr("advect.io.formats.folder._MOST_PIXELS", 15)
    tree(a__x=png())(tmp_path / "f")
    with pytest.raises(InputError, match="too large to be safe"):
        open_source(tmp_path / "f").read()

"""Whatever is wrong with a file, the message says what, where and what to do; and nothing is left
behind.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covering import examples
from hypothesis import HealthCheck, given, strategies as st
from PIL import Image

import advect as ad
from advect.data.formats import Content, open_source, write
from advect.errors import InputError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Make = Callable[[Path], Any]


def npz(**arrays: Any) -> Make:
    return lambda path: np.savez_compressed(path, **arrays)


def raw(content: bytes) -> Make:
    return lambda path: path.write_bytes(content)


def text(content: str) -> Make:
    return raw(content.encode())


def table(**columns: Any) -> Make:
    return lambda path: pq.write_table(pa.table(columns), path)


def cut(make: Make, keep: float) -> Make:
    """Only the first part of a file."""

    def torn(path: Path) -> None:
        make(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * keep)])

    return torn


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    """The start of an .npy array."""
    line = (
        f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode().ljust(117)
        + b"\n"
    )
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line


def archive(method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Make:
    def pack(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method) as file:
            for name, content in members.items():
                file.writestr(f"{name}.npy", content)

    return pack


def claiming(size: int) -> Make:
    """An archive whose directory says that a member has ``size`` bytes."""

    def forge(path: Path) -> None:
        start = header((size // 8,))
        archive(x=start + bytes(80))(path)
        content = bytearray(path.read_bytes())
        at = content.index(b"PK\x01\x02")
        content[at + 24 : at + 28] = struct.pack("<I", size + len(start))
        path.write_bytes(content)

    return forge


def idx(shape: tuple[int, ...], data: bytes, code: int = 8) -> bytes:
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + data


def png(size: tuple[int, int] = (4, 4), mode: str = "L", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, "png", **options)
    return out.getvalue()


def bomb() -> bytes:
    """A small PNG that says it has 40 000 × 40 000 pixels."""

    def block(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    size = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + block(b"IHDR", size)
        + block(b"IDAT", zlib.compress(bytes(100)))
        + block(b"IEND", b"")
    )


def tree(**files: bytes | None) -> Make:
    """A folder; ``a__x`` is the file x.png of class a, ``a__x_txt`` its x.txt, None an empty
    directory.
    """

    def plant(path: Path) -> None:
        path.mkdir()
        for name, content in files.items():
            place = path / name.replace("__", "/")
            if content is None:
                place.mkdir(parents=True)
                continue
            place = (
                place.with_name(place.name.replace("_txt", ".txt"))
                if "_txt" in name
                else place.with_suffix(".png")
            )
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    return plant


def mnist(**files: bytes) -> Make:
    """A directory of IDX files; ``train_images`` is train-images-idx3-ubyte."""

    def plant(path: Path) -> None:
        path.mkdir()
        for name, content in files.items():
            (
                path / f"{name.replace('_', '-')}-idx{3 if 'images' in name else 1}-ubyte"
            ).write_bytes(content)

    return plant


X, Y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
ONE = idx((1, 1, 1), bytes(1))
ROWS = "u,v,label\n1,2,a\n3,4,b\n"
GOOD = {
    "npz": npz(x=X, y=Y),
    "parquet": table(u=[1.0, 2.0], label=["a", "b"]),
    "gz": raw(gzip.compress(ROWS.encode() * 1)),
}

# name of the file, how it is made, options, what the message must mention
BAD: list[tuple[str, Make, dict[str, Any], str]] = [
    # paths, kinds and options
    ("data.npz", lambda path: None, {}, "no such file"),
    ("a.npzz", raw(b"?"), {}, "Did you mean '.npz'"),
    ("a.txt", raw(b"?"), {}, r"suffix of a.txt.*Known: .csv"),
    ("plain", raw(b"?"), {}, "suffix of plain"),
    ("a.npz", GOOD["npz"], {"kind": "nzp"}, "kind of file; got 'nzp'. Did you mean 'npz'"),
    ("a.npz", GOOD["npz"], {"lable": "y"}, "option of npz files; got 'lable'.*split"),
    ("a.csv", text(ROWS), {"raw": True}, "option of csv files; got 'raw'.*label"),
    ("a.npz", lambda path: path.mkdir(), {"kind": "npz"}, "directory"),
    ("a.npy", lambda path: path.mkdir(), {"kind": "npy"}, "directory"),
    ("a.csv", lambda path: path.mkdir(), {"kind": "csv"}, "directory"),
    ("a.parquet", lambda path: path.mkdir(), {"kind": "parquet"}, "directory"),
    ("a.npz", GOOD["npz"], {"kind": "folder"}, "not a folder of images but a file"),
    ("a.npz", GOOD["npz"], {"kind": "csv"}, "not utf-8 text|table of text"),
    # npz and npy
    ("a.npz", raw(b""), {}, "a .npz file, or damaged.*a.npz"),
    ("a.npz", raw(b"PK\x03\x04 no archive"), {}, "a .npz file, or damaged"),
    ("a.npz", cut(npz(x=X), 0.5), {}, "a .npz file, or damaged"),
    ("a.npz", archive(), {}, "no features called 'x'.*holds nothing"),
    ("a.npz", npz(features=X), {}, "no features called 'x'.*holds features.*x_key"),
    ("a.npz", npz(x=X, y=Y), {"split": "test"}, "no splits.*holds x, y"),
    ("a.npz", npz(x_train=X), {"split": "test"}, "no split 'test'.*holds x_train"),
    ("a.npz", npz(x_train=X), {"split": "tset"}, "unknown split; got 'tset'. Did you mean 'test'"),
    ("a.npz", npz(x_train=X, x_test=X, y_test=Y), {"split": "all"}, "both splits need labels"),
    ("a.npz", npz(x_train=X, x_test=X[:, :1]), {"split": "all"}, r"one shape and dtype; got \(2,\).*\(1,\)"),
    ("a.npz", npz(x=X), {"x_key": "z"}, "no such array; got 'z' where .* holds x"),
    ("a.npz", npz(x=X), {"y_key": "z"}, "no such array; got 'z' where .* holds x"),
    ("a.npz", npz(x=np.array([{}, 1])), {}, "x is pickled.*plain dtype"),
    ("a.npz", npz(x=X, y=np.array(["a", None] * 3)), {}, "y is pickled.*plain dtype"),
    ("a.npz", npz(x=X, y=Y[:5]), {}, "6 features, 5 labels"),
    ("a.npz", npz(x=X, y=np.eye(6)), {}, r"shape \(6, 6\).*argmax"),
    ("a.npz", npz(x=X, y=Y + 1, classes=["a", "b"]), {}, "labels must be among classes.*got 2 with 2 classes"),
    ("a.npz", npz(x=X, y=Y.astype("M8[D]")), {}, r"labels must be .*datetime64"),
    ("a.npz", npz(x=X, y=np.array([b"\xff"] * 6)), {}, "labels must be UTF-8"),
    ("a.npz", npz(x=X, y=Y, names="[[1], [2]]"), {}, "damaged.*not a class name"),
    ("a.npz", npz(x=X, y=Y, names="{"), {}, "damaged"),
    ("a.npz", npz(x=X, y=Y, names="3"), {}, "names is not a JSON list"),
    ("a.npz", npz(x=X, weights=np.ones(5)), {}, r"weights must be 6 numbers.*\(5,\)"),
    ("a.npz", npz(x=X, columns=["u"]), {}, "columns must be different names.*1 names"),
    ("a.npz", npz(x=X.astype(str)), {}, "features must be numbers.*<U"),
    ("a.npz", npz(x=X + 1j), {}, "features must be real.*complex"),
    ("a.npz", npz(x=np.zeros((0, 3))), {}, r"at least one sample.*\(0, 3\)"),
    ("a.npz", npz(x=np.array(1.0)), {}, "at least one sample"),
    ("a.npz", archive(x=header((1000, 1000)) + bytes(80)), {}, r"damaged.*x says \(1000, 1000\).*8000128 bytes, where 208 are"),
    ("a.npz", archive(zipfile.ZIP_STORED, x=header((10**6,)) + bytes(80)), {}, "damaged.*bytes, where 208 are"),
    ("a.npz", claiming(1 << 31), {}, "damaged.*compressed bytes"),
    ("a.npz", claiming(1 << 13), {}, "damaged"),
    ("a.npz", archive(x=header((-3, 2)) + bytes(80)), {}, r"damaged.*\(-3, 2\)"),
    ("a.npz", archive(x=b"not an array"), {}, "damaged"),
    ("a.npz", archive(x=header((3,), "nonsense")), {}, "damaged"),
    ("a.npz", archive(x=header((3,), "|V8") + bytes(24)), {}, "features must be numbers"),
    ("a.npz", archive(x=b"\x93NUMPY\x09\x00" + bytes(80)), {}, r"damaged.*version \(9, 0\)"),
    ("a.npy", raw(b""), {}, "a .npy file, or damaged"),
    ("a.npy", raw(header((10,)) + bytes(79)), {}, r"damaged.*\(10,\) float64, 208 bytes, where 207 are"),
    ("a.npy", raw(header((10,)) + bytes(88)), {}, "damaged.*where 216 are"),
    ("a.npy", lambda path: np.save(path, np.array([{}])), {}, "pickled"),
    # text
    ("a.csv", raw(b""), {}, "first line; got nothing in .*a.csv"),
    ("a.csv", text("\n\n"), {}, "first line; got nothing"),
    ("a.csv", text("u,v\n"), {}, "at least one row"),
    ("a.csv", text("1,2\n3,4\n"), {}, "must name the columns.*got 1,2.*header=False"),
    ("a.csv", text("u,v\n1,2\n3\n"), {}, "every row must have 2 cells.*1 in line 3"),
    ("a.csv", text("u,v\n1,2\n3,4,5\n"), {}, "every row must have 2 cells.*3 in line 3"),
    ("a.csv", text("u,v\n1,2\n3,\n"), {}, r"missing; got an empty cell in row 1 \(line 3\), column 'v'"),
    ("a.csv", text("u,v\n1,2\n3,nan\n"), {}, r"finite; got nan in row 1 \(line 3\), column 'v'"),
    ("a.csv", text("u,v\n1,2\n-inf,3\n"), {}, r"finite; got -inf in row 1 \(line 3\), column 'u'"),
    ("a.csv", text("u,v\n1,2\n3,1e300\n"), {}, "column 'v'.*dtype='float64'"),
    ("a.csv", text("u,v\n1,2\n3,1_000\n"), {}, "must be numbers; got '1_000' in row 1.*column 'v'"),
    ("a.csv", text("u,v\n1,red\n"), {}, "must be numbers; got 'red' in row 0.*column 'v'.*categorical='onehot'"),
    ("a.csv", text("u,v\n1,red\n2,\n"), {"categorical": "onehot"}, "empty cell in row 1.*column 'v'"),
    ("a.csv", text("u\nn" + "\nn".join(map(str, range(1001)))), {"categorical": "onehot"}, "not a category; got column 'u'"),
    ("a.csv", text(ROWS), {"categorical": "dummies"}, "unknown categorical; got 'dummies'"),
    ("a.csv", text("u,u\n1,2\n"), {}, "different names.*'u'"),
    ("a.csv", text(",u\n0,2\n"), {}, "needs a name.*column 0.*index=False"),
    ("a.csv", text("u,lable\n1,a\n"), {"label": "label"}, "unknown label column.*'label'. Did you mean 'lable'"),
    ("a.csv", text(ROWS), {"label": 3}, "label column must be a name or a position.*got 3"),
    ("a.csv", text(ROWS), {"label": True}, "label column must be a name or a position.*got True"),
    ("a.csv", text(ROWS), {"columns": ["u", "w"]}, "unknown feature column.*'w'"),
    ("a.csv", text(ROWS), {"columns": ["u", "label"]}, "different features.*label"),
    ("a.csv", text("label\na\n"), {}, "needs a column of features"),
    ("a.csv", text("u,sample_weight\n1,x\n"), {}, "weights must be numbers.*'x' in line 2, column 'sample_weight'"),
    ("a.csv", text("u,label:json\n1,{\n"), {}, "table of text, or damaged"),
    ("a.csv", text('u,v\n1,"2\n3,4\n'), {}, "table of text, or damaged.*end of data"),
    ("a.csv", text(ROWS), {"delimiter": "::"}, "delimiter must be one character; got '::'"),
    ("a.csv", text(ROWS), {"dtype": "int8"}, "unknown dtype; got 'int8'"),
    ("a.csv", text(ROWS), {"encoding": "utf-9"}, "unknown encoding; got 'utf-9'"),
    ("a.csv", raw("u,größe\n1,2\n".encode("latin-1")), {}, "not utf-8 text.*a.csv.*encoding="),
    ("a.csv", raw(b"u,v\n" + b"1,2\n" * 9000 + b"\xff,2\n"), {}, "not utf-8 text"),
    ("a.csv", raw("u,v\n1,2\n".encode("utf-16")), {}, "not utf-8 text"),
    ("a.csv", text("u\n" + "9" * 200_000 + "\n"), {}, "table of text, or damaged.*field larger"),
    ("a.csv.gz", text(ROWS), {}, "table of text, or damaged.*a.csv.gz"),
    ("a.csv.gz", cut(GOOD["gz"], 0.7), {}, "table of text, or damaged"),
    ("a.csv.gz", raw(b""), {}, "nothing in"),
    # Parquet
    ("a.parquet", raw(b""), {}, "a Parquet file, or damaged.*a.parquet"),
    ("a.parquet", raw(b"PAR1 but no more"), {}, "a Parquet file, or damaged"),
    ("a.parquet", cut(GOOD["parquet"], 0.6), {}, "a Parquet file, or damaged"),
    ("a.parquet", table(u=pa.array([], "float64")), {}, "at least one row"),
    ("a.parquet", table(u=[1.0, None], v=[1, 2]), {}, "missing; got an empty cell in row 1, column 'u'"),
    ("a.parquet", table(u=[1.0, 2.0], v=[1, None]), {}, "missing; got an empty cell in row 1, column 'v'"),
    ("a.parquet", table(u=[1.0, float("nan")]), {}, "finite; got nan in row 1, column 'u'"),
    ("a.parquet", table(u=[1.0, 1e300]), {"dtype": "float32"}, "inf in row 1, column 'u'.*dtype='float64'"),
    ("a.parquet", table(u=["x", "y"]), {}, "must be numbers; got 'x'.*column 'u'.*categorical='onehot'"),
    ("a.parquet", table(u=["x", None]), {"categorical": "onehot"}, "empty cell in row 1, column 'u'"),
    ("a.parquet", table(u=[[1, 2], [3]]), {}, "column 'u' must have one length.*1 in row 1 where row 0 has 2"),
    ("a.parquet", table(u=[[1, 2], None]), {}, "empty cell in row 1, column 'u'"),
    ("a.parquet", table(u=[[1, 2], [3, None]]), {}, "empty cell in row 1, column 'u'"),
    ("a.parquet", table(u=[[], [1]]), {}, "empty cell in row 0, column 'u'"),
    ("a.parquet", table(u=[{"a": 1}]), {}, "column 'u' of struct"),
    ("a.parquet", table(u=[b"x"]), {}, "column 'u' of binary"),
    ("a.parquet", table(u=[1.0], label=[[1]]), {}, "labels must be .*column 'label' of list"),
    ("a.parquet", table(u=[1.0], label=["a"]), {"label": "kind"}, "unknown label column.*'kind'"),
    ("a.parquet", table(u=[1.0], sample_weight=["a"]), {}, "must be numbers; got 'a'.*'sample_weight'"),
    ("a.parquet", table(label=["a"]), {}, "needs a column of features"),
    # folders
    ("f", tree(), {}, "a directory for each class.*0 images"),
    ("f", tree(x=png()), {}, "a directory for each class.*1 images.*labels=False"),
    ("f", tree(a__x=png(), b=None), {}, "at least one image.*nothing in .*b"),
    ("f", tree(a__notes_txt=b"hello"), {}, "at least one image; got no image in .*a"),
    ("f", tree(a__x=png(), loose=png()), {}, "loose.png beside them"),
    ("f", tree(a__x=png(), a__deep__y=png()), {}, "must not have directories.*deep"),
    ("f", tree(a__x=png(), a__y=b""), {}, "an image, or damaged.*y.png"),
    ("f", tree(a__x=b"not an image"), {}, "an image, or damaged.*x.png"),
    ("f", tree(a__x=png((64, 64))[:-40]), {}, "an image, or damaged.*x.png"),
    ("f", tree(a__x=png(), b__y=png((5, 4))), {}, r"one size; got 4 × 5 gray in .*y.png .* 4 × 4 gray. Pass size="),
    ("f", tree(a__x=png(), b__y=png(mode="RGB")), {}, "one kind of colour; got 4 × 4 colour in .*y.png.*channels='gray'"),
    ("f", tree(a__x=png(mode="RGBA")), {}, "transparent parts; got .*x.png.*channels="),
    ("f", tree(a__x=png(mode="I;16")), {}, "8 bits.*I;16 in .*x.png"),
    ("f", tree(a__x=bomb()), {}, "too large to be safe; got .*x.png"),
    ("f", tree(**{"a b__x": png(), "a%20b__y": png()}), {}, "two directories stand for one class; got 'a b'"),
    ("f", tree(a__x=png()), {"channels": "grey"}, "unknown channels; got 'grey'. Did you mean 'gray'"),
    ("f", tree(a__x=png()), {"size": 0}, "size must be a whole number"),
    ("f", tree(a__x=png()), {"size": (2, 2, 2)}, r"size must be one side .*\(2, 2, 2\)"),
    # IDX
    ("x-images-idx3-ubyte", raw(b""), {}, "an IDX file, or damaged.*starts with nothing"),
    ("x-images-idx3-ubyte", raw(b"\x01\x02\x08\x03"), {}, "damaged.*starts with 01 02 08 03"),
    ("x-images-idx3-ubyte", raw(idx((2, 2, 2), bytes(8), code=7)), {}, "damaged.*starts with 00 00 07 03"),
    ("x-images-idx3-ubyte", raw(idx((2, 2, 2), b"")[:9]), {}, "an IDX file, or damaged"),
    ("x-images-idx3-ubyte", raw(idx((2, 2, 2), bytes(7))), {}, r"damaged.*\(2, 2, 2\) uint8, 24 bytes, where 23 are"),
    ("x-images-idx3-ubyte", raw(idx((2, 2, 2), bytes(9))), {}, "damaged.*where 25 are"),
    ("x-images-idx3-ubyte.gz", raw(gzip.compress(idx((2, 2, 2), bytes(7)))), {}, "damaged.*ends early"),
    ("x-images-idx3-ubyte.gz", raw(gzip.compress(idx((2, 2, 2), bytes(9)))), {}, "damaged.*longer than its header"),
    ("x-images-idx3-ubyte.gz", raw(gzip.compress(idx((60000, 28, 28), bytes(9)))), {}, r"damaged.*\(60000, 28, 28\)"),
    ("x-images-idx3-ubyte.gz", raw(gzip.compress(idx((2, 2, 2), bytes(8)))[:-9]), {}, "an IDX file, or damaged"),
    ("x-images-idx3-ubyte", raw(idx((0, 2, 2), b"")), {}, "at least one sample"),
    ("x-labels-idx1-ubyte", raw(idx((2,), bytes(2))), {}, "not a file of images; got .*labels"),
    ("x-images-idx3-ubyte", raw(idx((1, 1, 1), bytes(1))), {"split": "test"}, "split is asked of a directory"),
    ("m", mnist(train_images=ONE, train_labels=idx((2,), bytes(2))), {}, r"shape \(2,\) in .*train-labels.* 1 images"),
    ("m", mnist(train_images=ONE, train_labels=ONE), {}, r"same length; got shape \(1, 1, 1\) in .*train-labels"),
    ("m", mnist(train_images=ONE, train_labels=b"\0\0"), {}, "damaged.*train-labels.*starts with 00 00"),
    ("m", mnist(train_images=ONE), {"split": "test"}, "no images of the split 'test'.*got train-images"),
    ("m", mnist(train_labels=ONE), {}, "no IDX images in .*got train-labels"),
    ("m", mnist(a_train_images=ONE, b_train_images=ONE), {}, "several sets.*a-train.*b-train"),
    ("m", mnist(train_images=ONE, t10k_images=idx((1, 1, 2), bytes(2))), {"split": "all"}, "one shape and dtype"),
]  # fmt: skip


def listing(place: Path) -> list[tuple[str, int]]:
    return sorted((str(path.relative_to(place)), path.stat().st_size) for path in place.rglob("*"))


def check(error: InputError, message: str) -> None:
    assert str(error.what) and str(error.got) and str(error.remedy)
    assert re.search(message, str(error), re.DOTALL), str(error)


@pytest.mark.parametrize(
    ("name", "make", "options", "message"),
    BAD,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_content(
    name: str, make: Make, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    make(tmp_path / name)
    before = listing(tmp_path)
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / name, **options).read()
    check(caught.value, message)
    assert listing(tmp_path) == before


IMAGES = np.zeros((2, 3, 3))
UNWRITABLE: list[tuple[str, Callable[[], Content], str]] = [
    ("a.txt", lambda: Content(X), "unknown suffix of a file to write; got '.txt'"),
    ("a.npy", lambda: Content(X), "unknown suffix of a file to write; got '.npy'"),
    ("taken.npz/a.npz", lambda: Content(X), "cannot write there; got .*taken.npz"),
    ("taken.npz", lambda: Content(X), "something already; got .*taken.npz.*overwrite=True"),
    ("taken", lambda: Content(IMAGES, ["a", "b"]), "a file is in the way; got .*taken"),
    ("dir.csv", lambda: Content(X), "a directory is in the way; got .*dir.csv"),
    ("full", lambda: Content(IMAGES, ["a", "b"]), "something already; got .*full"),
    ("a.npz", lambda: Content(X, [b"a"] * 6), "class names must be text.*b'a'"),
    ("a.csv", lambda: Content(X, [b"a"] * 6), "class names must be text.*b'a'"),
    ("a.parquet", lambda: Content(X, [frozenset()] * 6), "class names must be text.*frozenset"),
    ("a", lambda: Content(IMAGES, [b"a", b"b"]), "class names must be text.*b'a'"),
    ("a.csv", lambda: Content(X, columns=("u", "label")), "tables keep for labels.*'label'"),
    ("a.parquet", lambda: Content(X, columns=("u", "sample_weight")), "tables keep for labels.*'sample_weight'"),
    ("a.csv", lambda: Content(X, columns=("u", " v")), "plain text.*' v'"),
    ("a.csv", lambda: Content(X, columns=("0", "1")), "must not all be numbers.*'0', '1'"),
    ("a.parquet", lambda: Content(X, columns=("u", "")), "needs a name.*column 1"),
    ("a", lambda: Content(X, Y), r"images must have shape .*\(2,\).*npz"),
    ("a", lambda: Content(np.zeros((2, 3, 3, 2)), [0, 1]), r"images must have shape .*\(3, 3, 2\)"),
    ("a", lambda: Content(IMAGES + 255, [0, 1]), "values from 0 to 1; got 255 to 255"),
    ("a", lambda: Content(IMAGES - 1.1, [0, 1]), "values from 0 to 1; got -1.1 to -1.1"),
    ("a", lambda: Content(IMAGES + np.nan, [0, 1]), "values from 0 to 1; got nan"),
    ("a", lambda: Content(IMAGES), "without labels"),
    ("a", lambda: Content(IMAGES, ["a", None]), "without labels"),
    ("a", lambda: Content(IMAGES, [0, 1], weights=np.array([1, 2])), "a folder keeps no weights"),
    ("a", lambda: Content(IMAGES, ["n" * 300, "b"]), "cannot write there.*too long"),
    ("n" * 300 + ".npz", lambda: Content(X), "cannot write there.*too long"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), UNWRITABLE)
def test_bad_writes(
    name: str, content: Callable[[], Content], message: str, tmp_path: Path
) -> None:
    for file in ("taken.npz", "taken"):
        (tmp_path / file).write_bytes(b"mine")
    for directory in ("dir.csv", "full/inner"):
        (tmp_path / directory).mkdir(parents=True)
    before = listing(tmp_path)
    with pytest.raises(InputError) as caught:
        write(tmp_path / name, content())
    check(caught.value, message)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("path", [None, 3, "", "a\0b", b"a.npz"])
def test_bad_paths(path: Any) -> None:
    with pytest.raises(InputError, match="a path must"):
        open_source(path)


def test_a_missing_file_has_its_neighbours_named(tmp_path: Path) -> None:
    (tmp_path / "digits.npz").write_bytes(b"")
    with pytest.raises(InputError, match="no such file.*Did you mean 'digits.npz'"):
        open_source(tmp_path / "digit.npz")
    with pytest.raises(InputError, match=r"There is no directory .*nowhere"):
        open_source(tmp_path / "nowhere" / "a.npz")


READABLE = {
    "a.npz": GOOD["npz"],
    "a.csv": text(ROWS),
    "a.csv.gz": GOOD["gz"],
    "a.npy": raw(b""),
    "a.parquet": GOOD["parquet"],
}


@pytest.mark.parametrize(("name", "make"), [*READABLE.items(), ("f", tree(a__x=png()))])
def test_no_permission(
    name: str, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / name)

    def refuse(*_: object, **__: object) -> None:
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


WHOLE: dict[str, tuple[Make, dict[str, Any]]] = {
    "a.npz": (npz(x=X, y=Y, classes=["a", "b"], weights=np.ones(6), columns=["u", "v"]), {}),
    "b.npz": (lambda path: write(path, Content(X, [(1, "a")] * 6)), {}),
    "a.npy": (lambda path: np.save(path, X), {}),
    "a.csv": (text(ROWS * 1), {}),
    "a.csv.gz": (GOOD["gz"], {}),
    "a.parquet": (lambda path: write(path, Content(X, Y, columns=("u", "v"))), {}),
    "b.parquet": (lambda path: write(path, Content(IMAGES, [("a",), 1])), {}),
    "train-images-idx3-ubyte": (raw(idx((2, 2, 2), bytes(8))), {}),
    "train-images-idx3-ubyte.gz": (raw(gzip.compress(idx((2, 2, 2), bytes(8)))), {}),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whatever_is_damaged_only_input_errors_come_out(name: str, tmp_path: Path) -> None:
    """A file with any byte changed, or cut anywhere, reads as something or is an InputError."""
    make, options = WHOLE[name]
    make(tmp_path / name)
    whole = (tmp_path / name).read_bytes()

    @examples(60, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, len(whole) - 1), st.integers(0, 255), st.booleans())
    def damage(at: int, value: int, torn: bool) -> None:
        (tmp_path / name).write_bytes(
            whole[:at] if torn else whole[:at] + bytes([value]) + whole[at + 1 :]
        )
        try:
            open_source(tmp_path / name, **options).read()
        except InputError as error:
            check(error, "")

    damage()


@pytest.mark.slow
def test_a_column_that_is_no_longer_optional_does_not_end_the_process(tmp_path: Path) -> None:
    """Its histogram of levels is then of another size, which pyarrow cannot say of a column's facts."""
    WHOLE["a.parquet"][0](tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    script = """
import sys
from pathlib import Path
from advect.data.formats import open_source
from advect.errors import InputError
whole, path = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
schema = whole.index(b"schema")
for at in range(schema, schema + 60):
    path.write_bytes(whole[:at] + bytes([0]) + whole[at + 1 :])
    try:
        open_source(path).read()
    except InputError:
        pass
"""
    files = [str(tmp_path / name) for name in ("a.parquet", "b.parquet")]
    assert b"schema" in whole
    done = subprocess.run([sys.executable, "-c", script, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@examples(60, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["png", "gif", "bmp", "webp", "jpeg", "tiff", "ppm"]),
    st.integers(0, 10**6),
    st.integers(0, 255),
    st.booleans(),
)
def test_damaged_images(
    tmp_path_factory: pytest.TempPathFactory, kind: str, at: int, value: int, torn: bool
) -> None:
    out = io.BytesIO()
    Image.fromarray(np.arange(75, dtype=np.uint8).reshape(5, 5, 3)).save(out, kind)
    whole = out.getvalue()
    at %= len(whole)
    place = tmp_path_factory.mktemp("images")
    (place / "a").mkdir()
    (place / "a" / f"x.{kind.removesuffix('f') if kind == 'tiff' else kind}").write_bytes(
        whole[:at] if torn else whole[:at] + bytes([value]) + whole[at + 1 :]
    )
    try:
        open_source(place, size=4, channels="rgb").read()
    except InputError as error:
        check(error, "")


def test_stray_files_beside_images_are_left_out_with_a_word(tmp_path):
    tree(a__x=png(), b__y=png())(tmp_path / "f")
    for name in ("Thumbs.db", ".DS_Store", "notes.txt"):
        (tmp_path / "f" / "a" / name).write_bytes(b"hello")
    with pytest.warns(UserWarning, match="2 files in .*a left out.*Thumbs.db, notes.txt"):
        data = ad.LabeledDataset.from_folder(tmp_path / "f")
    assert data.labels == ["a", "b"]

"""Every reader against damaged files: each is read, or refused with a message, in little time."""

import gzip
import io
import random
import resource
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deadlines import within
from PIL import Image

import advect as ad
from advect.io.formats import Content, write
from advect.io.formats.table import Column, Table

SECONDS = 20
TABLE = Table((Column("u", "int64"), Column("c", "category", ("a", "b"))), label="kind")
CONTENTS = [
    Content(np.eye(6, 2), ["a", "b"] * 3, columns=("u", "v"), weights=np.arange(1.0, 7)),
    Content(np.ones((5, 2)), [True, False, None, True, True]),
    Content(np.eye(4, 3), [1, 2, 1, 2], columns=("u", "c=a", "c=b"), table=TABLE),
    Content(np.arange(24.0).reshape(3, 2, 2, 2), [("t", 1), None, "x"]),
]
ROWS = b"u,v,indoors,coat,kind\n" + b"1,2.5,true,short,cat\n3,-4e3,false,long,dog\n" * 4
ONEHOT = {"categorical": "onehot"}
SIZES = [0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1]
WORDS = [b"\0" * 9, b"nan", b"1e999", b'"', b"\xff\xfe", b"[" * 20000, b"\n" * 300, b"1," * 200_000]


def corpus(kind, place):
    """The name of a file, and sound contents of it with options to read them."""
    if kind in ("npz", "csv", "csv.gz", "parquet"):
        contents = []
        for content in CONTENTS if kind == "npz" else CONTENTS[:2]:
            write(place / f"made.{kind}", content, overwrite=True)
            contents.append(((place / f"made.{kind}").read_bytes(), {}))
        if "csv" in kind:
            rows = gzip.compress(ROWS) if kind == "csv.gz" else ROWS
            contents.append((rows, {"label": "kind", **ONEHOT}))
        if kind == "parquet":
            mixed = pa.table({"u": [1.0, 2, 3] * 9, "l": [[[1, 2]]] * 27, "t": ["p", "q", "r"] * 9})
            file = io.BytesIO()
            pq.write_table(mixed, file, compression="zstd", row_group_size=10)
            contents.append((file.getvalue(), ONEHOT))
        return f"a.{kind}", contents
    if kind == "npy":
        file = io.BytesIO()
        np.save(file, np.arange(60, dtype=np.uint8).reshape(3, 4, 5))
        return "a.npy", [(file.getvalue(), {})]
    (place / "f" / "a").mkdir(parents=True)
    image, file = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)), io.BytesIO()
    image.save(file, kind)
    return f"f/a/x.{kind}", [(file.getvalue(), {"size": 4, "channels": "rgb"})]


def damage(rng, content):
    """One mutation of bytes."""
    data = bytearray(content)
    first, last = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    match rng.randrange(7):
        case 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 1:
            del data[first:]
        case 2:
            del data[first:last]
        case 3:
            data[first:first] = data[first:last] * rng.choice((1, 30))
        case 4:
            form = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
            size = rng.choice(SIZES) & ((1 << 8 * struct.calcsize(form)) - 1)
            data[first : first + struct.calcsize(form)] = struct.pack(form, size)
        case 5:
            data[first:first] = rng.choice(WORDS)
        case 6:
            data[first:last] = rng.randbytes(last - first)
    return bytes(data)


def damage_inside(rng, kind, content):
    """One mutation of what a container holds; the container itself is sound."""
    if kind.endswith(".gz"):
        return gzip.compress(damage(rng, gzip.decompress(content)), 1)
    file = io.BytesIO()
    if kind == "npz":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        key = rng.choice(list(members))
        members[key] = damage(rng, members[key])
        method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
        with zipfile.ZipFile(file, "w", method) as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        return file.getvalue()
    return damage(rng, damage(rng, content) or content)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [25, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "csv.gz", "parquet", "png", "jpeg", "tiff"])
def test_damaged_files_of_each_format(kind, count, tmp_path, monkeypatch):
    monkeypatch.setattr("advect.io.formats.arrays._LARGE", 250)  # some arrays are mapped
    rng, refused, size = random.Random(kind), 0, resource.RUSAGE_SELF
    room = resource.getrusage(size).ru_maxrss + (1 << 20)  # in kB
    name, contents = corpus(kind, tmp_path)
    path = tmp_path / name
    target = tmp_path / "f" if "/" in name else path
    for content, options in contents:
        path.write_bytes(content)
        ad.datasets.load(target, progress=False, **options)
    for _ in range(count):
        content, options = rng.choice(contents)
        inside = rng.random() < 0.4
        path.write_bytes(damage_inside(rng, kind, content) if inside else damage(rng, content))
        with within(SECONDS, of_work=True):  # others may have the cores
            try:
                ad.datasets.load(target, progress=False, **options)
            except ad.InputError:
                refused += 1
    assert refused > 0, "hardly anything was damaged"
    assert resource.getrusage(size).ru_maxrss < room

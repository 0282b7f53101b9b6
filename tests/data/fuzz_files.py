"""Damages files of every format and reads them, in a process of its own.

``python tests/data/fuzz_files.py npz,csv 300 7 directory`` prints a JSON object for each reader: how
many mutations were read, refused, or failed otherwise, and by how much the memory grew."""

from __future__ import annotations

import gzip
import io
import json
import random
import resource
import signal
import struct
import sys
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import advect as ad
from advect.io.formats import Content, arrays, write
from advect.io.formats.table import Column, Table

SECONDS, ROOM = 20, 2 << 30
Corpus = list[tuple[bytes, dict[str, Any]]]
TABLE = Table((Column("u", "int64"), Column("c", "category", ("a", "b"))), label="kind")
CONTENTS = [
    Content(
        np.arange(12.0).reshape(6, 2), ["a", "b"] * 3, columns=("u", "v"), weights=np.arange(1.0, 7)
    ),
    Content(np.arange(24.0).reshape(3, 2, 2, 2), [("t", 1), None, "x"]),
    Content(np.eye(4, 3), [1, 2, 1, 2], columns=("u", "c=a", "c=b"), table=TABLE),
    Content(np.ones((5, 2)), [True, False, None, True, True]),
]


def made(suffix, contents, folder):
    found = []
    for at, content in enumerate(contents):
        path = folder / f"made{at}{suffix}"
        write(path, content, overwrite=True)
        found.append(path.read_bytes())
    return found


def npz(folder):
    file, x = io.BytesIO(), np.asfortranarray(np.arange(24.0).reshape(6, 4))
    np.savez_compressed(file, x_train=x, y_train=np.arange(6) % 2, x_test=x, y_test=[0] * 6)
    return [(content, {}) for content in [file.getvalue(), *made(".npz", CONTENTS, folder)]]


def npy(folder):
    out = []
    for array in (np.eye(5), np.arange(60, dtype=np.uint8).reshape(3, 4, 5)):
        file = io.BytesIO()
        np.save(file, array)
        out.append((file.getvalue(), {}))
    return out


def text(suffix):
    def corpus(folder):
        rows = b"u,v,indoors,coat,kind\n" + b"1,2.5,true,short,cat\n3,-4e3,false,long,dog\n" * 4
        content = gzip.compress(rows) if suffix.endswith(".gz") else rows
        asked = {"label": "kind", "categorical": "onehot"}
        own = made(suffix, [CONTENTS[0], CONTENTS[3]], folder)
        return [*((each, {}) for each in own), (content, asked)]

    return corpus


def parquet(folder):
    out = [(content, {}) for content in made(".parquet", CONTENTS, folder)]
    lists = pa.table({"x": [[[1, 2], [3, 4]]] * 3, "label": ["a", None, "b"]})
    mixed = pa.table({"u": [1.0, 2, 3] * 9, "b": [True, False, True] * 9, "t": ["p", "q", "r"] * 9})
    for table, options in ((lists, {}), (mixed, {"compression": "zstd", "row_group_size": 10})):
        file = io.BytesIO()
        pq.write_table(table, file, **options)
        out.append((file.getvalue(), {"categorical": "onehot"}))
    return out


def idx(folder):
    """Images with labels of one content, in the two files of a directory."""
    (folder / "m").mkdir(exist_ok=True)
    (folder / "m" / "train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 0, 1, 2]))
    return [(bytes([0, 0, 8, 3]) + struct.pack(">3I", 3, 4, 4) + bytes(48), {})]


def image(kind):
    def corpus(folder):
        out = []
        for mode in ("RGB", "L"):
            file = io.BytesIO()
            pixels = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
            Image.fromarray(pixels).convert(mode).save(file, kind)
            out.append((file.getvalue(), {"size": 4, "channels": "rgb"}))
        return out

    return corpus


READERS: dict[str, tuple[str, Callable[[Path], Corpus]]] = {
    "npz": ("a.npz", npz),
    "npy": ("a.npy", npy),
    "csv": ("a.csv", text(".csv")),
    "csv.gz": ("a.csv.gz", text(".csv.gz")),
    "parquet": ("a.parquet", parquet),
    "idx": ("m/train-images-idx3-ubyte", idx),
    "png": ("f/a/x.png", image("PNG")),
    "jpeg": ("f/a/x.jpg", image("JPEG")),
    "tiff": ("f/a/x.tiff", image("TIFF")),
}
SIZES = [0, 1, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1]
WORDS = [b"\0" * 9, b"nan", b"1e999", b'"', b"\xff\xfe", b"[" * 20000, b"\n" * 300, b"9" * 400]


def damage(rng, content):
    """One mutation of bytes."""
    data = bytearray(content)
    at, upto = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    way = rng.randrange(12)
    if way == 0:
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif way == 1:
        del data[at:]
    elif way == 2:
        data[at:at] = rng.randbytes(rng.choice((1, 3, 16, 300)))
    elif way == 3:
        del data[at:upto]
    elif way == 4:
        data = data[:at] + data[upto:] + data[at:upto]
    elif way == 5:
        data[at:at] = data[at:upto] * rng.choice((1, 2, 30))
    elif way == 6:
        form = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
        size = rng.choice(SIZES) & ((1 << 8 * struct.calcsize(form)) - 1)
        data[at : at + struct.calcsize(form)] = struct.pack(form, size)
    elif way == 7:
        data[at:upto] = bytes(upto - at)
    elif way == 8:
        data[at:at] = rng.choice(WORDS)
    elif way == 9:
        data[at:at] = rng.choice((b"1,", b"x", b'"a",', b"0\t", b"(")) * rng.choice(
            (1000, 200_000, 3_000_000)
        )
    elif way == 10:
        data = bytearray(
            bytes(data).decode("latin-1").encode(rng.choice(("utf-8", "utf-16", "utf-32")))
        )
    else:
        data = bytearray(rng.randbytes(rng.randrange(400)))
    return bytes(data)


def inside(rng, name, content):
    """One mutation of what a container holds; the container itself is sound."""
    if name.endswith(".gz"):
        return gzip.compress(damage(rng, gzip.decompress(content)), 1)
    if name == "npz":
        with zipfile.ZipFile(io.BytesIO(content)) as old:
            members = {info.filename: old.read(info) for info in old.infolist()}
        key = rng.choice(list(members))
        members[key] = damage(rng, members[key])
        file = io.BytesIO()
        with zipfile.ZipFile(
            file, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
        ) as new:
            for member, data in members.items():
                new.writestr(member, data)
        return file.getvalue()
    if name == "parquet":
        table = pq.read_table(io.BytesIO(content))
        own = (table.schema.metadata or {}).get(b"advect", b"{}")
        file = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({b"advect": damage(rng, own)[:100_000]}), file)
        return file.getvalue()
    return damage(rng, damage(rng, content))


class Hang(BaseException):
    """Nothing that a reader would take for an error of the file."""


def late(*_):
    raise Hang


def read(path, options):
    """ "read" or "refused"; anything else is the fault of the reader."""
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of work: other processes may have the cores
    try:
        ad.datasets.load(path, progress=False, **options)
        return "read"
    except ad.InputError as error:
        return "refused" if error.what and error.remedy else f"an empty message: {error}"
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def attack(name, count, seed, folder):
    place, corpus = READERS[name]
    rng, path = random.Random(f"{name} {seed}"), folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.parent if place.startswith("m/") else path
    target = folder / "f" if place.startswith("f/") else target
    whole = corpus(folder)
    for content, options in whole:
        path.write_bytes(content)
        assert read(target, options) == "read", name
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told: dict[str, Any] = {"reader": name, "read": 0, "refused": 0, "faults": []}
    for at in range(count):
        content, options = rng.choice(whole)
        path.write_bytes(inside(rng, name, content) if rng.random() < 0.4 else damage(rng, content))
        outcome = read(target, options)
        if outcome in ("read", "refused"):
            told[outcome] += 1
        else:
            told["faults"].append([at, outcome])
    path.unlink()
    return told | {"grown": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024}


def main():
    names, count, seed, folder = sys.argv[1].split(","), *map(int, sys.argv[2:4]), Path(sys.argv[4])
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    arrays._LARGE = 250  # small and large arrays
    for name in names:
        print(json.dumps(attack(name, count, seed, folder)), flush=True)


if __name__ == "__main__":
    main()
